"""Tensors of a graph that share memory: what a write to one of them makes of the others.

Padded programs write nowhere: each write makes a new tensor.  One that is a view is put back into what it was viewed
from, up to the tensor that owns the memory, and the other views are taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from meta_fns import TensorSpec
from meta_fns.core.dims import wrap_dim, wrap_dims
from meta_fns.padding.padded import Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.views import permute, reshaped
from meta_fns.padding.writing import select_scatter, slice_scatter
from symshape.graph.steps import Node, Value, values_in
from symshape.runtime.padding.emission import Emission

__all__ = ["Aliases"]

_aten = torch.ops.aten
_SAME_ORDER = frozenset(
    f"aten::{name}" for name in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "detach")
)
Again = Callable[[Node], Any]


class Aliases:
    """Which tensor was viewed from which, by which op.

    Args:
        emission: where what is computed goes.
        padded: what each value of the graph is, which a write changes.
        argument: a padded argument, of an argument of the graph.
        true: the true metadata of a value.
    """

    def __init__(
        self,
        emission: Emission,
        padded: MutableMapping[Value, Padded],
        argument: Callable[[Any], Any],
        true: Callable[[Value], TensorSpec | None],
    ) -> None:
        self._emission = emission
        self._padded = padded
        self._argument = argument
        self._true = true
        self._made: dict[Value, tuple[Node, Value]] = {}

    def record(self, node: Node) -> None:
        """Notes what a node viewed."""
        parents = list(values_in(node.args))
        for output in node.outputs:
            if output is not None and parents and parents[0].storage is output.storage and output is not parents[0]:
                self._made[output] = node, parents[0]

    def write(self, node: Node, value: Value, again: Again) -> None:
        """After ``value`` was written: puts it into what it was viewed from, and takes the other views again.

        ``again(node)`` computes the results of a view's node anew.

        Raises: Refuse for a view that cannot be put back.
        """
        fresh = {value}
        at = value
        while at in self._made:
            made_by, parent = self._made[at]
            self._padded[parent] = self._put_back(node, made_by, self._padded[parent], self._padded[at], parent)
            at = parent
            fresh.add(at)
        for other in [each for each in self._padded if each.storage is value.storage]:
            self._take(other, fresh, again)

    def _take(self, value: Value, fresh: set[Value], again: Again) -> None:
        if value in fresh:
            return
        if value not in self._made:
            raise Refuse("it writes to memory that another tensor shares, in a way that is not known")
        node, parent = self._made[value]
        self._take(parent, fresh, again)
        made = again(node)
        for output, result in zip(node.outputs, made if isinstance(made, (list, tuple)) else [made], strict=True):
            if output is value:
                self._padded[output] = result
        fresh.add(value)

    def _put_back(self, node: Node, made_by: Node, parent: Padded, child: Padded, value: Value) -> Padded:
        """A viewed tensor with the view's elements in their places."""
        op, rest = made_by.op, [self._argument(arg) for arg in made_by.args[1:]]
        name = op._schema.name
        inverse = {"aten::slice": _aten.slice_scatter.default, "aten::select": _aten.select_scatter.default}.get(name)
        self._emission.begin(node, inverse or op, (self._true(value),))
        if name == "aten::slice":
            return slice_scatter(self._emission, parent, child, *rest)
        if name == "aten::select":
            return select_scatter(self._emission, parent, child, *rest)
        order = _order(op, rest, parent.ndim)
        if order is not None:
            return permute(self._emission, child, sorted(range(len(order)), key=order.__getitem__))
        if name in _SAME_ORDER:
            return reshaped(self._emission, child, parent.axes)
        remedy = "write to the tensor itself"
        raise Refuse(f"it writes to a view made by {op}, which other tensors share", *parent.sizes, remedy=remedy)


def _order(op: OpOverload, rest: Sequence[Any], ndim: int) -> Sequence[int] | None:
    """Of which dimension of its argument each of a permuted tensor is."""
    name = op._schema.name
    if name == "aten::permute":
        return _wrapped(rest[0], ndim)
    order = list(range(ndim))
    if name == "aten::t":
        return order[::-1]
    if name == "aten::transpose" and op._overloadname == "int":
        a, b = (wrap_dim(dim, ndim) for dim in rest)
        order[a], order[b] = order[b], order[a]
        return order
    return None


def _wrapped(dims: Iterable[int], ndim: int) -> list[int]:
    return list(wrap_dims(list(dims), ndim))
