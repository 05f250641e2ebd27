"""Verification: for a sample of calls eager runs too, and the compiled program is compared with it.

Eager serves a sampled call, so that its side effects happen once.  The compiled program runs
before, on copies of the arguments, and what it changed besides them (buffers, random generators) is
restored.  A difference is an error of symshape: it is raised with the first difference and the
suspected cause, and the entry is removed from the cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape import events
from symshape.calls.arguments import flat_with_paths
from symshape.calls.floats import with_leaves
from symshape.calls.generator_states import state_of
from symshape.calls.naming import Naming, brief, nesting_text
from symshape.errors import VerificationError
from symshape.graph.codegen import Run
from symshape.graph.lru_cache_answers import MemoAnswer
from symshape.graph.program import Program
from symshape.runtime.entry import Entry
from symshape.runtime.known_calls import Found
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.variables import serve
from symshape.torch_internals import pytree

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


Find = Callable[[tuple[Any, ...], dict[str, Any]], Found]
"""Returns the entry that serves a call (traced if need be), the call's integers, and its leaves."""


@attrs.frozen
class _Tolerance:
    """The tolerance ``|got - expected| <= absolute + relative * |expected| + scale * greatest
    |expected|``.

    The last term is for other kernels: sums in another order have errors in proportion to the size
    of the terms.
    """

    relative: float
    absolute: float
    scale: float


_TOLERANCES = {
    torch.float64: _Tolerance(1e-7, 1e-7, 1e-9),
    torch.float32: _Tolerance(1.3e-6, 1e-5, 1e-4),
    torch.float16: _Tolerance(1e-3, 1e-5, 1e-2),
    torch.bfloat16: _Tolerance(1.6e-2, 1e-5, 3e-2),
    torch.complex64: _Tolerance(1.3e-6, 1e-5, 1e-4),
    torch.complex128: _Tolerance(1e-7, 1e-7, 1e-9),
}
_LOOSEST = _Tolerance(0.25, 0.25, 0.25)  # floats of 8 bits and less


@attrs.frozen(eq=False)
class Seen:
    """The observable effects of one call.

    Attributes:
        result: the returned value; None if the call raised.
        error: the raised error, or None.
        inputs: the tensors among its arguments, after the call.
        lifted: copies of the tensors outside the arguments that the program writes to, after the
            call, by name.
        generators: the states of random generators after the call, by name.
    """

    result: Any
    error: Exception | None
    inputs: Sequence[torch.Tensor]
    lifted: Mapping[str, torch.Tensor]
    generators: Mapping[str, torch.Tensor]


class Verifier:
    """A wrapper of ``serve`` (``runtime/variables.py``) that verifies a sample of one function's
    calls.

    Args:
        name: the function's name.
        fn: the function.
        rate: the share of the calls that are verified.
        discard: removes an entry that has not agreed.
        find: finds the entry for copies of a call's arguments.
        draws: whether padded programs may draw other random numbers than eager.  Of such an entry
            the graph is compared, run op by op.

    Attributes:
        verified: the number of calls on which eager agreed.
        skipped: the number of sampled calls that cannot be run twice.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        rate: float,
        discard: Callable[[Any], None],
        find: Find,
        *,
        draws: bool = False,
    ) -> None:
        self._draws = draws
        self._name = name
        self._fn = fn
        self._rate = rate
        self._discard = discard
        self._find = find
        self._random = random.Random()  # its own generator: the program's draws must not change
        self.verified = 0
        self.skipped = 0

    def due(self) -> bool:
        """Return whether the next call is to be verified, at random."""
        return self._rate >= 1 or self._random.random() < self._rate

    def serve(
        self,
        entry: Entry,
        run: Run,
        leaves: Sequence[Any],
        values: tuple[int, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the result of a call that this entry serves; of a sampled call eager's, once the
        program has agreed.

        Raises:
            VerificationError: the compiled program has not agreed.
        """
        if not self.due():
            return serve(self._fn, entry, run, leaves, values, args, kwargs)
        if reason := _cannot_run_twice(entry.program, with_leaves(leaves)):
            self.skipped += 1
            events.emit(events.NotVerified(self._name, reason))
            return serve(self._fn, entry, run, leaves, values, args, kwargs)
        copies, spare = copy_call(args, kwargs), copy_call(args, kwargs)
        own = self._draws and entry.runner_name == "padded" and entry.program.graph.uses_randomness
        got = _compiled(entry, _by_graph(entry, self._find) if own else self._find, copies)
        expected = _eager(self._fn, args, kwargs, entry.program)
        found = differences(expected, got)
        # eager caught that error
        if found and not (expected.error is None and entry.refused_data(got.error)):
            self._raise(entry, spare, expected, found)
        self.verified += 1
        if expected.error is not None:
            raise expected.error
        return expected.result

    def _raise(self, entry: Entry, spare: Arguments, expected: Seen, found: list[str]) -> None:
        self._discard(entry)
        cause = _cause(entry, self._find, spare, expected)
        events.emit(events.Mismatch(self._name, entry.number, found[0], cause))
        raise VerificationError(
            f"{self._name}: the result of entry {entry.number} (runner {entry.runner_name}) "
            "differs from eager's.\n"
            f"  first difference: {found[0]}\n"
            + (f"  and {len(found) - 1} more\n" if len(found) > 1 else "")
            + f"  suspected cause: {cause}\n"
            "  The entry was evicted, and the call's side effects are eager's. "
            "Report this to symshape with the function.",
            tuple(found),
            cause,
        ) from expected.error


