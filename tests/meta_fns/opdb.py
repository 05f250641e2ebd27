"""Calls that torch's own op_db makes, recorded at ``__torch_dispatch__`` level, and how ``infer``
fares on them.

``record`` runs the samples of OpInfos (forward, backward, in-place variants) and keeps distinct
calls of each overload; ``judge`` compares ``infer`` with eager on one call; ``vary`` makes of a
call another one, with other sizes.

    python -m tests.meta_fns.opdb                   overloads without a rule, and wrong calls
    python -m tests.meta_fns.opdb --vary 20         also at twenty variations of each call
    python -m tests.meta_fns.opdb --only aten.cat   overloads whose name starts so
    python -m tests.meta_fns.opdb --device cuda     the same on a device
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

import meta_fns
from meta_fns import TensorSpec

__all__ = ["Call", "Verdict", "in_another_layout", "judge", "record", "vary"]

# What eager raises to refuse a call.
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AssertionError)
# Not ops on tensors of a program, or made by op_db's own machinery.
SKIPPED = ("torch_nn.", "prims.", "jiterator", "profiler.")

# Where a variation of a call may differ from eager, and why. Recorded calls themselves are always
# right.
_STORAGE = "a spec does not know how large the storage is that a strided view may reach into"
_VALUES = "eager refuses by values that no filling of the arguments here makes acceptable"
_UNCHECKED = "eager reads outside of an argument whose sizes do not fit; refusing is right"
GAPS: dict[str, str] = {
    "aten.as_strided.default": _STORAGE,
    "aten.as_strided_.default": _STORAGE,
    "aten.as_strided_copy.default": _STORAGE,
    "aten.as_strided_scatter.default": _STORAGE,
    "aten.cholesky.default": _VALUES,
    "aten.repeat_interleave.Tensor": _VALUES,
    "aten.segment_reduce.default": _VALUES,
    "aten.lu_unpack.default": _VALUES,
    "aten.index_put.default": _VALUES,
    "aten.index_put_.default": _VALUES,
    "aten.multinomial.default": _VALUES,
    "aten._embedding_bag_backward.default": _VALUES,
    "aten.fractional_max_pool3d_backward.default": _VALUES,
    "aten.linalg_lstsq.default": (
        "residuals are dropped for matrices that lack full rank, which depends on data"
    ),
    "aten._batch_norm_with_update.default": _UNCHECKED,
    "aten._native_batch_norm_legit.default": _UNCHECKED,
    "aten.native_batch_norm.default": _UNCHECKED,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _UNCHECKED,
    "aten._trilinear.default": _UNCHECKED,
    "aten.grid_sampler_2d_backward.default": _UNCHECKED,
    "aten.grid_sampler_3d_backward.default": _UNCHECKED,
    "aten.convolution_backward.default": _UNCHECKED,
    "aten._local_scalar_dense.default": (
        "eager takes the one element of any shape; complex numbers have no unknown"
    ),
}


@attrs.frozen(eq=False)
class Call:
    """One recorded call; its tensors are copies with the metadata (and values) that the op saw."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: str = ""

    def __str__(self) -> str:
        args = [text(a) for a in self.args] + [
            f"{name}={text(a)}" for name, a in self.kwargs.items()
        ]
        return f"{self.op}({', '.join(args)})"


@attrs.frozen
class Verdict:
    """What became of a call. ``label``: ``right``, ``refused`` (rightly), or what is wrong."""

    label: str
    detail: str = ""

    @property
    def fine(self) -> bool:
        return self.label in ("right", "refused", "no rule", "skipped", "eager crashed")


