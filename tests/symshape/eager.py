"""Eager torch as the oracle of symshape: one call, and all of it that must be the same when a graph
serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.utils import _pytree as pytree

import symshape
from guards.terms import fold
from meta_fns import TensorSpec
from symshape import GuardViolation, RuntimeAssertionError, Traced
from symshape.calls.arguments import flatten_call, values_of
from symshape.calls.generator_states import state_of
from symshape.graph.float_terms import FloatTerm
from symshape.graph.steps import Assertion, Node, Value, map_argument
from symshape.runtime.verify import copy_call
from symshape.tracing.symbolic.nodes.int_node import IntNode

EXPECTED_REFUSALS = (
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    ZeroDivisionError,
    NotImplementedError,
)


@attrs.frozen
class Seen:
    """What one call left to be seen: results, aliasing, mutation, the random state.  ``==``
    compares bit by bit.
    """

    tree: pytree.TreeSpec
    leaves: tuple[Any, ...]
    identities: tuple[int, ...]  # for each output, the input that it is, or -1
    # for each output, the inputs and outputs whose storage it shares
    sharing: tuple[frozenset[str], ...]
    inputs: tuple[Any, ...]  # the inputs afterwards
    random: Any


def metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Dtype, device, sizes, strides (an empty tensor's say nothing), offset, and its part in
    gradients.
    """
    strides = tuple(tensor.stride()) if tensor.numel() else ()
    gradient = tensor.requires_grad, tensor.grad_fn is None
    return (
        tensor.dtype,
        tensor.device,
        tuple(tensor.shape),
        strides,
        tensor.storage_offset(),
        gradient,
    )


def bits(tensor: torch.Tensor) -> bytes:
    """The elements, NaNs, signs of zeros and all."""
    plain = (
        tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    )
    return plain.view(-1).view(torch.uint8).cpu().numpy().tobytes() if plain.numel() else b""


def leaf_seen(leaf: Any) -> Any:
    """One result for comparison."""
    if isinstance(leaf, torch.Tensor):
        return metadata(leaf), bits(leaf)
    if isinstance(leaf, float):
        return float, repr(leaf)
    return type(leaf), leaf


def call_seen(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], seed: int = 0
) -> Seen:
    """Calls ``fn`` (with the random generator seeded) and looks at everything."""
    torch.manual_seed(seed)
    before = [
        leaf
        for leaf in pytree.tree_leaves((tuple(args), dict(kwargs)))
        if isinstance(leaf, torch.Tensor)
    ]
    result = fn(*args, **kwargs)
    leaves, tree = pytree.tree_flatten(result)
    named = [(f"input {i}", t) for i, t in enumerate(before)]
    named += [(f"output {i}", t) for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)]
    sharing = tuple(
        frozenset(name for name, other in named if shares(leaf, other))
        if isinstance(leaf, torch.Tensor)
        else frozenset()
        for leaf in leaves
    )
    identities = tuple(next((i for i, t in enumerate(before) if t is leaf), -1) for leaf in leaves)
    return Seen(
        tree,
        tuple(leaf_seen(leaf) for leaf in leaves),
        identities,
        sharing,
        tuple(leaf_seen(leaf) for leaf in before),
        bytes(state_of(torch.default_generator).tolist()),
    )


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are views of one memory (an empty one has none)."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def outcome(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Seen | Exception:
    """What a call on copies of these arguments shows, or what it raises."""
    args, kwargs = copy_call(args, kwargs)
    try:
        return call_seen(fn, args, kwargs)
    except EXPECTED_REFUSALS as error:
        return error


def differences(expected: Seen, got: Seen) -> list[str]:
    """What differs, in words."""
    found = [
        f"{field.name}: expected {getattr(expected, field.name)}, got {getattr(got, field.name)}"
        for field in attrs.fields(Seen)
        if field.name not in ("leaves", "inputs", "random")
        and getattr(expected, field.name) != getattr(got, field.name)
    ]
    for kind in ("leaves", "inputs"):
        for i, (a, b) in enumerate(zip(getattr(expected, kind), getattr(got, kind), strict=False)):
            if a != b:
                found.append(f"{kind}[{i}]: expected {_short(a)}, got {_short(b)}")
    if expected.random != got.random:
        found.append("the random generator is in another state")
    return found


def _short(leaf: Any) -> str:
    (head, tail) = leaf
    return f"{head} {tail[:64]!r}" if isinstance(tail, bytes) else f"{head} {tail!r}"


def assert_same(
    fn: Callable[..., Any], traced: Callable[..., Any], *args: Any, **kwargs: Any
) -> None:
    """``traced`` does what ``fn`` does: the same results, aliasing, mutation, random numbers; and
    each spec is true.
    """
    expected = outcome(fn, args, kwargs)
    if isinstance(expected, Exception):
        raise AssertionError(f"eager refuses this call: {expected}") from expected
    new_args, new_kwargs = copy_call(args, kwargs)
    got = call_seen(traced, new_args, new_kwargs)
    found = differences(expected, got)
    assert not found, f"for {shapes(args, kwargs)}:\n" + "\n".join(found)
    if isinstance(traced, Traced):
        wrong = wrong_specs(traced, *args, **kwargs)
        assert not wrong, f"for {shapes(args, kwargs)}:\n" + "\n".join(wrong)