def _cannot_run_twice(program: Program, leaves: Sequence[Any]) -> str:
    """Return why a call cannot be run a second time on copies; empty if it can."""
    outside = [
        each.variable.name for each in program.writes if not isinstance(each.variable, MemoAnswer)
    ]
    if outside or program.call.has_records or program.given is not None:
        return (
            f"it writes {outside[0]}, outside its arguments"
            if outside
            else "it may write to its arguments' objects"
        )
    written = {id(value) for value in program.graph.mutated}
    for each in program.graph.inputs:
        leaf = leaves[each.position]
        if id(each.value) in written and leaf.requires_grad and not leaf.is_leaf:
            return (
                f"it writes to {each.path}, which is a result of operations that are differentiated"
            )
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
            return f"{each.path} is a {type(leaf).__name__}"
    return ""


# -- two runs of one call --------------------------------------------------------------------------


def _compiled(entry: Entry, find: Find, call: Arguments) -> Seen:
    """Run the compiled program on copies of the arguments; restore buffers and generators."""
    written, generators = _written(entry.program), _generators(entry.program)
    tensors_before = {name: tensor.detach().clone() for name, tensor in written.items()}
    states_before = {name: state_of(generator) for name, generator in generators.items()}
    try:
        served, values, leaves = find(*call)
        return _seen(lambda: served.build(served.run(leaves, values)), call, written, generators)
    finally:
        for name, tensor in written.items():
            # .data: autograd must not see the restoring write
            tensor.data.copy_(tensors_before[name])
        for name, generator in generators.items():
            generator.set_state(states_before[name])


def _eager(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], program: Program
) -> Seen:
    return _seen(
        lambda: fn(*args, **kwargs), (args, kwargs), _written(program), _generators(program)
    )


def _seen(
    run: Callable[[], Any],
    call: Arguments,
    written: Mapping[str, torch.Tensor],
    generators: Mapping[str, torch.Generator],
) -> Seen:
    inputs = [leaf for leaf in pytree.tree_leaves(call) if isinstance(leaf, torch.Tensor)]
    result, error = None, None
    try:
        result = run()
    except Exception as raised:
        error = raised
    return Seen(
        result,
        error,
        inputs,
        {name: tensor.detach().clone() for name, tensor in written.items()},
        {name: state_of(generator) for name, generator in generators.items()},
    )


def _written(program: Program) -> dict[str, torch.Tensor]:
    """Return the tensors outside the arguments that a program writes to, by name."""
    written = {id(value) for value in program.graph.mutated}
    lifted = (
        each for each in program.graph.lifted if not each.constant and id(each.value) in written
    )
    return {each.name: each.tensor for each in lifted}


def _generators(program: Program) -> dict[str, torch.Generator]:
    """Return the generators that a program may draw from, by name: torch's own and those passed to
    its ops.
    """
    found = {"torch's generator": torch.default_generator}
    if torch.cuda.is_initialized():
        found |= {
            f"the generator of cuda:{i}": each
            for i, each in enumerate(torch.cuda.default_generators)
        }
    given = (each for node in program.graph.nodes for each in (*node.args, *node.kwargs.values()))
    for each in given:
        if isinstance(each, torch.Generator):
            found.setdefault(f"generator {each._cdata:x}", each)  # type: ignore[attr-defined]
    return found