def text(value: Any) -> str:
    if isinstance(value, (torch.Tensor, TensorSpec)):
        spec = value if isinstance(value, TensorSpec) else TensorSpec.of(value)
        dtype = str(spec.dtype).removeprefix("torch.")
        return f"{dtype}{list(spec.sizes)}/{list(spec.strides)}" + (
            f"+{spec.storage_offset}" * bool(spec.storage_offset)
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text, value))}]"
    return repr(value)


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """The same metadata and values on storage of its own."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        return tensor.clone()
    if not tensor.untyped_storage().nbytes():
        return tensor
    fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return fresh.set_(
        tensor.untyped_storage().clone(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


class _Recorder(TorchDispatchMode):
    def __init__(self, calls: dict[OpOverload, dict[str, Call]], source: str, most: int) -> None:
        super().__init__()
        self.calls, self.source, self.most = calls, source, most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        seen = self.calls[func]
        call = None
        if len(seen) < self.most and not str(func).startswith(SKIPPED):
            key = text(list(args)) + repr([(name, text(a)) for name, a in kwargs.items()])
            if key not in seen:
                call = Call(
                    func,
                    *tree_map_only(torch.Tensor, clone, (tuple(args), dict(kwargs))),
                    self.source,
                )
        result = func(*args, **kwargs)
        if call is not None:
            seen[key] = call
        return result


def record(
    names: Callable[[str], bool] | None = None,
    *,
    dtypes: Iterable[torch.dtype] = (torch.float32, torch.int64, torch.bool, torch.complex64),
    most: int = 24,
    first: int = 0,
    step: int = 1,
    device: str = "cpu",
) -> list[Call]:
    """Distinct calls, at most ``most`` an overload, that the samples of op_db's OpInfos reach.

    ``names`` picks OpInfos; ``step`` takes each ``step``-th of them from the ``first``.
    """
    # In a thread for its short stack: op_db reads the whole stack for each list of samples, and
    # torch writes it down for each seed, which under pytest takes four times as long as the samples
    # themselves.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_record, names, tuple(dtypes), most, first, step, device).result()


def op_infos() -> list[Any]:
    """Return op_db. Its import forbids setting flags of torch's backends: that is taken back."""
    allowed = torch.backends.__allow_nonbracketed_mutation_flag
    from torch.testing._internal.common_methods_invocations import op_db

    torch.backends.__allow_nonbracketed_mutation_flag = allowed
    return list(op_db)


def _record(
    names: Callable[[str], bool] | None,
    dtypes: tuple[torch.dtype, ...],
    most: int,
    first: int,
    step: int,
    device: str,
) -> list[Call]:
    calls: dict[OpOverload, dict[str, Call]] = defaultdict(dict)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in op_infos()[first::step]:
            if names is None or names(info.name):
                for dtype in dtypes:
                    if dtype in info.dtypes:
                        _run_info(info, dtype, calls, most, device)
    return [call for found in calls.values() for call in found.values()]


def _run_info(
    info: Any, dtype: torch.dtype, calls: dict[OpOverload, dict[str, Call]], most: int, device: str
) -> None:
    grad = info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for variant in (info.op, info.inplace_variant):
        if variant is None:
            continue
        try:
            samples = list(info.sample_inputs(device, dtype, requires_grad=grad))
        except REFUSALS:
            continue
        for sample in samples:
            try:
                _run_sample(
                    variant,
                    sample,
                    grad,
                    variant is info.inplace_variant,
                    _Recorder(calls, info.name, most),
                )
            except REFUSALS:
                continue


def _run_sample(
    op: Any, sample: Any, grad: bool, in_place: bool, recorder: TorchDispatchMode
) -> None:
    with recorder:
        first = sample.input
        if in_place and grad and isinstance(first, torch.Tensor):
            first = first.clone()
        outs = op(first, *sample.args, **sample.kwargs)
        if not grad:
            return
        differentiable = [
            o for o in tree_leaves(outs) if isinstance(o, torch.Tensor) and o.requires_grad
        ]
        leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
        inputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        if differentiable and inputs:
            seeds = [torch.ones_like(o) for o in differentiable]
            torch.autograd.grad(differentiable, inputs, seeds, allow_unused=True)


# --- one call, eager and inferred -----------------------------------------------------------------


class _Guess:
    """A context whose unknowns are all ``value``; remembers whether it was asked and whether a
    bound excludes it.
    """

    def __init__(self, value: Any) -> None:
        self.value, self.outside = value, False

    def new_size(self, lower: Any, upper: Any) -> Any:
        self.outside |= self.value < lower or (upper is not None and self.value > upper)
        return self.value

    def count_of(self, counted: Any, lower: Any, upper: Any) -> Any:
        return self.new_size(lower, upper)

    def new_int(self, lower: Any, upper: Any) -> Any:
        return self.value

    def new_float(self) -> Any:
        return self.value

    new_bool = new_float


def eager(call: Call) -> tuple[Any, BaseException | None]:
    """What eager returns (below autograd), or the error that it raises."""
    args, kwargs = tree_map_only(torch.Tensor, clone, (call.args, call.kwargs))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return call.op(*args, **kwargs), None
        except REFUSALS as error:
            return None, error


