"""Fast calls: the quickest Python calls with the effect of a graph's operators, for generated code.

A trace holds the decomposition of torch's functions: ``linear`` of three dimensions is a
transposition, a view, a product and another view. Each call from Python takes a microsecond. So
such steps become one call again, if nothing else reads the values between them, and if torch
certainly does the same in that call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

import meta_fns
from meta_fns.torch_internals import OpOverload
from symshape.graph.loop_rolling import RolledLoop
from symshape.graph.steps import Node, Step, Value
from symshape.torch_internals import operators

_aten = torch.ops.aten
_T, _VIEW = _aten.t.default, _aten.view.default
_MM, _ADDMM = _aten.mm.default, _aten.addmm.default
BINDINGS: dict[Any, Callable[..., Any]] = {
    _aten.add.Tensor: torch.add,
    _aten.sub.Tensor: torch.sub,
    _aten.mul.Tensor: torch.mul,
    _aten.div.Tensor: torch.div,
    _aten.neg.default: torch.neg,
    _aten.mm.default: torch.mm,
    _aten.bmm.default: torch.bmm,
    _aten.addmm.default: torch.addmm,
    _aten.t.default: torch.t,
    _aten.transpose.int: torch.transpose,
    _aten.permute.default: torch.permute,
    _aten.view.default: torch.Tensor.view,
    _aten.expand.default: torch.Tensor.expand,
    _aten.unsqueeze.default: torch.unsqueeze,
    _aten.relu.default: torch.relu,
    _aten.tanh.default: torch.tanh,
    _aten.rsqrt.default: torch.rsqrt,
    _aten.sin.default: torch.sin,
    _aten.cos.default: torch.cos,
    _aten.embedding.default: torch.embedding,
    _aten.cat.default: torch.cat,
    _aten.clone.default: torch.clone,
    _aten.select.int: torch.select,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.mean.dim: torch.mean,
    _aten.silu.default: operators.nn.silu,
    _aten.gelu.default: operators.nn.gelu,
    _aten._softmax.default: operators.softmax,
    _aten.native_layer_norm.default: torch.native_layer_norm,
    _aten.native_batch_norm.default: torch.native_batch_norm,
    _aten.convolution.default: torch.convolution,
    _aten.var.correction: torch.var,
    _aten.std.correction: torch.std,
    _aten.var_mean.correction: torch.var_mean,
    _aten.std_mean.correction: torch.std_mean,
    _aten.where.self: torch.where,
    _aten.copy_.default: torch.Tensor.copy_,
}
"""Overloads whose Python binding does the same with less overhead than the overload object (0.3 to
3 µs a call).

