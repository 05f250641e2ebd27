"""Fused attention with dropout as single ops, which may be padded and recorded: forward hands its mask to backward.

Fused kernels drop elements by their place in memory, and keep a random state from which backward drops the same.  So
they cannot be padded, and the memory-efficient kernel cannot even be recorded.  Single ops drop others, as many.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from itertools import count, permutations
from typing import Any

import attrs
import torch

from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from meta_fns.core.sizes import same, same_shape
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value, arguments_by_name, drops, values_in, written_values

__all__ = ["fuses_dropout", "without_fused_dropout"]

_aten = torch.ops.aten
_FORWARD = frozenset(
    {
        _aten._scaled_dot_product_flash_attention.default,
        _aten._scaled_dot_product_efficient_attention.default,
        _aten._scaled_dot_product_cudnn_attention.default,
    }
)
_BACKWARD = frozenset(
    {
        _aten._scaled_dot_product_flash_attention_backward.default,
        _aten._scaled_dot_product_efficient_attention_backward.default,
        _aten._scaled_dot_product_cudnn_attention_backward.default,
    }
)
_PLAIN = (0, 1, 2, 3)
_ORDERS = tuple(permutations(_PLAIN))
"""The orders that the dimensions of a result may have in memory."""

_known: weakref.WeakKeyDictionary[Graph, Graph | None] = weakref.WeakKeyDictionary()
"""The graph with single ops, by graph; None if unchanged, as a reference would keep the graph itself alive."""


def fuses_dropout(node: Node) -> bool:
    """Return whether a node is fused attention with dropout on a device, or the backward of one."""
    return (node.op in _FORWARD or node.op in _BACKWARD) and drops(node) is True


def without_fused_dropout(graph: Graph) -> Graph:
    """Return the graph with single ops in place of fused attention with dropout; or the graph itself.

    A call stays fused where its backward is in another graph, where something else reads its random state, where the
    gradient of its mask is wanted, and where what backward reads is written to before it.
    """
    if graph not in _known:
        _known[graph] = _replaced(graph)
    return _known[graph] or graph


def _replaced(graph: Graph) -> Graph | None:
    forwards = [node for node in graph.nodes if node.op in _FORWARD and fuses_dropout(node)]
    if not forwards:
        return None
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.reads:
            readers.setdefault(value, []).append(node)
    returned, order = set(values_in(graph.outputs)), {id(node): place for place, node in enumerate(graph.nodes)}
    writes = [(order[id(node)], id(value.storage)) for node in graph.nodes for value in written_values(node)]
    places = count(1 + max(value.index for node in graph.nodes for value in (*node.reads, *node.outputs) if value))
    instead: dict[int, Sequence[Step]] = {}
    for forward in forwards:
        kept = [value for value in forward.outputs[1:] if value is not None]
        backwards = {id(node): node for value in kept for node in readers.get(value, ())}.values()
        first, last = order[id(forward)], max((order[id(node)] for node in backwards), default=0)
        saved = {id(value.storage) for value in (*forward.reads, *forward.outputs) if value is not None}
        same_then = not any(first < place < last and storage in saved for place, storage in writes)
        if returned.isdisjoint(kept) and _fits(forward) and all(map(_backward_fits, backwards)) and same_then:
            ops = _Ops(forward, places)
            instead[id(forward)] = ops.forward()
            instead |= {id(node): ops.backward(node) for node in backwards}
    if not instead:
        return None
    steps = [made for step in graph.steps for made in instead.get(id(step), (step,))]
    return attrs.evolve(graph, steps=tuple(steps))


def _fits(node: Node) -> bool:
    """Return whether a call of fused attention is one that :class:`_Ops` computes."""
    given = arguments_by_name(node)
    query, key, value = (given[name].spec for name in ("query", "key", "value"))
    out = node.outputs[0]
    if query.dim != 4 or out is None or given.get("return_debug_mask"):
        return False
    alike = same(query.sizes[0], key.sizes[0]) and same(query.sizes[0], value.sizes[0])
    alike = alike and same(query.sizes[1], key.sizes[1]) and same(query.sizes[1], value.sizes[1])
    square = not given.get("is_causal") or same(query.sizes[2], key.sizes[2])
    return alike and square and _order(out.spec) is not None


def _backward_fits(node: Node) -> bool:
    """Return whether a reader of what forward keeps is a backward whose gradients :class:`_Ops` computes."""
    if node.op not in _BACKWARD:
        return False
    of_mask = node.outputs[3] if len(node.outputs) > 3 else None
    return of_mask is None and all(each is None or _order(each.spec) is not None for each in node.outputs[:3])


def _order(spec: TensorSpec) -> tuple[int, ...] | None:
    """Return the order of a spec's dimensions in memory; None if the memory has gaps."""
    for order in _ORDERS:
        strides = contiguous_strides([spec.sizes[dim] for dim in order])
        if same_shape([spec.strides[dim] for dim in order], strides):
            return order
    return None