def judge(call: Call) -> Verdict:
    """``infer`` against eager in sizes, strides, offset, dtype, device and refusal."""
    if not meta_fns.has_rule(call.op):
        return Verdict("no rule")
    args, kwargs = tree_map_only(torch.Tensor, TensorSpec.of, (call.args, call.kwargs))
    expected, error = eager(call)
    if error is not None:
        try:
            got = meta_fns.infer(call.op, args, kwargs)
        except meta_fns.DataDependentOutput:
            return Verdict("skipped", "data-dependent")
        except meta_fns.ShapeError:
            return Verdict("refused")
        except meta_fns.UnsupportedOp as unsupported:
            return Verdict("refused", str(unsupported))
        if values_matter(call):
            return Verdict("skipped", "eager refuses the values")
        return Verdict(
            "accepted", f"{call}\n  eager refuses: {str(error)[:300]}\n  infer {show(got)}"
        )
    try:
        if meta_fns.lookup(call.op).data_dependent:  # type: ignore[union-attr]
            return _judge_unknown(call, args, kwargs, expected)
        got = meta_fns.infer(call.op, args, kwargs)
    except meta_fns.ShapeError as refusal:
        return Verdict(
            "over-refused", f"{call}\n  infer refuses: {refusal}\n  eager {show(expected)}"
        )
    except meta_fns.UnsupportedOp as unsupported:
        return Verdict("unsupported", f"{call}: {unsupported}")
    return compare(call, got, expected)


def values_matter(call: Call) -> bool:
    """True if eager accepts the same metadata with other values (indices in range, divisors that
    are not 0).
    """
    for value, floats in ((0, False), (1, False), (-100, False), (1, True), (0, True)):

        def filled(tensor: torch.Tensor, value: int = value, floats: bool = floats) -> torch.Tensor:
            return (
                clone(tensor).fill_(value)
                if floats or not tensor.dtype.is_floating_point
                else tensor
            )

        args, kwargs = tree_map_only(torch.Tensor, filled, (call.args, call.kwargs))
        if eager(Call(call.op, args, kwargs))[1] is None:
            return True
    return False


def _judge_unknown(call: Call, args: Any, kwargs: Any, expected: Any) -> Verdict:
    """Right if some value of the unknowns, within their bounds, gives what eager gave."""
    leaves = [x for x in tree_leaves(expected) if isinstance(x, torch.Tensor)]
    values = {size: None for leaf in leaves for size in leaf.size()} or {0: None}
    if not leaves:
        values = {expected: None}
    verdict = Verdict("skipped")
    for value in values:
        guess = _Guess(value)
        verdict = compare(call, meta_fns.infer(call.op, args, kwargs, ctx=guess), expected)
        if verdict.label == "right" and not guess.outside:
            return verdict
    return (
        verdict
        if verdict.label != "right"
        else Verdict("size", f"{call}: the bounds exclude {values}")
    )


def show(value: Any) -> str:
    return text([value])[1:-1]


def compare(call: Call, got: Any, expected: Any) -> Verdict:
    """The first difference between what was inferred and what eager returned."""
    mine, theirs = _flat(got), _flat(expected)
    shown = f"{call}\n  infer {show(got)}\n  eager {show(expected)}"
    if len(mine) != len(theirs):
        return Verdict("size", shown)
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if isinstance(a, TensorSpec) or (a is None) != (b is None):
                return Verdict("size", shown)
            continue
        if not isinstance(a, TensorSpec):
            return Verdict("size", shown)
        want = TensorSpec.of(b)
        for label in ("sizes", "dtype", "strides", "storage_offset", "device", "layout"):
            if getattr(a, label) != getattr(want, label):
                return Verdict(label, shown)
    return Verdict("right")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


# --- other sizes ----------------------------------------------------------------------------------