def check_or_same(fn: Callable[..., Any], traced: Traced, *args: Any, **kwargs: Any) -> str:
    """The law of soundness: the guards turn the call away, or the graph does just what eager does,
    refusals too.

    Answers ``"refused"``, ``"equal"``, ``"equal error"``, or ``"asserted"`` where eager runs and an
    assertion on data (that a size of unknown value is not broadcast, say) stops the graph.
    """
    if not traced.check(*args, **kwargs):
        assert traced.explain(*args, **kwargs), "a refused call has no explanation"
        try:
            traced(*copy_call(args, kwargs)[0], **copy_call(args, kwargs)[1])
        except GuardViolation:
            return "refused"
        raise AssertionError("check() is False, but the call ran")
    assert not traced.explain(*args, **kwargs), "an admitted call has an explanation"
    expected = outcome(fn, args, kwargs)
    got = outcome(traced, args, kwargs)
    where = f"for {shapes(args, kwargs)} under {traced.guards.text() or 'no guards'}"
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), f"{where}: eager refuses ({expected}), the graph ran"
        return "equal error"
    if isinstance(got, RuntimeAssertionError):
        return "asserted"
    if isinstance(got, Exception):
        raise AssertionError(
            f"{where}: eager runs, the graph raises {type(got).__name__}: {got}"
        ) from got
    found = differences(expected, got) + wrong_specs(traced, *args, **kwargs)
    assert not found, f"{where}:\n" + "\n".join(found)
    return "equal"


def agree(
    fn: Callable[..., Any], *calls: Sequence[Any], dynamic: Any = None, **kwargs: Any
) -> tuple[Traced, list[str]]:
    """Traces the first call and holds all of them to :func:`check_or_same`; its own example must be
    served.
    """
    args, own = copy_call(calls[0], kwargs)
    traced = symshape.trace(fn, *args, dynamic=dynamic, **own)
    seen = [check_or_same(fn, traced, *call, **kwargs) for call in calls]
    assert seen[0] == "equal", (
        f"the example itself is {seen[0]}: {traced.explain(*calls[0], **kwargs)}"
    )
    return traced, seen


def shapes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The arguments for messages."""

    def text(leaf: Any) -> str:
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)
        layout = (
            ""
            if leaf.is_contiguous() and not leaf.storage_offset()
            else f"@{leaf.stride()}+{leaf.storage_offset()}"
        )
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{layout}"

    return ", ".join(text(leaf) for leaf in pytree.tree_leaves((tuple(args), dict(kwargs))))


def wrong_specs(traced: Traced, *args: Any, **kwargs: Any) -> list[str]:
    """Runs the graph step by step on copies of these arguments and compares every value with its
    spec.
    """
    args, kwargs = copy_call(args, kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    program = traced.program
    symbols: dict[str, Any] = {}
    taken = flatten_call(traced._fn, args, kwargs)
    for slot, value in zip(program.slots, values_of(taken.leaves, taken.keys), strict=True):
        if slot.term.op.name == "SYMBOL":
            symbols.setdefault(slot.term.name, value)
    values: dict[Value, Any] = {each.value: leaves[each.position] for each in program.graph.inputs}
    lifted, _ = copy_call([each.tensor for each in program.graph.lifted], {})
    values |= {
        each.value: tensor for each, tensor in zip(program.graph.lifted, lifted, strict=True)
    }
    found: list[str] = []
    for each in program.graph.inputs:
        found += _spec_difference(
            f"input {each.path}", each.value.spec, values[each.value], symbols
        )

    def real(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return values[leaf]
        return (
            leaf.evaluate(symbols, symbols)
            if isinstance(leaf, FloatTerm)
            else fold.evaluate(leaf, symbols)
        )

    if any(node.op is torch.ops.aten.reshape.default for node in program.graph.nodes):
        return []  # what lies in memory how is left to the run then
    torch.manual_seed(0)
    with torch.autocast("cpu", enabled=False):  # its casts are in the graph
        for step in program.graph.steps:
            if not isinstance(step, Assertion):
                _run_step(step, real, values, symbols, found)
    return found


def _run_step(
    step: Node,
    real: Callable[[Any], Any],
    values: dict[Value, Any],
    symbols: dict[str, Any],
    found: list[str],
) -> None:
    with torch.set_grad_enabled(step.grad if step.grad is not None else torch.is_grad_enabled()):
        result = step.op(
            *(map_argument(arg, real) for arg in step.args),
            **{name: map_argument(arg, real) for name, arg in step.kwargs.items()},
        )
    results = [result] if step.single else list(result)
    for binding in step.bindings:
        made = results[binding.output]
        symbols[binding.symbol] = (
            made.size(binding.dim)
            if binding.kind == "size"
            else (int(made) if binding.kind == "bool" else made)
        )
    for output, made in zip(step.outputs, results, strict=False):
        if output is not None:
            values[output] = made
            found += _spec_difference(
                f"{output} = {step.op} at {step.origin}", output.spec, made, symbols
            )


def _spec_difference(
    name: str, spec: TensorSpec, tensor: torch.Tensor, symbols: Mapping[str, Any]
) -> list[str]:
    def number(size: Any) -> Any:
        return fold.evaluate(size.term, symbols) if isinstance(size, IntNode) else size

    sizes = tuple(number(size) for size in spec.sizes)
    expected: tuple[Any, ...] = (spec.dtype, spec.device, sizes)
    real: tuple[Any, ...] = (tensor.dtype, tensor.device, tuple(tensor.shape))
    # an empty tensor is nowhere, and a dimension of size 1 is never stepped over
    if tensor.numel():
        stepped = [d for d, size in enumerate(tensor.shape) if size > 1]
        expected += (number(spec.storage_offset), tuple(number(spec.strides[d]) for d in stepped))
        real += (tensor.storage_offset(), tuple(tensor.stride(d) for d in stepped))
    return [] if expected == real else [f"the spec of {name} says {expected}, but it is {real}"]


def symbolic_sizes(traced: Traced, path: str) -> tuple[str, ...]:
    """The sizes of an argument in the traced program, as text."""
    found = next(each for each in traced.graph.inputs if each.path == path)
    return tuple(str(size) for size in found.value.spec.sizes)