A warning of an op reaches Python's ``warnings`` through a binding.  Without one it reaches the
standard error stream only, outside of the blocks of :class:`Telling`: so the bindings of ops that
may warn stand here too.
"""
# hashing an overload runs Python code
_BOUND = {id(op): (op, binding) for op, binding in BINDINGS.items()}
_FORMS = (
    (_T, _VIEW, _MM, _aten._unsafe_view.default),
    (_VIEW, _T, _ADDMM, _VIEW if operators.LINEAR_IS_A_VIEW else _aten._unsafe_view.default),
    (_T, _ADDMM),
    (_T, _MM),
)
"""The decompositions of ``linear``, with and without folded sizes of its argument, without and with
a bias.
"""
_DEVICES = ("cpu", "cuda")  # others have a kernel of their own for it
_INDEX = _aten.index.Tensor
_UNPACKED = (_VIEW, _aten.expand.default)
linear = operators.nn.linear
_MOST_CHECKED = 1024  # sizes of one call of an op


@attrs.frozen(eq=False)
class FastCall:
    """One call with the effect of one or several steps.

    Attributes:
        function: what is called.
        given: its arguments by position.
        output: its result.
        length: the number of the steps.
        inner: what lies between them, which nobody else reads.
    """

    function: Callable[..., Any]
    given: Sequence[Any]
    output: Value
    length: int = 1
    inner: Sequence[Value] = ()


def fast_calls(
    steps: Sequence[Step], last_use: Mapping[Value, int], laps: RolledLoop | None
) -> dict[int, FastCall]:
    """Return fast calls for steps of a graph, by the first step; in a loop those that are right in
    every iteration.

    Args:
        steps: of a graph.
        last_use: the step after which nobody reads a value; not of those that leave the graph.
        laps: the loop, which is written once.
    """
    found: dict[int, FastCall] = {}
    if laps is None:
        return dict(_spelled(steps, 0, len(steps), last_use))
    found.update(_spelled(steps, 0, laps.start, last_use))
    found.update(_spelled(steps, laps.end, len(steps), last_use))
    starts = range(laps.start, laps.end, laps.length)
    each_lap = [dict(_spelled(steps, start, start + laps.length, last_use)) for start in starts]
    for position, spelling in each_lap[0].items():
        others = (
            lap.get(position + start - laps.start)
            for lap, start in zip(each_lap, starts, strict=True)
        )
        if all(other is not None and _alike(spelling, other) for other in others):
            found[position] = spelling
    return found


def _spelled(
    steps: Sequence[Step], begin: int, end: int, last_use: Mapping[Value, int]
) -> Iterator[tuple[int, FastCall]]:
    position = begin
    while position < end:
        step = steps[position]
        found = (
            _linear_at(steps, position, end, last_use) or _respelled(step)
            if isinstance(step, Node)
            else None
        )
        if found is not None:
            yield position, found
        position += 1 if found is None else found.length


def _alike(one: FastCall, other: FastCall) -> bool:
    """Return whether two calls are the same except for their tensors."""
    same = (
        one.function is other.function
        and one.length == other.length
        and len(one.given) == len(other.given)
    )
    pairs = zip(one.given, other.given, strict=False)
    return same and all(
        a is b or (type(a) is type(b) and (type(a) is Value or (type(a) is int and a == b)))
        for a, b in pairs
    )


def _linear_at(
    steps: Sequence[Step], begin: int, end: int, last_use: Mapping[Value, int]
) -> FastCall | None:
    """Return the call of ``linear`` that the steps from ``begin`` on amount to, if they do and end
    before ``end``.
    """
    first = steps[begin]
    if not isinstance(first, Node) or (first.op is not _T and first.op is not _VIEW):
        return None
    for form in _FORMS:
        nodes = [
            each for each in steps[begin : min(begin + len(form), end)] if isinstance(each, Node)
        ]
        if len(nodes) == len(form) and all(
            node.op is op for node, op in zip(nodes, form, strict=True)
        ):
            found = _linear(nodes)
            if found is not None and all(
                last_use.get(each, end) < begin + len(form) for each in found.inner
            ):
                return found
    return None


def _linear(nodes: Sequence[Node]) -> FastCall | None:
    modes = nodes[0].grad, nodes[0].inference
    if any(
        each.kwargs or each.outputs[0] is None or (each.grad, each.inference) != modes
        for each in nodes
    ):
        return None
    turned = next(each for each in nodes if each.op is _T)
    folded = next((each for each in nodes[:2] if each.op is _VIEW), None)
    product = nodes[-1] if folded is None else nodes[-2]
    *bias, left, right = product.args
    weight, x = turned.args[0], left if folded is None else folded.args[0]
    inner = [each for node in nodes[:-1] for each in node.outputs if each is not None]
    given, output = [x, weight, *bias], nodes[-1].outputs[0]
    if right is not turned.outputs[0] or any(
        type(each) is not Value or each in inner for each in given
    ):
        return None
    if output is None or weight.spec.dim != 2 or any(each.spec.dim != 1 for each in bias):
        return None
    if any(
        each.spec.device.type not in _DEVICES or each.spec.layout is not torch.strided
        for each in given
    ):
        return None
    if folded is None:
        fits = x.spec.dim == 2
    else:
        through = left is folded.outputs[0] and nodes[-1].args[0] is product.outputs[0]
        fits = through and _folds(x, weight, left, output, bool(bias))
    return FastCall(linear, given, output, len(nodes), inner) if fits else None


def _folds(x: Value, weight: Value, left: Value, output: Value, has_bias: bool) -> bool:
    """Return whether ``linear`` is certain to fold ``x`` to ``left``, by the layout and the sizes
    of ``x``.
    """
    last = x.spec.sizes[-1] if x.spec.dim else 0
    if x.spec.dim < 3 or (has_bias and x.spec.dim > 3) or not x.spec.canonical():
        return False
    if type(last) is not int or last < 1 or left.spec.dim != 2 or left.spec.sizes[1] != last:
        return False
    return _same(output.spec.sizes, (*x.spec.sizes[:-1], weight.spec.sizes[0]))


def _same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether sizes are the same terms; asks nothing."""
    terms = [[getattr(each, "term", each) for each in some] for some in (sizes, others)]
    if len(sizes) != len(others):
        return False
    return all(
        a is b or (type(a) is type(b) is int and a == b) for a, b in zip(*terms, strict=True)
    )


