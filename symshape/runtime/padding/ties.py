"""The proof that the order of equal elements of a sort affects no result, so that a stable sort
will do.

Mixtures of experts sort tokens by their expert, work on the rows of each expert, and scatter the
rows back.  The sort that libraries call for it is not stable: the order of two tokens of one expert
depends on the algorithm, and so on the size in memory.  The proof that no result depends on that
order goes op by op: after the sort, every tensor either

* is the same for any order of equal elements (as everything that does not read the sort's
  positions), or
* has **rows** that are permuted together with the positions: row ``r`` is a function of the element
  that the sort put there (``x[order]``, and tensors computed from it row by row), or
* is **keyed**: its rows are the same for equal elements, so that their order does not matter
  (sorted integers; floats that are equal may differ, as 0.0 and -0.0 do, so that sorted ones are
  rows), or
* is the **order** itself, the positions that the sort returns, each of them once, or
* is its inverse, the way **back**.

Rows read at their way back, and rows scattered to the order, are the same for any order; sums of
scattered rows are the same except for the rounding of sums in another order.  With any other use of
such tensors the sort is left unchanged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape.graph.graph import Graph
from symshape.graph.steps import (
    Node,
    Value,
    arguments_by_name,
    draws_random_numbers,
    values_in,
    written_values,
)

__all__ = ["with_stable_sorts"]

_aten = torch.ops.aten
ROWS, KEYED, ORDER, BACK = "rows", "keyed", "order", "back"
_TAINTED = (ROWS, ORDER, BACK)
_POSITIONS = (_aten.topk.default, _aten.sort.default, _aten.sort.stable)
_SORTS = (_aten.sort.default, _aten.sort.stable)
_CASTS = (_aten._to_copy.default, _aten.clone.default, _aten.alias.default, _aten.detach.default)
_EXACT = (torch.int32, torch.int64, torch.float32, torch.float64)
"""The dtypes to which positions up to 2**24 can be cast without loss."""
_LIKE = frozenset(
    (
        *(
            _aten.empty_like.default,
            _aten.zeros_like.default,
            _aten.ones_like.default,
            _aten.full_like.default,
        ),
        *(
            _aten.new_empty.default,
            _aten.new_zeros.default,
            _aten.new_ones.default,
            _aten.new_full.default,
        ),
    )
)
"""The ops that read only the metadata of a tensor."""
_ROW_BY_ROW = frozenset(
    (
        *(*_CASTS, _aten.floor_divide.default, _aten.masked_fill.Tensor),
        *(_aten.masked_fill_.Scalar, _aten.masked_fill_.Tensor),
    )
)
"""Elementwise ops that are not tagged as pointwise."""

_known: weakref.WeakKeyDictionary[Graph, Graph | None] = weakref.WeakKeyDictionary()
"""The graph with stable sorts, by graph; None if unchanged, as a reference would keep the graph
itself alive.
"""


def with_stable_sorts(graph: Graph) -> Graph:
    """Return the graph with stable sorts where the order of equal elements affects no result; or
    the graph itself.
    """
    if graph not in _known:
        settled = {
            id(step): _stable(step)
            for at, step in enumerate(graph.steps)
            if isinstance(step, Node)
            and step.op is _aten.sort.default
            and _settled(graph, at, step)
        }
        steps = tuple(settled.get(id(step), step) for step in graph.steps)
        _known[graph] = attrs.evolve(graph, steps=steps) if settled else None
    return _known[graph] or graph


def _settled(graph: Graph, at: int, node: Node) -> bool:
    order = _Order(graph, at, node)
    try:
        return order.has_no_ties() or order.settled()
    except (_Fails, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False  # an op is called in an unforeseen way


def _stable(node: Node) -> Node:
    _, dim, descending = _sort_arguments(node)
    args: tuple[Any, ...] = (node.args[0],)
    return attrs.evolve(
        node,
        op=_aten.sort.stable,
        args=args,
        kwargs={"stable": True, "dim": dim, "descending": descending},
    )


def _sort_arguments(node: Node) -> tuple[Value, Any, Any]:
    given = arguments_by_name(node)
    return given["self"], given.get("dim", -1), given.get("descending", False)


class _Fails(Exception):
    """Raised for an op whose result may depend on the order of equal elements."""


class _Order:
    """The effects of the order of one sort of a vector on later tensors."""

    def __init__(self, graph: Graph, at: int, sort: Node) -> None:
        self._graph = graph
        self._at = at
        self._sort = sort
        self._kinds: dict[Value, str] = {}
        self._makers = {
            each: node for node in graph.nodes for each in node.outputs if each is not None
        }
        self._turns = {id(step): turn for turn, step in enumerate(graph.steps)}
        self._count: Any = sort.args[0].spec.sizes[0] if len(sort.args[0].spec.sizes) == 1 else None
        roots = {each.value for each in graph.inputs} | {each.value for each in graph.lifted}
        self._made_so_far = set(roots)
        self._outside = {id(each.storage) for each in roots}

    def has_no_ties(self) -> bool:
        """Return whether the sorted vector is the positions from another sort, which are
        distinct.
        """
        vector = self._sort.args[0]
        made = self._makers.get(vector)
        whole = (
            made is not None
            and made.op in _SORTS
            and rank_of(vector) == 1
            and made.outputs[1] is vector
        )
        return whole and not self._was_written(vector, self._sort)

    def settled(self) -> bool:
        """Return whether no result, and no write outside, depends on the order of equal elements.

        Raises:
            _Fails: an op may depend on it.
        """
        if self._count is None or len(self._sort.outputs) != 2:
            return False
        values, positions = self._sort.outputs
        if values is not None:
            self._kinds[values] = ROWS if values.spec.dtype.is_floating_point else KEYED
        if positions is not None:
            self._kinds[positions] = ORDER
        for at, step in enumerate(self._graph.steps):
            if isinstance(step, Node):
                if at > self._at:
                    self._follow(step)
                self._made_so_far.update(each for each in step.outputs if each is not None)
        seen = (*values_in(self._graph.outputs), *self._graph.mutated)
        return not any(self._kinds.get(each) in _TAINTED for each in seen)

    def _follow(self, node: Node) -> None:
        kinds = [self._kinds.get(each) for each in node.reads]
        written = list(written_values(node))
        if not any(kind in _TAINTED for kind in kinds):
            self._untainted(node, kinds, written)
            return
        if node.bindings or draws_random_numbers(node) or written[1:]:
            raise _Fails
        kind = self._made(node)
        if written and (written[0] is not node.args[0] or not self._may_become(written[0], kind)):
            raise _Fails
        if kind is not None:
            for each in (*written, *(out for out in node.outputs if out is not None)):
                self._kinds[each] = kind
        elif written:
            self._kinds.pop(written[0], None)

    def _untainted(self, node: Node, kinds: Sequence[str | None], written: Sequence[Value]) -> None:
        """Update the kinds for an op that reads only order-independent tensors, and check its
        writes.

        Its results are order-independent too, unless it overwrites a tensor that is not.

        Raises:
            _Fails: it overwrites such a tensor.
        """
        if written:
            held = {id(each.storage) for each in written}
            for each in [each for each in self._kinds if id(each.storage) in held]:
                if self._kinds.pop(each) in _TAINTED:
                    raise _Fails  # a keyed tensor only stops being keyed
        elif KEYED not in kinds or draws_random_numbers(node):
            return
        elif self._row_by_row(node, KEYED) or self._is_read_by_key(node):
            self._kinds.update(
                dict.fromkeys((each for each in node.outputs if each is not None), KEYED)
            )

    def _is_read_by_key(self, node: Node) -> bool:
        """Return whether a node reads rows at keyed positions: the bias of each row's expert."""
        index = (
            index_of(node) if node.op in (_aten.index.Tensor, _aten.index_select.default) else None
        )
        return index is not None and self._kind(index) == KEYED and self._is_long(index)

    def _may_become(self, value: Value, kind: str | None) -> bool:
        """Return whether a written tensor may be of this kind from now on, with all tensors that
        share its memory.
        """
        held, own = id(value.storage), self._kinds.get(value)
        others = {
            self._kinds.get(each)
            for each in self._made_so_far
            if id(each.storage) == held and each is not value
        }
        if held in self._outside or own in (ORDER, BACK, KEYED):
            return False
        if kind == ROWS:  # rows overwritten row by row
            return own == ROWS and others <= {ROWS}
        return own is None and others <= ({None} if kind is None else set())

    def _made(self, node: Node) -> str | None:
        """Return the kind of an op's result, or of the tensor that it writes; None if it does not
        depend on the order.

        Raises:
            _Fails: the kind is unknown.
        """
        if node.op in _LIKE:
            return None
        rule = _RULES.get(node.op)
        if rule is not None:
            return rule(self, node)
        if self._row_by_row(node, ROWS):
            return ROWS
        raise _Fails

    def _row_by_row(self, node: Node, rows: str) -> bool:
        """Return whether row ``r`` of the result depends only on row ``r`` of tensors of this kind
        or keyed.
        """
        kinds = (ROWS, ORDER, KEYED) if rows == ROWS else (KEYED,)
        op, first = node.op, node.args[0] if node.args else None
        pointwise = torch.Tag.pointwise in op.tags or op in _ROW_BY_ROW
        if pointwise and not any(each.is_out for each in op._schema.arguments):
            shaped = node.outputs[0] if node.outputs and node.outputs[0] is not None else first
            return type(shaped) is Value and all(
                self._fits(each, shaped, kinds) for each in node.reads
            )
        if (
            type(first) is not Value
            or self._kinds.get(first) not in kinds
            or not self._is_long(first)
        ):
            return False
        return keeps_rows(node, first) and all(
            self._is_long(each) for each in node.outputs if each is not None
        )

    def _fits(self, value: Value, result: Value, kinds: Sequence[str]) -> bool:
        """Return whether an operand has the rows of the result, or is the same for all of them."""
        sizes, rank = value.spec.sizes, len(result.spec.sizes)
        if self._kinds.get(value) in kinds:
            return len(sizes) == rank and self._is_long(value) and self._is_long(result)
        return self._kinds.get(value) not in _TAINTED and (len(sizes) < rank or is_one(sizes[0]))

    def _is_long(self, value: Value) -> bool:
        """Return whether a tensor has as many rows as elements were sorted."""
        sizes = value.spec.sizes
        return len(sizes) > 0 and bool(same_size(sizes[0], self._count))

    def _kind(self, value: Any) -> str | None:
        return self._kinds.get(value) if type(value) is Value else None

    def _read_at(self, node: Node) -> str | None:
        """Return the kind of ``x[index]``, which reads rows."""
        source, index = node.args[0], index_of(node)
        if index is None or not self._is_long(index):
            raise _Fails
        kind, at = self._kind(source), self._kind(index)
        if at == BACK and kind in (ROWS, ORDER, KEYED) and self._is_long(source):
            return None
        if at in (ROWS, ORDER) and kind in (None, KEYED):
            return ROWS
        raise _Fails

    def _looked_up(self, node: Node) -> str:
        """Return the kind of rows read from an embedding."""
        table, index, *_ = node.args
        if (
            self._kind(table) is None
            and self._kind(index) in (ROWS, ORDER)
            and self._is_long(index)
        ):
            return ROWS
        raise _Fails

    def _put_at(self, node: Node) -> str | None:
        """Return the kind of ``x[index] = rows``, in place or not."""
        target, index, given = node.args[0], index_of(node), node.args[2]
        adds = (
            bool(node.args[3]) if len(node.args) > 3 else bool(node.kwargs.get("accumulate", False))
        )
        if index is None or self._kind(target) not in (None, KEYED) or not self._is_long(index):
            raise _Fails
        kind = self._kind(given)
        if (
            kind in (ROWS, ORDER, KEYED)
            and len(given.spec.sizes) == len(target.spec.sizes)
            and self._is_long(given)
        ):
            if adds and self._kind(index) in (ROWS, ORDER):
                return None
            if self._kind(index) == ORDER and self._is_long(target):
                return None  # each row is written once
        maker = self._makers.get(given)
        counting = (
            maker is not None
            and counts(maker)
            and self._is_long(given)
            and not self._was_written(given, node)
        )
        if (
            counting
            and not adds
            and self._kind(index) == ORDER
            and self._is_long(target)
            and rank_of(target) == 1
        ):
            return BACK
        raise _Fails

    def _added_at(self, node: Node) -> None:
        """Check ``x.index_add(0, index, rows)``, in place or not; its result does not depend on the
        order.
        """
        target, dim, index, given = node.args[:4]
        rows = (
            self._kind(given) in (ROWS, ORDER, KEYED)
            and self._is_long(given)
            and rank_of(given) == rank_of(target)
        )
        at = (
            self._kind(index) in (ROWS, ORDER, KEYED)
            and self._is_long(index)
            and rank_of(index) == 1
        )
        if dim != 0 or not rows or not at or self._kind(target) not in (None, KEYED):
            raise _Fails

    def _sorted(self, node: Node) -> str | None:
        """Record the sort of the order: its positions are the way back, its values are all numbers
        up to the count.
        """
        vector, _, descending = _sort_arguments(node)
        if self._kind(vector) != ORDER or descending is not False:
            raise _Fails
        values, positions = node.outputs
        if positions is not None:
            self._kinds[positions] = BACK
        if values is not None:
            self._kinds.pop(values, None)
        return None

    def _product(self, node: Node) -> str:
        """Return the kind of a product of rows with a matrix."""
        *bias, left, right = node.args[:3] if node.op is _aten.addmm.default else node.args[:2]
        plain = (
            self._kind(left) in (ROWS, ORDER) and self._kind(right) is None and self._is_long(left)
        )
        if not plain or any(self._kind(each) is not None or rank_of(each) != 1 for each in bias):
            raise _Fails
        return ROWS

    def _grouped(self, node: Node) -> str:
        """Return the kind of products of groups of rows, where rows of equal elements are in one
        group.
        """
        given = arguments_by_name(node)
        left, right, ends = given["self"], given["mat2"], given.get("offs")
        fits = self._kind(left) == ROWS and rank_of(left) == 2 and self._is_long(left)
        if (
            not fits
            or rank_of(right) != 3
            or self._kind(right) is not None
            or given.get("bias") is not None
        ):
            raise _Fails
        if type(ends) is not Value or not self._between_keys(ends, node):
            raise _Fails
        return ROWS

    def _between_keys(self, ends: Value, reader: Node) -> bool:
        """Return whether groups with these ends have their borders between elements that differ.

        They do if the ends are the running sums of a histogram of the sorted elements from 0 on: a
        bin has all equal elements, and none is below the first bin.  Elements beyond the last bin
        are in no group.  (In float32 a bin counts to 2**24; eager's groups of more rows are not
        those of their elements either.)
        """
        added = self._maker(ends, reader)
        if added is None or added.op is not _aten.cumsum.default or rank_of(ends) != 1:
            return False
        counted = self._maker(added.args[0], added)
        if (
            counted is None
            or counted.op is not _aten.histc.default
            or _sort_arguments(self._sort)[2] is not False
        ):
            return False
        if any(
            each.outputs[0] is None or each.outputs[0].spec.dtype not in _EXACT
            for each in (added, counted)
        ):
            return False
        _, bins, least, most = (*counted.args, *(100, 0, 0)[len(counted.args) - 1 :])[:4]
        numbers = all(type(each) in (int, float) for each in (bins, least, most))
        elements, counted = self._uncast(counted.args[0], counted)
        if not numbers or not least == 0 < most or elements is not self._sort.outputs[0]:
            return False
        return not self._was_written(elements, counted) and self._are_positions()

    def _are_positions(self) -> bool:
        """Return whether the sorted elements are positions in a dimension of known size: not
        negative, not large.
        """
        value: Any = self._sort.args[0]
        reader = self._sort
        while (node := self._makers.get(value)) is not None and (
            node.op in SHAPES or node.op in _CASTS
        ):
            if self._was_written(value, reader) or value.spec.dtype not in _EXACT:
                return False
            value, reader = node.args[0], node
        if (
            node is None
            or node.op not in _POSITIONS
            or node.outputs[1] is not value
            or self._was_written(value, reader)
        ):
            return False
        read = node.args[0].spec.sizes
        return all(type(size) is int and size < 2**24 for size in read[-1:]) and along_last(
            node, len(read)
        )

    def _was_written(self, value: Any, reader: Node) -> bool:
        """Return whether a tensor's memory is written before an op reads it."""
        held = id(value.storage)
        before = self._graph.steps[: self._turns[id(reader)]]
        nodes = (step for step in before if isinstance(step, Node))
        return any(id(each.storage) == held for node in nodes for each in written_values(node))

    def _maker(self, value: Any, reader: Node) -> Node | None:
        """Return the node that made a number that an op reads, before casts; None if it was written
        in between.
        """
        found, reader = self._uncast(value, reader)
        return (
            None
            if type(found) is not Value or self._was_written(found, reader)
            else self._makers.get(found)
        )

    def _uncast(self, value: Any, reader: Node) -> tuple[Any, Node]:
        """Return the number before the casts that lead to an op, and the first of these casts, or
        the op itself.
        """
        while (node := self._makers.get(value)) is not None and node.op in _CASTS:
            if self._was_written(value, reader) or value.spec.dtype not in _EXACT:
                break
            value, reader = node.args[0], node
        return value, reader


