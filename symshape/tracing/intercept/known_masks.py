"""Attention masks whose content is known from how the program made them: all true, or causal.

In eager, libraries look at a mask's values and leave such masks out; where ``torch.compiler``
traces they make them. On CUDA, attention with a mask runs slower kernels, and a mask whose last
dimension is not dense leaves only the slowest. On the CPU one kernel serves both cases, so the
program stays unchanged there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from meta_fns.torch_internals import OpOverload
from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Value, written_values
from symshape.torch_internals import operators
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

__all__ = ["ATTENTION", "KnownMasks"]

ATTENTION: Any = operators.nn.scaled_dot_product_attention
KERNELS_DIFFER_ON = frozenset({"cuda"})
"""The types of devices on which masks are left out."""
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class KnownMasks:
    """The attention masks of one trace.

    Args:
        trace: the trace, which grows.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._positions = Positions(trace)

    def left_out(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any], Any]:
        """Return the arguments of ``scaled_dot_product_attention`` without a mask whose content is
        known.
        """
        if len(args) > len(_NAMES):
            return args, kwargs
        named = {**dict(zip(_NAMES, args, strict=False)), **(kwargs or {})}
        mask = named.get("attn_mask")
        if (
            type(mask) is not SymbolicTensor
            or mask._tracer is not self._trace
            or mask._spec.dtype is not torch.bool
        ):
            return args, kwargs
        if mask._spec.device.type not in KERNELS_DIFFER_ON:
            return args, kwargs
        rows_and_columns = self._fitting(mask, named)
        if named.get("is_causal", False) is not False or rows_and_columns is None:
            return args, kwargs
        held = self._positions.truth(mask._value)
        causal = type(held) is Band and self._is_causal(held, *rows_and_columns)
        if held is not True and not causal:
            return args, kwargs
        named["attn_mask"] = None
        if causal:
            named["is_causal"] = True
        return tuple(named.pop(name) for name in _NAMES[:3]), named

    def _fitting(self, mask: SymbolicTensor, named: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Return the lengths of queries and keys if the mask fits and does not broaden the result;
        else None.
        """
        query, key = named.get("query"), named.get("key")
        if (
            type(query) is not SymbolicTensor
            or type(key) is not SymbolicTensor
            or "value" not in named
        ):
            return None
        rows, columns, sizes = query._spec.sizes, key._spec.sizes, mask._spec.sizes
        if len(rows) < 2 or len(rows) != len(columns) or not 2 <= len(sizes) <= len(rows):
            return None
        equal = self._positions.equal
        pairs = zip(reversed(sizes), reversed((*rows[:-1], columns[-2])), strict=False)
        fits = all(equal(size, 1) or equal(size, whole) for size, whole in pairs)
        return (rows[-2], columns[-2]) if fits else None

    def _is_causal(self, band: Band, rows: Any, columns: Any) -> bool:
        """Return whether the band is the causal mask: a key comes no later than its query, and
        lengths are equal.
        """
        equal, steps = self._positions.equal, band.of.steps
        return (
            steps == (*[0] * (len(steps) - 2), 1, -1)
            and equal(band.of.start, 0)
            and equal(rows, columns)
        )


# -- The contents of integer tensors made from positions: linear functions of the index, and
# comparisons of them.
#
# ``torch.arange(n)`` holds ``i``; its difference from a transposed one holds ``i - j``. Contents
# are proven from the ops that made a tensor and from the facts of the trace. A tensor that was
# written in place, or made by another op, has unknown contents.
aten = torch.ops.aten
_DEEPEST = 64  # ops
_COUNTED = 2**53
"""An upper bound for the number of elements of a tensor that fits in memory."""
_WRAPS = 2**63
_ZERO = arithmetic.const(0)
_SAME = frozenset((aten.clone.default, aten.detach.default, aten.alias.default))
_VIEWED = frozenset(
    (
        *(
            aten.view.default,
            aten._unsafe_view.default,
            aten._reshape_alias.default,
            aten.unsqueeze.default,
        ),
        *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
    )
)
_FILLED: Mapping[OpOverload, int] = {
    getattr(aten, name).default: number
    for number, names in enumerate(("zeros new_zeros zeros_like", "ones new_ones ones_like"))
    for name in names.split()
}
_FULL: Mapping[OpOverload, int] = {
    aten.full.default: 1,
    aten.new_full.default: 2,
    aten.full_like.default: 1,
}
"""The position of the fill value among the arguments of each op."""
_ALL = frozenset((aten.logical_and.default, aten.bitwise_and.Tensor))
_ANY = frozenset((aten.logical_or.default, aten.bitwise_or.Tensor))
_NOT = frozenset((aten.logical_not.default, aten.bitwise_not.default))
_COMPARED: Mapping[OpOverload, str] = {
    getattr(getattr(aten, name), overload): name
    for name in ("ge", "gt", "le", "lt", "eq", "ne")
    for overload in ("Scalar", "Tensor")
}


@attrs.frozen
class Linear:
    """The linear content of a tensor: the element at (i, j, ...) is ``start + i * steps[0] + j *
    steps[1] + ...``.

    ``bound``: an upper bound for the absolute value of all elements at all sizes; None where no
    bound is known.
    """

    start: Term
    steps: tuple[int, ...]
    bound: int | None


@attrs.frozen
class Band:
    """The content of a bool tensor that is true where a linear function of the index is not
    negative.
    """

    of: Linear


class _Unknown(Exception):
    """The content of a tensor is not known."""


def term_of(size: Any) -> Term:
    """Return a size or an argument as a term."""
    if type(size) is IntNode:
        return size.term
    return size if type(size) is Term else arithmetic.const(size)


class Positions:
    """The known contents of the tensors of one trace.

    Args:
        trace: the trace, which grows.
    """

    def __init__(self, trace: Trace) -> None:
        self._holds = trace.env.known
        self._new = StepCursor(trace.steps)
        self._makers: dict[Value, Node] = {}
        self._written: set[object] = set()
        self._answers: dict[Value, bool | Band | None] = {}

    def truth(self, value: Value) -> bool | Band | None:
        """Return a bool tensor's content: true everywhere, false everywhere, or a band; None if not
        known.

        The answer is computed once for each tensor: later writes to its operands do not change the
        content.
        """
        for node in self._new.nodes():
            self._makers.update((output, node) for output in node.outputs if output is not None)
            self._written.update(written.storage for written in written_values(node))
        if value not in self._answers:
            try:
                found = _Question(self._holds, self._makers, self._written).truth(value, _DEEPEST)
            except _Unknown:
                found = None
            self._answers[value] = found
        return None if value.storage in self._written else self._answers[value]

    def equal(self, a: Any, b: Any) -> bool:
        """Return whether two sizes are proven equal."""
        return self._holds(boolean.eq(term_of(a), term_of(b)))


class _Question:
    """One walk back through the graph; each method raises ``_Unknown`` where the content is not
    known.
    """

    def __init__(
        self, holds: Callable[[Term], bool], makers: Mapping[Value, Node], written: set[object]
    ) -> None:
        self._holds = holds
        self._makers = makers
        self._written = written
        self._linear: dict[Value, Linear] = {}

    def _maker(self, value: Any, dtype: torch.dtype, depth: int) -> Node:
        if (
            type(value) is not Value
            or value.spec.dtype is not dtype
            or not depth
            or value.storage in self._written
        ):
            raise _Unknown
        node = self._makers.get(value)
        if node is None:
            raise _Unknown
        return node

    def _equal(self, a: Any, b: Any) -> bool:
        return self._holds(boolean.eq(term_of(a), term_of(b)))

    # -- bools
    def truth(self, value: Any, depth: int) -> bool | Band:
        """Return the content of a bool tensor."""
        node = self._maker(value, torch.bool, depth)
        op, args = node.op, node.args
        if op in _FILLED or op in _FULL:
            filled = _FILLED[op] if op in _FILLED else args[_FULL[op]]
            if type(filled) not in (bool, int):
                raise _Unknown
            return bool(filled)
        if op in _COMPARED and not node.kwargs:
            return self._compared(_COMPARED[op], node, depth)
        if op in _ALL or op in _ANY:
            return self._joined(op in _ANY, node, depth)
        if not args:
            raise _Unknown
        found = self.truth(args[0], depth - 1)
        if op in _NOT:
            return Band(_less_one(_negated(found.of))) if isinstance(found, Band) else not found
        if isinstance(found, Band):
            return Band(self._moved(node, found.of))
        # the same value, in any order
        self._moved(node, Linear(_ZERO, (0,) * len(args[0].spec.sizes), 0))
        return found

    def _joined(self, either: bool, node: Node, depth: int) -> bool | Band:
        """Return the content of ``and`` or ``or``; a neutral operand leaves the other operand's
        content.
        """
        found: bool | Band = not either
        for each in node.args[:2]:
            part = self.truth(each, depth - 1)
            if part is either or found is either:
                found = either
            elif type(part) is Band:
                if type(found) is Band:
                    raise _Unknown
                found = Band(self._spread(part.of, each.spec.sizes, _sizes(node)))
        return found

    def _compared(self, name: str, node: Node, depth: int) -> bool | Band:
        left, right = (self._operand(each, _sizes(node), depth - 1) for each in node.args[:2])
        if name in ("le", "lt"):
            left, right = right, left
        difference = _plus(left, _negated(right))
        if name in ("gt", "lt"):
            difference = _less_one(difference)
        low, high = self._ends(difference, _sizes(node))
        if name in ("eq", "ne"):
            if self._holds(boolean.and_(boolean.eq(low, 0), boolean.eq(high, 0))):
                return name == "eq"
            if self._holds(boolean.gt(low, 0)) or self._holds(boolean.lt(high, 0)):
                return name == "ne"
            raise _Unknown
        if self._holds(boolean.ge(low, 0)):
            return True
        return False if self._holds(boolean.lt(high, 0)) else Band(difference)

    # -- integers
    def _operand(self, value: Any, sizes: Sequence[Any], depth: int) -> Linear:
        """Return the content of a tensor or number, broadcast to these sizes."""
        if type(value) in (int, Term):
            return self._constant(_number(value), len(sizes))
        return self._spread(self.linear(value, depth), value.spec.sizes, sizes)

    def _constant(self, term: Term, dims: int) -> Linear:
        near = self._holds(boolean.le(-_COUNTED, term)) and self._holds(boolean.le(term, _COUNTED))
        bound = abs(term.value) if term.op is Op.CONST else _COUNTED if near else None
        return Linear(term, (0,) * dims, bound)

    def linear(self, value: Any, depth: int) -> Linear:
        """Return the content of an int64 tensor."""
        if type(value) is not Value:
            raise _Unknown
        known = self._linear.get(value)
        if known is None:
            known = self._linear[value] = self._made(self._maker(value, torch.int64, depth), depth)
        return known

    def _made(self, node: Node, depth: int) -> Linear:
        op, args, dims = node.op, node.args, len(_sizes(node))
        if op is aten.arange.default:
            return self._counted(0)
        if op in (aten.arange.start, aten.arange.start_step) and (
            len(args) < 3 or self._equal(_number(args[2]), 1)
        ):
            return self._counted(args[0])
        if op in _FILLED or op in _FULL:
            return self._constant(_number(_FILLED[op] if op in _FILLED else args[_FULL[op]]), dims)
        if op in (aten.add.Tensor, aten.sub.Tensor) and not node.kwargs:
            left, right = (self._operand(each, _sizes(node), depth - 1) for each in args)
            return _sum(left, _negated(right) if op is aten.sub.Tensor else right)
        if op is aten.cat.default:
            return self._behind_each_other(node, depth)
        if op is aten.cumsum.default:
            return self._summed(node, depth)
        if op is aten.index.Tensor:
            return self._indexed(node, depth)
        return self._moved(node, self.linear(args[0], depth - 1))

    def _counted(self, start: Any) -> Linear:
        # and as many elements after it as memory can hold
        first = self._constant(_number(start), 1)
        return Linear(first.start, (1,), None if first.bound is None else first.bound + _COUNTED)

    def _summed(self, node: Node, depth: int) -> Linear:
        """Return the content of a cumulative sum of zeros."""
        source = node.args[0]
        if source.spec.dtype is torch.bool:
            zero = self.truth(source, depth - 1) is False
        else:
            found = self.linear(source, depth - 1)
            zero = not any(found.steps) and self._equal(found.start, 0)
        if not zero or node.kwargs:
            raise _Unknown
        return Linear(_ZERO, (0,) * len(_sizes(node)), 0)

    def _indexed(self, node: Node, depth: int) -> Linear:
        """Return the content of ``source[indices]``, where the indices are linear and proven to be
        in bounds.
        """
        source, indices = node.args
        held, sizes = self.linear(source, depth - 1), _sizes(node)
        if len(indices) != len(held.steps):
            raise _Unknown
        found = attrs.evolve(held, steps=(0,) * len(sizes))
        for step, size, index in zip(held.steps, source.spec.sizes, indices, strict=True):
            place = self.linear(index, depth - 1)
            low, high = self._ends(place, index.spec.sizes)
            if not self._holds(boolean.ge(low, 0)) or not self._holds(
                boolean.lt(high, term_of(size))
            ):
                raise _Unknown
            found = _plus(found, _scaled(self._spread(place, index.spec.sizes, sizes), step))
        return attrs.evolve(found, bound=held.bound)

    def _behind_each_other(self, node: Node, depth: int) -> Linear:
        """Return the content of ``cat`` where each piece continues where the one before ended."""
        pieces, (at, *_) = node.args[0], (*node.args[1:], 0)
        found = [self.linear(each, depth - 1) for each in pieces]
        if any(each.steps != found[0].steps or each.bound is None for each in found):
            raise _Unknown
        step, place = found[0].steps[at], found[0].start
        for piece, own in zip(pieces, found, strict=True):
            if not self._equal(own.start, place):
                raise _Unknown
            place = arithmetic.add(place, arithmetic.scale(term_of(piece.spec.sizes[at]), step))
        return attrs.evolve(found[0], bound=max(each.bound or 0 for each in found))

    # -- shapes
    def _ends(self, found: Linear, sizes: Sequence[Any]) -> tuple[Term, Term]:
        """Return the least and the greatest element of a tensor that is not empty."""
        low = high = found.start
        for step, size in zip(found.steps, sizes, strict=True):
            far = arithmetic.scale(arithmetic.sub(term_of(size), 1), step)
            low, high = (
                (arithmetic.add(low, far), high) if step < 0 else (low, arithmetic.add(high, far))
            )
        return low, high

    def _spread(self, found: Linear, sizes: Sequence[Any], wanted: Sequence[Any]) -> Linear:
        """Return the content after broadcasting from ``sizes`` to ``wanted``."""
        new = len(wanted) - len(sizes)
        steps = [0] * new
        for step, size, whole in zip(found.steps, sizes, wanted[new:], strict=True):
            kept = not step or self._equal(size, whole)
            if not kept and not self._equal(size, 1):
                raise _Unknown
            steps.append(step if kept else 0)
        return attrs.evolve(found, steps=tuple(steps))

    def _moved(self, node: Node, found: Linear) -> Linear:
        """Return the content of a view or a copy of a tensor whose content is known."""
        op, args = node.op, node.args
        sizes, wanted = args[0].spec.sizes, _sizes(node)
        if op in _SAME or op is aten._to_copy.default:
            return found
        if op is aten.expand.default:
            return self._spread(found, sizes, wanted)
        if op in _VIEWED:
            return self._viewed(found, sizes, wanted)
        steps = list(found.steps)
        if op in (aten.transpose.int, aten.t.default):
            first, second = args[1:] or (0, -1)
            if steps:
                steps[first], steps[second] = steps[second], steps[first]
            return attrs.evolve(found, steps=tuple(steps))
        if op is aten.permute.default:
            return attrs.evolve(found, steps=tuple(steps[d] for d in args[1]))
        if op is aten.slice.Tensor:
            given = [*args[1:], *[0, None, None, 1][len(args) - 1 :]]
            at, begin, stride = given[0], given[1], given[3]
            start = self._begin(found, sizes, at, 0 if begin is None else begin)
            if type(stride) is not int:
                raise _Unknown
            steps[at] *= stride
            return attrs.evolve(found, start=start, steps=tuple(steps))
        if op is aten.select.int:
            del steps[args[1]]
            return attrs.evolve(
                found, start=self._begin(found, sizes, args[1], args[2]), steps=tuple(steps)
            )
        raise _Unknown

    def _begin(self, found: Linear, sizes: Sequence[Any], at: int, begin: Any) -> Term:
        """Return the first element from index ``begin`` on; a slice behind the end has no
        elements.
        """
        if not found.steps[at]:
            return found.start
        index = _number(begin)
        if index.op is Op.CONST and index.value < 0:
            index = arithmetic.add(term_of(sizes[at]), index)
        if not self._holds(boolean.ge(index, 0)):
            raise _Unknown
        return arithmetic.add(found.start, arithmetic.scale(index, found.steps[at]))

    def _viewed(self, found: Linear, sizes: Sequence[Any], wanted: Sequence[Any]) -> Linear:
        """Return the content after a view that adds or removes dimensions of size 1."""
        if not any(found.steps):
            return attrs.evolve(found, steps=(0,) * len(wanted))
        left = [
            (step, size)
            for step, size in zip(found.steps, sizes, strict=True)
            if type(size) is not int or size != 1
        ]
        steps = []
        for size in wanted:
            if type(size) is int and size == 1:
                steps.append(0)
                continue
            if not left or not self._equal(left[0][1], size):
                raise _Unknown
            steps.append(left.pop(0)[0])
        if left:
            raise _Unknown
        return attrs.evolve(found, steps=tuple(steps))


def _number(value: Any) -> Term:
    if type(value) in (bool, int) or (type(value) is Term and not value.is_bool):
        return term_of(int(value) if type(value) is bool else value)
    raise _Unknown


def _sizes(node: Node) -> Sequence[Any]:
    (output, *others) = node.outputs
    if output is None or others:
        raise _Unknown
    return output.spec.sizes


def _scaled(found: Linear, factor: int) -> Linear:
    bound = None if found.bound is None else found.bound * abs(factor)
    return Linear(
        arithmetic.scale(found.start, factor), tuple(step * factor for step in found.steps), bound
    )


def _negated(found: Linear) -> Linear:
    return _scaled(found, -1)


def _less_one(found: Linear) -> Linear:
    return attrs.evolve(found, start=arithmetic.sub(found.start, 1))


def _plus(left: Linear, right: Linear) -> Linear:
    """Return the elementwise sum of two contents of the same sizes, without overflow."""
    steps = tuple(a + b for a, b in zip(left.steps, right.steps, strict=True))
    bound = None if left.bound is None or right.bound is None else left.bound + right.bound
    return Linear(arithmetic.add(left.start, right.start), steps, bound)


def _sum(left: Linear, right: Linear) -> Linear:
    """Return the elementwise sum as tensors add; raise ``_Unknown`` where 64 bits may wrap
    around.
    """
    found = _plus(left, right)
    if found.bound is None or found.bound >= _WRAPS:
        raise _Unknown
    return found
