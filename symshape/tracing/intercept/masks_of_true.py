"""Attention masks that let everything through: proven so from how the program made them, and left out.

Libraries leave such a mask out in eager, where they look at what it holds, but make it where ``torch.compiler`` traces.
With a mask attention runs on other kernels: on CUDA a mask without a dense last dimension leaves the slowest alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch._ops import OpOverload

from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term
from symshape.graph.new_steps import NewSteps
from symshape.graph.steps import Node, Value, written_values
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

aten = torch.ops.aten
ATTENTION: Any = torch._C._nn.scaled_dot_product_attention
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_DEEPEST = 64  # ops
_SAME = frozenset(
    (
        *(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.expand.default),
        *(aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.permute.default),
        *(aten.transpose.int, aten.t.default, aten.clone.default, aten.detach.default, aten.alias.default),
        *(aten.slice.Tensor, aten.select.int, aten.narrow.default, aten.index_select.default, aten.repeat.default),
    )
)
"""Ops whose results hold nothing but elements of their first argument."""
_FILLED: Mapping[OpOverload, int] = {
    aten.ones.default: 1,
    aten.zeros.default: 0,
    aten.new_ones.default: 1,
    aten.new_zeros.default: 0,
    aten.ones_like.default: 1,
    aten.zeros_like.default: 0,
}
_FULL: Mapping[OpOverload, int] = {aten.full.default: 1, aten.new_full.default: 2, aten.full_like.default: 1}
"""At which argument the number is that everything is filled with."""
_BOTH = frozenset((aten.logical_and.default, aten.bitwise_and.Tensor))
_EITHER = frozenset((aten.logical_or.default, aten.bitwise_or.Tensor))
_COUNTED = 2**53
"""More than the elements of any tensor that memory holds."""
_WRAPS = 2**63


@attrs.frozen
class Range:
    """Numbers between which all elements of an integer tensor lie, both included; it may hold none at all.

    ``bound``: none is farther from 0, whatever the sizes are; None where that is not known.
    """

    low: Term
    high: Term
    bound: int | None


def _comparisons() -> dict[OpOverload, Callable[[Range, Range], Term]]:
    rules: dict[str, Callable[[Range, Range], Term]] = {
        "ge": lambda a, b: boolean.ge(a.low, b.high),
        "gt": lambda a, b: boolean.gt(a.low, b.high),
        "le": lambda a, b: boolean.le(a.high, b.low),
        "lt": lambda a, b: boolean.lt(a.high, b.low),
        "ne": lambda a, b: boolean.or_(boolean.gt(a.low, b.high), boolean.lt(a.high, b.low)),
    }
    return {
        getattr(getattr(aten, name), overload): rule
        for name, rule in rules.items()
        for overload in ("Scalar", "Tensor")
    }


_COMPARED = _comparisons()
"""What has to hold of the ranges of two integer tensors for a comparison of all their elements to be true."""


class MasksOfTrue:
    """The masks of one trace.

    Args:
        trace: the trace, which grows.
    """

    def __init__(self, trace: Trace) -> None:
        self._known = trace.env.known
        self._trace = trace
        self._new = NewSteps(trace.steps)
        self._makers: dict[Value, Node] = {}
        self._written: set[object] = set()

    def left_out(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[Sequence[Any], Any]:
        """The arguments of ``scaled_dot_product_attention``, without a mask that changes nothing."""
        named = {**dict(zip(_NAMES, args, strict=False)), **(kwargs or {})}
        mask = named.get("attn_mask")
        if type(mask) is not SymbolicTensor or mask._tracer is not self._trace or mask._spec.dtype is not torch.bool:
            return args, kwargs
        if named.get("is_causal", False) is not False or not self._fits(mask, named):
            return args, kwargs
        self._catch_up()
        if not self._true(mask._value, _DEEPEST):
            return args, kwargs
        if len(args) > _NAMES.index("attn_mask"):
            return [None if each is mask else each for each in args], kwargs
        return args, {**(kwargs or {}), "attn_mask": None}

    def _fits(self, mask: SymbolicTensor, named: Mapping[str, Any]) -> bool:
        """Whether attention takes the mask and answers no more than without it."""
        query, key = named.get("query"), named.get("key")
        if type(query) is not SymbolicTensor or type(key) is not SymbolicTensor:
            return False
        rows, columns = query._spec.sizes, key._spec.sizes
        if len(rows) < 2 or len(rows) != len(columns) or not 2 <= len(mask._spec.sizes) <= len(rows):
            return False
        wanted = (*rows[:-1], columns[-2])
        pairs = zip(reversed(mask._spec.sizes), reversed(wanted), strict=False)
        return all(self._equal(size, 1) or self._equal(size, whole) for size, whole in pairs)

    def _equal(self, a: Any, b: Any) -> bool:
        return self._known(boolean.eq(_term(a), _term(b)))

    def _catch_up(self) -> None:
        for node in self._new.nodes():
            self._makers.update((output, node) for output in node.outputs if output is not None)
            self._written.update(written.storage for written in written_values(node))

    def _maker(self, value: Value, depth: int) -> Node | None:
        return None if depth == 0 or value.storage in self._written else self._makers.get(value)

    def _true(self, value: Any, depth: int) -> bool:
        """Whether all elements of a bool tensor are true."""
        node = self._maker(value, depth) if type(value) is Value else None
        if node is None or value.spec.dtype is not torch.bool:
            return False
        op, args = node.op, node.args
        if op in _SAME:
            return self._true(args[0], depth - 1)
        if op in _BOTH:
            return self._true(args[0], depth - 1) and self._true(args[1], depth - 1)
        if op in _EITHER:
            return self._true(args[0], depth - 1) or self._true(args[1], depth - 1)
        if op in _FILLED:
            return _FILLED[op] == 1
        if op in _FULL:
            return args[_FULL[op]] in (True, 1)
        rule = _COMPARED.get(op)
        if rule is None:
            return False
        left, right = self._range(args[0], depth - 1), self._range(args[1], depth - 1)
        return left is not None and right is not None and self._known(rule(left, right))

    def _range(self, value: Any, depth: int) -> Range | None:
        """Where the elements of an int64 tensor lie, or a number; None where that is not known."""
        if type(value) in (int, Term):
            return None if type(value) is Term and value.is_bool else self._number(_term(value))
        node = self._maker(value, depth) if type(value) is Value else None
        if node is None or value.spec.dtype is not torch.int64:
            return None
        op, args = node.op, node.args
        if op in _SAME:
            return self._range(args[0], depth - 1)
        if op is aten.arange.default:
            return self._counted(0, args[0])
        if op is aten.arange.start or (op is aten.arange.start_step and args[2:] in ((), (1,))):
            return self._counted(args[0], args[1])
        if op in _FILLED:
            return self._number(arithmetic.const(_FILLED[op]))
        if op in (aten.add.Tensor, aten.sub.Tensor) and not node.kwargs:
            left, right = self._range(args[0], depth - 1), self._range(args[1], depth - 1)
            return None if left is None or right is None else _sum(left, right, op is aten.sub.Tensor)
        return None

    def _number(self, term: Term) -> Range:
        """One number."""
        if term.op is Op.CONST:
            return Range(term, term, abs(term.value))
        near = self._known(boolean.le(-_COUNTED, term)) and self._known(boolean.le(term, _COUNTED))
        return Range(term, term, _COUNTED if near else None)

    def _counted(self, start: Any, end: Any) -> Range | None:
        """The numbers from ``start`` up to ``end``, which is none of them."""
        if any(type(each) not in (int, Term) for each in (start, end)):
            return None
        first = self._number(_term(start))
        bound = None if first.bound is None else first.bound + _COUNTED  # as many elements lie in memory
        return Range(first.low, arithmetic.sub(_term(end), 1), bound)


def _sum(left: Range, right: Range, negated: bool) -> Range | None:
    """Where sums (or differences) lie; None where 64 bits may wrap around."""
    if left.bound is None or right.bound is None or left.bound + right.bound >= _WRAPS:
        return None
    bound = left.bound + right.bound
    if negated:
        return Range(arithmetic.sub(left.low, right.high), arithmetic.sub(left.high, right.low), bound)
    return Range(arithmetic.add(left.low, right.low), arithmetic.add(left.high, right.high), bound)


def _term(size: Any) -> Term:
    if type(size) is IntNode:
        return size.term
    return size if type(size) is Term else arithmetic.const(size)