def vary(call: Call, rng: random.Random) -> Call | None:
    """The call with another size somewhere: one value of a size replaced wherever it occurs (also
    in int arguments, or not), or one dimension of one tensor alone. None if there is nothing to
    vary.
    """
    leaves, tree = tree_flatten((call.args, call.kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if any(t.layout is not torch.strided for t in tensors):
        return None
    places = [
        (i, d) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) for d in range(x.dim())
    ]
    if not places:
        return None
    at, dim = rng.choice(places)
    old = leaves[at].size(dim)
    new = rng.choice((0, 0, 1, 1, 2, 3, old + 1, old + 2, old * 2, max(old - 1, 0)))
    if rng.random() < 0.2:
        sizes = {at: [new if d == dim else s for d, s in enumerate(leaves[at].size())]}
    else:
        sizes = {
            i: [new if s == old else s for s in x.size()]
            for i, x in enumerate(leaves)
            if isinstance(x, torch.Tensor)
        }
        if rng.random() < 0.6:
            args = _swap_ints(call, old, new)
            leaves, tree = tree_flatten(args)
    if any(_count(s) > 1 << 20 for s in sizes.values()):
        return None
    kind = rng.choice(("same", "same", "zeros"))
    if rng.random() < 0.25:
        return in_another_layout(call, at, rng)
    leaves = [resized(x, sizes[i], kind) if i in sizes else x for i, x in enumerate(leaves)]
    args, kwargs = tree_unflatten(leaves, tree)
    return Call(call.op, args, kwargs, call.source)


def in_another_layout(call: Call, at: int, rng: random.Random) -> Call:
    """The call with the tensor that is the leaf ``at`` of its arguments in another layout."""
    leaves, tree = tree_flatten((call.args, call.kwargs))
    leaves[at] = relaid(leaves[at], rng)
    args, kwargs = tree_unflatten(leaves, tree)
    return Call(call.op, args, kwargs, call.source)


def _count(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _swap_ints(call: Call, old: int, new: int) -> Any:
    """The arguments with ``old`` replaced in lists of ints, and in SymInt slots."""

    def swap(value: Any, slot: str) -> Any:
        if (
            isinstance(value, (list, tuple))
            and value
            and all(type(item) is int for item in value)
            and "SymInt" in slot
        ):
            return type(value)(new if item == old else item for item in value)
        if type(value) is int and value == old and slot == "SymInt":
            return new
        return value

    schema = call.op._schema.arguments
    slots = {argument.name: str(argument.real_type) for argument in schema}
    args = tuple(
        swap(value, slots[argument.name])
        for value, argument in zip(call.args, schema, strict=False)
    )
    return args, {name: swap(value, slots[name]) for name, value in call.kwargs.items()}


def retyped(call: Call, rng: random.Random) -> Call | None:
    """The call with one tensor of another dtype, in the same layout. None if there is no tensor to
    change.
    """
    leaves, tree = tree_flatten((call.args, call.kwargs))
    tensors = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    if not tensors or any(leaves[i].layout is not torch.strided for i in tensors):
        return None
    at = rng.choice(tensors)
    old = leaves[at]
    dtype = rng.choice([dtype for dtype in _DTYPES if dtype is not old.dtype])
    storage = torch.empty(old.untyped_storage().nbytes() // old.element_size(), dtype=old.dtype)
    storage.set_(old.untyped_storage(), 0, storage.size(), (1,))
    whole = (storage.real if storage.is_complex() and not dtype.is_complex else storage).to(
        dtype, copy=True
    )
    leaves[at] = torch.as_strided(whole, old.size(), old.stride(), old.storage_offset())
    args, kwargs = tree_unflatten(leaves, tree)
    return Call(call.op, args, kwargs, call.source)


_DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.bool,
)


def relaid(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The same sizes and values in another layout: permuted, with gaps, at an offset, or channels
    last.
    """
    n = tensor.dim()
    kind = rng.choice(("permuted", "permuted", "gaps", "offset", "last"))
    if kind == "permuted":
        order = rng.sample(range(n), n)
        return (
            clone(tensor)
            .permute(order)
            .contiguous()
            .permute(sorted(range(n), key=order.__getitem__))
        )
    if kind == "gaps" and n:
        d = rng.randrange(n)
        return torch.stack((tensor, tensor), d + 1).flatten(d, d + 1)[
            (slice(None),) * d + (slice(None, None, 2),)
        ]
    if kind == "last" and n in (4, 5):
        return clone(tensor).to(
            memory_format=torch.channels_last if n == 4 else torch.channels_last_3d
        )
    wide = torch.cat((tensor.reshape(-1)[:1].repeat(3), tensor.reshape(-1)))[
        -max(tensor.numel(), 1) :
    ]
    return wide.view(tensor.size()) if tensor.numel() else clone(tensor)


def resized(tensor: torch.Tensor, sizes: Sequence[int], kind: str) -> torch.Tensor:
    """A tensor of other sizes laid out alike: dimensions in the same order in memory, expanded ones
    expanded.
    """
    if list(tensor.size()) == list(sizes) and kind == "same":
        return clone(tensor)
    order = sorted(range(len(sizes)), key=lambda d: (tensor.stride(d), tensor.size(d), -d))
    strides = [0] * len(sizes)
    stride = 1
    for d in order:
        if tensor.stride(d) == 0 and tensor.size(d) > 1:
            continue
        strides[d] = stride
        stride *= max(sizes[d], 1)
    expanded = any(tensor.stride(d) == 0 and tensor.size(d) > 1 for d in range(tensor.dim()))
    if tensor.is_contiguous() and not expanded:
        strides = list(torch.empty(list(sizes), device="meta").stride())
    offset = tensor.storage_offset()
    source = tensor.detach().reshape(-1)
    count = stride + offset
    if kind == "zeros" or not source.numel():
        storage = torch.zeros(count, dtype=tensor.dtype, device=tensor.device)
    else:
        storage = source.repeat(-(-count // source.numel()))[:count].contiguous()
    return storage.as_strided(list(sizes), strides, offset)


# --- the report -----------------------------------------------------------------------------------


def judge_apart(calls: Sequence[Call], seconds: int = 120) -> list[Verdict]:
    """``judge`` of each call, in a process of its own: some kernels die of sizes that do not fit
    each other.
    """
    verdicts: list[Verdict] = []
    while len(verdicts) < len(calls):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(seconds)
            os.close(reader)
            try:
                with os.fdopen(writer, "wb") as pipe:
                    for call in calls[len(verdicts) :]:
                        pickle.dump(_judge_or_say(call), pipe)
                        pipe.flush()
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            while True:
                try:
                    verdicts.append(pickle.load(pipe))
                except EOFError:
                    break
        os.waitpid(child, 0)
        if len(verdicts) < len(calls):
            verdicts.append(Verdict("eager crashed"))
    return verdicts


def _judge_or_say(call: Call) -> Verdict:
    try:
        return judge(call)
    except Exception as error:
        return Verdict("raised", f"{call}\n  {type(error).__name__}: {error}")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what is uncovered or wrong; the exit status is 1 if a recorded call is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vary", type=int, default=0, help="variations of each call")
    parser.add_argument("--only", default="", help="overloads whose name starts so")
    parser.add_argument("--info", default="", help="OpInfos whose name starts so")
    parser.add_argument(
        "--show", type=int, default=1, help="failures shown for each overload and label"
    )
    parser.add_argument("--most", type=int, default=24, help="recorded calls an overload")
    parser.add_argument(
        "--dtypes", default="float32 int64 bool complex64", help="dtypes of samples"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    known = parser.parse_args(argv)
    torch.set_num_threads(1)
    dtypes = [getattr(torch, name) for name in known.dtypes.split()]
    calls = record(
        lambda n: n.startswith(known.info), dtypes=dtypes, most=known.most, device=known.device
    )
    by_op: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if str(call.op).startswith(known.only):
            by_op[str(call.op)].append(call)
    tally: Counter[str] = Counter()
    missing = []
    for name, found in sorted(by_op.items()):
        if not meta_fns.has_rule(found[0].op):
            missing.append(name)
            continue
        rng = random.Random(f"{known.seed} {name}")
        tries = [("", call) for call in found]
        tries += [
            ("varied: ", v)
            for call in found
            for _ in range(known.vary)
            if (v := vary(call, rng)) is not None
        ]
        each = [call for _, call in tries]
        verdicts = (
            judge_apart(each) if known.device == "cpu" else [_judge_or_say(call) for call in each]
        )
        shown: Counter[str] = Counter()
        for (kind, _), verdict in zip(tries, verdicts, strict=True):
            label = kind + verdict.label
            tally[label] += 1
            shown[label] += 1
            if not verdict.fine and shown[label] <= known.show:
                print(f"{label}: {verdict.detail}", flush=True)
    print(f"{len(by_op)} overloads, {len(missing)} without a rule: {' '.join(missing)}")
    print(", ".join(f"{label} {count}" for label, count in tally.most_common()))
    fine = ("right", "refused", "skipped", "eager crashed")
    return int(any(label not in fine and not label.startswith("varied") for label in tally))


if __name__ == "__main__":
    sys.exit(main())