def fast_callable(op: Any) -> Callable[..., Any]:
    """Return the quickest callable with the effect of an op: a Python binding, or the op itself."""
    found = _BOUND.get(id(op))
    if found is not None:
        return found[1]
    return _telling(op) if type(op) is OpOverload else op


class Telling:
    """The switch by which warnings of ops without a binding reach Python's ``warnings``.

    Attributes:
        blocks: how many blocks ask for it.
    """

    blocks = 0


def _telling(op: Any) -> Callable[..., Any]:
    """Return a function that does the same as an op, and tells Python's ``warnings`` of its
    warnings where a block asks for it.
    """
    plain = op._op

    def call(*args: Any, **kwargs: Any) -> Any:
        if Telling.blocks:
            return operators.telling_warnings(plain, args, kwargs)
        return plain(*args, **kwargs)

    return call


def within_memory(op: Any) -> Callable[..., Any]:
    """Return a function that does the same as an op, and raises where a call would leave the memory
    of its arguments.

    Raises (when called):
        ShapeError: see ``meta_fns.check_memory``.
    """
    known: set[Hashable] = set()  # sizes and other arguments that were checked
    each_time = meta_fns.checks_data(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        key = tuple(map(_sizes_of, (*args, *kwargs.values())))
        if each_time or key not in known:
            meta_fns.check_memory(op, args, kwargs)
            if len(known) >= _MOST_CHECKED:
                known.clear()
            known.add(key)
        return op(*args, **kwargs)

    return call


def _sizes_of(arg: Any) -> Hashable:
    if isinstance(arg, torch.Tensor):
        return arg.shape
    return tuple(map(_sizes_of, arg)) if isinstance(arg, (list, tuple)) else arg


def indexed(tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return ``aten.index`` of a tensor by Python's own way of indexing, which tells warnings of
    masks of bytes.
    """
    return tensor[tuple([slice(None) if each is None else each for each in indices])]


def warns_of_bytes(node: Node) -> bool:
    """Return whether a node indexes with a mask of bytes, of which torch warns."""
    return node.op is _INDEX and any(each.spec.dtype is torch.uint8 for each in node.reads[1:])


def unpacked(node: Node) -> Sequence[Any]:
    """Return the arguments of a node by position, with sizes one by one where that is quicker."""
    args = node.args
    if node.op in _UNPACKED and len(args) == 2 and args[1] and not node.kwargs:
        return (args[0], *args[1])
    return args


def _respelled(node: Node) -> FastCall | None:
    """Return a quicker call for a step; None if there is none."""
    given = node.args[0] if node.args else None
    if (
        type(given) is not Value
        or not node.outputs
        or node.outputs[0] is None
        or node.bindings
        or node.untracked
    ):
        return None
    if given.spec.layout is not torch.strided:
        return None
    if node.op is _aten._to_copy.default:
        return _converted(node, given, node.outputs[0])
    return _narrowed(node, given, node.outputs[0]) if node.op is _aten.slice.Tensor else None


def _converted(node: Node, given: Value, output: Value) -> FastCall | None:
    """Return a call of ``to`` that copies to another dtype."""
    dtype = node.kwargs.get("dtype")
    plain = len(node.args) == 1 and len(node.kwargs) == 1 and isinstance(dtype, torch.dtype)
    return (
        FastCall(torch.Tensor.to, (given, dtype), output)
        if plain and dtype is not given.spec.dtype
        else None
    )


def _narrowed(node: Node, given: Value, output: Value) -> FastCall | None:
    """Return a call of ``narrow``, if a slice has a known length and so is not cut short."""
    left_out: Sequence[Any] = (0, None, None, 1)[len(node.args) - 1 :]
    dim, start, _, step = (*node.args[1:], *left_out)
    start = 0 if start is None else start
    if (
        node.kwargs
        or type(dim) is not int
        or type(start) is not int
        or start < 0
        or type(step) is not int
        or step != 1
    ):
        return None
    length = output.spec.sizes[dim]
    told = type(length) is int and length > 0
    return FastCall(torch.narrow, (given, dim, start, length), output) if told else None