_RULES: Mapping[Any, Callable[[_Order, Node], str | None]] = {
    _aten.index.Tensor: _Order._read_at,
    _aten.index_select.default: _Order._read_at,
    _aten.embedding.default: _Order._looked_up,
    _aten.index_put.default: _Order._put_at,
    _aten.index_put_.default: _Order._put_at,
    _aten.index_add.default: _Order._added_at,
    _aten.index_add_.default: _Order._added_at,
    _aten.sort.default: _Order._sorted,
    _aten.sort.stable: _Order._sorted,
    _aten.mm.default: _Order._product,
    _aten.addmm.default: _Order._product,
    _aten._grouped_mm.default: _Order._grouped,
}


# -- Properties of ops on tensors with rows: which compute each row from the same row, and which
# read or write rows.

SHAPES = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
_ALONG = frozenset(
    (
        *(_aten.slice.Tensor, _aten.split.Tensor, _aten.split_with_sizes.default, _aten.select.int),
        *(
            _aten._softmax.default,
            _aten._log_softmax.default,
            _aten.cumsum.default,
            _aten.squeeze.dim,
        ),
        *(_aten.unbind.int, _aten.glu.default),
    )
)
"""The ops along one dimension, their second argument (the third of ``split``); they keep rows of
other dimensions.
"""
_REDUCTIONS = frozenset(
    (_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default)
)