def _cause(entry: Entry, find: Find, spare: Arguments, expected: Seen) -> str:
    """Return the likely cause of a difference, found by tracing again and by running the graph op
    by op.
    """
    try:
        fresh, _, _ = find(*spare)
        again = _compiled(fresh, find, copy_call(*spare))
    except Exception as error:
        return f"tracing again fails: {type(error).__name__}: {error}"
    if not differences(expected, again):
        if not differences(expected, _compiled(entry, _by_graph(entry, find), copy_call(*spare))):
            return (
                f"the runner {entry.runner_name}: the same graph, run op by op, agrees with eager"
            )
        return (
            "traced again, the program agrees with eager: something that it reads outside its "
            "arguments has "
            f"changed since the trace, and no guard covers it{_where(entry.program, fresh.program)}"
        )
    if fresh.runner_name != "eager":
        return (
            f"the runner {fresh.runner_name}, or an operator's rule: traced again, the program "
            "still differs"
        )
    if fresh.program.told_compiling:
        return (
            "the function asks torch.compiler.is_compiling(), which is true in a trace, and "
            "computes something else then"
        )
    return (
        "traced again, the program still differs: the function reads something that changes at "
        "every call, or a rule is wrong"
    )


def _by_graph(entry: Entry, find: Find) -> Find:
    """Return a ``find`` whose entry runs the graph of this one op by op, without its runner."""
    plain = Entry(entry.number, entry.program, "eager", EagerRunner(entry.program), entry.build)

    def found(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        _, values, leaves = find(args, kwargs)
        return plain, values, leaves

    return found


def _where(then: Program, now: Program) -> str:
    """Return the user's first line at which two traces of one function differ, as the end of a
    sentence.
    """
    for old, new in zip(then.graph.nodes, now.graph.nodes, strict=False):
        if (
            old.op is not new.op
            or str(old.args) != str(new.args)
            or str(old.kwargs) != str(new.kwargs)
        ):
            return f"; the traces differ first at {new.origin}"
    return ""


# -- comparing -------------------------------------------------------------------------------------


def differences(expected: Seen, got: Seen) -> list[str]:
    """Return the differences between eager's call and the compiled program's, in words, the most
    telling first.
    """
    if expected.error is not None or got.error is not None:
        return _different_errors(expected.error, got.error)
    found = _different_results(expected, got)
    for i, (a, b) in enumerate(zip(expected.inputs, got.inputs, strict=True)):
        found += _different_tensors(f"argument tensor {i} afterwards", a, b, layout=False)
    for name, tensor in expected.lifted.items():
        found += _different_tensors(f"{name} afterwards", tensor, got.lifted[name], layout=False)
    for name, state in expected.generators.items():
        if not torch.equal(state, got.generators[name]):
            found.append(f"{name} is in another state afterwards")
    return found


def _different_errors(expected: Exception | None, got: Exception | None) -> list[str]:
    if expected is not None and got is not None:
        return []  # both refuse; eager's words are the user's
    if expected is not None:
        return [
            f"eager raises {type(expected).__name__} ({expected}), the compiled program does not"
        ]
    return [f"the compiled program raises {type(got).__name__} ({got}), eager does not"]


def _different_results(expected: Seen, got: Seen) -> list[str]:
    ours, tree = flat_with_paths(got.result)
    theirs, wanted = flat_with_paths(expected.result)
    if tree != wanted:
        return [
            (
                f"the result is {nesting_text(wanted)}, but the compiled program's is "
                f"{nesting_text(tree)}"
            )
        ]
    found: list[str] = []
    naming = Naming()
    for (path, a), (_, b) in zip(theirs, ours, strict=True):
        found += _different_leaves(naming.path("result", path), a, b)
    leaves_a, leaves_b = [a for _, a in theirs], [b for _, b in ours]
    for (path, _), a, b in zip(
        theirs, _aliases(leaves_a, expected.inputs), _aliases(leaves_b, got.inputs), strict=True
    ):
        if a != b:
            found.append(
                f"{naming.path('result', path)} {a or 'shares no memory'}, but the compiled "
                f"program's {b or 'none'}"
            )
    return found


def _aliases(leaves: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Iterator[str]:
    """Yield for each result which argument it is, and which arguments and earlier results it shares
    memory with.
    """
    named = [(f"argument tensor {i}", tensor) for i, tensor in enumerate(inputs)]
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            yield ""
            continue
        same = [name for name, other in named if other is leaf]
        shared = [name for name, other in named if other is not leaf and _share(other, leaf)]
        named.append((f"result {i}", leaf))
        yield "; ".join(
            [
                *(f"is {name}" for name in same[:1]),
                *([f"shares memory with {', '.join(shared)}"] if shared else []),
            ]
        )


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (
        a.layout is not torch.strided
        or b.layout is not torch.strided
        or not a.numel()
        or not b.numel()
    ):
        return False
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _different_leaves(name: str, expected: Any, got: Any) -> list[str]:
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        return _different_tensors(name, expected, got, layout=True)
    if type(expected) is not type(got):
        return [f"{name}: expected a {type(expected).__name__}, got a {type(got).__name__}"]
    if isinstance(expected, float):
        return (
            []
            if repr(expected) == repr(got)
            else [f"{name}: expected {brief(expected)}, got {brief(got)}"]
        )
    try:
        equal = expected is got or bool(expected == got)
    except Exception:
        equal = False  # objects that cannot be compared are equal only if identical
    return [] if equal else [f"{name}: expected {brief(expected)}, got {brief(got)}"]


def _different_tensors(
    name: str, expected: torch.Tensor, got: torch.Tensor, *, layout: bool
) -> list[str]:
    for what in ("shape", "dtype", "device", "layout", "requires_grad"):
        a, b = getattr(expected, what), getattr(got, what)
        if a != b:
            return [f"{name}: expected {what} {_shown(a)}, got {_shown(b)}"]
    if layout and expected.layout is torch.strided:
        stepped = (
            [d for d, size in enumerate(expected.shape) if size > 1] if expected.numel() else []
        )
        a, b = [expected.stride(d) for d in stepped], [got.stride(d) for d in stepped]
        if a != b:
            return [
                f"{name}: expected strides {tuple(expected.stride())}, got {tuple(got.stride())}"
            ]
    # meta tensors have no values
    return [] if expected.is_meta else _different_values(name, expected, got)


def _shown(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def _different_values(name: str, expected: torch.Tensor, got: torch.Tensor) -> list[str]:
    """Return the differences of values beyond their dtype's tolerance; NaN equals NaN.

    Shapes, dtypes and layouts are equal.
    """
    with torch.no_grad():
        a, b = expected.detach(), got.detach()
        if a.layout is not torch.strided:
            a, b = a.to_dense(), b.to_dense()
        a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
        if not a.dtype.is_floating_point and not a.dtype.is_complex:
            wrong = a != b
        else:
            limit = _TOLERANCES.get(a.dtype, _LOOSEST)
            wide = torch.complex128 if a.dtype.is_complex else torch.float64
            x, y = a.to(wide), b.to(wide)
            magnitude = x.abs()
            finite = magnitude[magnitude.isfinite()]
            greatest = float(finite.max()) if finite.numel() else 0.0
            near = (
                x - y
            ).abs() <= limit.absolute + limit.relative * magnitude + limit.scale * greatest
            wrong = ~(near | (x == y) | (x.isnan() & y.isnan()))
        number = int(wrong.sum())
        if not number:
            return []
        place = tuple(wrong.nonzero()[0].tolist())
        return [
            f"{name}: {number:,} of {a.numel():,} elements differ, first at {place}: "
            f"expected {a[place].item()}, got {b[place].item()}"
        ]


# -- copies of a call's arguments, so that a second run cannot touch what the call writes to -------


def copy_call(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy a call's arguments: tensors get memory of their own, with their layout and the memory
    that they share.

    Other leaves are passed unchanged; containers are made anew. A copy is a leaf for autograd.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in tensors:
            key = leaf.untyped_storage()._cdata
            if key not in storages:
                storages[key] = leaf.untyped_storage().clone()
            tensors[id(leaf)] = _on(storages[key], leaf)
        return tensors[id(leaf)]

    return pytree.tree_map(copy, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


def _on(storage: torch.UntypedStorage, original: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``original`` on another storage, with its Python attributes."""
    fresh = torch.empty(0, dtype=original.dtype, device=original.device)
    with torch.no_grad():
        fresh.set_(storage, original.storage_offset(), original.size(), original.stride())
    if original.is_conj():
        fresh = fresh.conj()
    if original.is_neg():
        fresh = fresh._neg_view()
    if type(original) is torch.nn.Parameter:
        fresh = torch.nn.Parameter(fresh, original.requires_grad)
    else:
        fresh.requires_grad_(original.requires_grad)
    fresh.__dict__.update(original.__dict__)
    return fresh