class _Ops:
    """The single ops that compute one call of fused attention with dropout, and its backward.

    Args:
        node: the call.
        places: the indices of new values.
    """

    def __init__(self, node: Node, places: Iterable[int]) -> None:
        given = arguments_by_name(node)
        self._node, self._places, self._made = node, iter(places), list[Step]()
        self._given = given
        query, key = given["query"].spec, given["key"].spec
        self._batch, self._heads, self._rows, width = query.sizes
        self._columns, self._dtype, self._device = key.sizes[2], query.dtype, query.device
        scale = given.get("scale")
        self._scale = _usual_scale(width) if scale is None else scale
        self._dropped = given["dropout_p"]

    def forward(self) -> Sequence[Step]:
        """Return the ops of the call itself."""
        self._made = []
        query, self._key, self._value = (self._flat(self._given[name]) for name in ("query", "key", "value"))
        self._query = self._scaled(query)
        scores = self._product(self._query, self._turned(self._key))
        bias = self._given.get("attn_bias")
        if bias is not None:
            whole = (self._batch, self._heads, self._rows, self._columns)
            added = self._call(_aten.add.Tensor, self._shaped(scores, whole), bias, like=whole)
            scores = self._shaped(added, scores.spec.sizes)
        if self._given.get("is_causal"):
            scores = self._call(_aten.masked_fill.Scalar, scores, self._later(), -math.inf, like=scores)
        self._weights = self._call(_aten._softmax.default, scores, -1, False, like=scores)
        if bias is not None:  # a query that attends to no key has weights of 0, not NaN
            self._weights = self._call(_aten.masked_fill.Scalar, self._weights, self._nowhere(scores), 0, like=scores)
        self._kept_weights, self._mask = self._drop(self._weights)
        self._result(self._product(self._kept_weights, self._value), self._node.outputs[0])
        return self._made

    def backward(self, node: Node) -> Sequence[Step]:
        """Return the ops of its backward."""
        self._made, self._node = [], node
        given = arguments_by_name(node)
        gradient = self._flat(given["grad_out_" if "grad_out_" in given else "grad_out"])
        of_weights = self._product(gradient, self._turned(self._value))
        share = 1 / (1 - self._dropped) if self._dropped < 1 else 0.0
        of_weights = self._call(_aten.native_dropout_backward.default, of_weights, self._mask, share, like=of_weights)
        of_scores = self._call(
            _aten._softmax_backward_data.default, of_weights, self._weights, -1, self._dtype, like=of_weights
        )
        of_query, of_key, of_value = node.outputs[:3]
        if of_query is not None:
            self._result(self._scaled(self._product(of_scores, self._key)), of_query)
        if of_key is not None:
            self._result(self._product(self._turned(of_scores), self._query), of_key)
        if of_value is not None:
            self._result(self._product(self._turned(self._kept_weights), gradient), of_value)
        return self._made

    def _add(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: tuple[Value, ...]) -> None:
        one, single = self._node, len(outputs) == 1
        made = Node(op, args, kwargs, outputs, single, grad=one.grad, inference=one.inference, location=one.location)
        self._made.append(made)

    def _new(self, spec: TensorSpec, storage: object = None) -> Value:
        return Value(next(self._places), spec, object() if storage is None else storage)

    def _fresh(self, sizes: Sequence[Any], dtype: torch.dtype | None = None) -> Value:
        return self._new(TensorSpec.contiguous(sizes, dtype or self._dtype, self._device))

    def _call(self, op: Any, *args: Any, like: Value | Sequence[Any], **kwargs: Any) -> Value:
        """Add an op whose result is fresh, with the sizes of ``like``; return the result."""
        made = self._fresh(like.spec.sizes if isinstance(like, Value) else like, kwargs.get("dtype"))
        self._add(op, args, kwargs, (made,))
        return made

    def _scaled(self, value: Value) -> Value:
        """Add what multiplies by the factor of scores."""
        return self._call(_aten.mul.Scalar, value, self._scale, like=value)

    def _drop(self, weights: Value) -> tuple[Value, Value]:
        made = self._fresh(weights.spec.sizes), self._fresh(weights.spec.sizes, torch.bool)
        self._add(_aten.native_dropout.default, (weights, self._dropped, True), {}, made)
        return made

    def _nowhere(self, scores: Value) -> Value:
        """Add a mask of the queries that attend to no key: all their scores are minus infinity."""
        hidden = self._fresh(scores.spec.sizes, torch.bool)
        self._add(_aten.eq.Scalar, (scores, -math.inf), {}, (hidden,))
        made = self._fresh((*scores.spec.sizes[:2], 1), torch.bool)
        self._add(_aten.all.dim, (hidden, -1, True), {}, (made,))
        return made

    def _later(self) -> Value:
        """Add a mask of the scores that a causal mask hides: those of later keys."""
        sizes = (self._rows, self._columns)
        given: dict[str, Any] = {"dtype": torch.bool, "device": self._device}
        ones = self._call(_aten.full.default, list(map(_number, sizes)), True, like=sizes, **given)
        made = self._fresh(sizes, torch.bool)
        self._add(_aten.triu.default, (ones, 1), {}, (made,))
        return made

    def _flat(self, value: Value) -> Value:
        """Add what makes ``(b, h, n, m)`` to a gapless ``(b * h, n, m)``."""
        kept = self._call(_aten.clone.default, value, memory_format=torch.contiguous_format, like=value)
        batch, heads, *rest = value.spec.sizes
        return self._shaped(kept, (batch * heads, *rest))

    def _shaped(self, value: Value, sizes: Sequence[Any]) -> Value:
        """Add a view of a gapless tensor with these sizes."""
        made = self._new(TensorSpec.contiguous(sizes, value.spec.dtype, self._device), value.storage)
        self._add(_aten.view.default, (value, list(map(_number, sizes))), {}, (made,))
        return made

    def _turned(self, value: Value) -> Value:
        """Add the transpose of each matrix in ``(b * h, n, m)``."""
        return self._permuted(value, (0, 2, 1))

    def _product(self, left: Value, right: Value) -> Value:
        (batch, rows, _), (_, _, columns) = left.spec.sizes, right.spec.sizes
        return self._call(_aten.bmm.default, left, right, like=(batch, rows, columns))

    def _result(self, flat: Value, output: Value | None) -> None:
        """Add what makes ``(b * h, n, m)`` to a result of the fused kernel, in the same order in memory."""
        assert output is not None
        whole, order = self._shaped(flat, output.spec.sizes), _order(output.spec)
        assert order is not None
        if order == _PLAIN:
            self._add(_aten.clone.default, (whole,), {"memory_format": torch.contiguous_format}, (output,))
            return
        turned = self._permuted(whole, order)
        kept = self._call(_aten.clone.default, turned, memory_format=torch.contiguous_format, like=turned)
        self._permuted(kept, tuple(map(order.index, _PLAIN)), output)

    def _permuted(self, value: Value, order: tuple[int, ...], into: Value | None = None) -> Value:
        """Add a tensor with its dimensions in this order."""
        spec = value.spec
        sizes, strides = (tuple([each[dim] for dim in order]) for each in (spec.sizes, spec.strides))
        made = (
            self._new(TensorSpec(sizes, strides, 0, spec.dtype, spec.device), value.storage) if into is None else into
        )
        self._add(_aten.permute.default, (value, list(order)), {}, (made,))
        return made


def _usual_scale(width: Any) -> Any:
    """Return the factor of scores for heads of this size, which may be symbolic."""
    if isinstance(width, int):
        return 1 / math.sqrt(width)
    return FloatTerm("truediv", (1.0, FloatTerm("sqrt", (FloatTerm("from_int", (_number(width),)),))))


def _number(size: Any) -> Any:
    """Return a size as an argument of a node: an int, or the term of a symbolic size."""
    return getattr(size, "term", size)