def index_of(node: Node) -> Value | None:
    """Return the only index vector at which rows of a tensor are read or written, else None."""
    if node.op is _aten.index_select.default:
        return node.args[2] if node.args[1] == 0 and rank_of(node.args[2]) == 1 else None
    first, *more = node.args[1] or (None,)
    vector = (
        type(first) is Value
        and rank_of(first) == 1
        and first.spec.dtype in (torch.int64, torch.int32)
    )
    return first if vector and not any(each is not None for each in more) else None


def counts(node: Node) -> bool:
    """Return whether a node makes the numbers 0, 1, 2 and so on."""
    return node.op is _aten.arange.default or (
        node.op in (_aten.arange.start, _aten.arange.start_step)
        and node.args[0] == 0
        and (len(node.args) < 3 or node.args[2] == 1)
    )


def keeps_rows(node: Node, first: Value) -> bool:
    """Return whether an op whose only tensor is ``first`` computes each row from the same row."""
    op, rank, rest = node.op, rank_of(first), node.args[1:]
    if len(node.reads) != 1:
        return False
    if op in SHAPES:
        return True  # the number of rows is unchanged, so each row keeps its elements
    if op is _aten.unsqueeze.default:
        return bool(rest[0] % (rank + 1) != 0)
    if op in _REDUCTIONS:
        dims = rest[0] if rest and isinstance(rest[0], (list, tuple)) else ()
        return bool(dims) and all(type(dim) is int and dim % rank != 0 for dim in dims)
    if op in (_aten.transpose.int, _aten.expand.default):
        if op is _aten.expand.default:
            return len(rest[0]) == rank
        return all(dim % rank != 0 for dim in rest[:2])
    if op in _ALONG:
        splits = op in (_aten.split.Tensor, _aten.split_with_sizes.default)
        dim = node.kwargs.get(
            "dim", rest[1] if splits and len(rest) > 1 else 0 if splits or not rest else rest[0]
        )
        return type(dim) is int and dim % rank != 0
    return False


def along_last(node: Node, rank: int) -> bool:
    """Return whether ``topk`` or ``sort`` is along the last dimension."""
    return bool(arguments_by_name(node).get("dim", -1) % rank == rank - 1)


def rank_of(value: Any) -> int:
    """Return the number of dimensions; -1 if the value is no tensor."""
    return len(value.spec.sizes) if type(value) is Value else -1


def is_one(size: Any) -> bool:
    """Return whether a size is 1 in every call."""
    return type(size) is int and size == 1


def same_size(a: Any, b: Any) -> bool:
    """Return whether two sizes are the same formula."""
    if isinstance(a, int) or isinstance(b, int):
        return type(a) is type(b) and bool(a == b)
    return getattr(a, "term", a) is getattr(b, "term", b)
