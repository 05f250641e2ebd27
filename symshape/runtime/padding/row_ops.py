"""Properties of ops on tensors with rows: which compute each row from the same row, and which read
or write rows.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = [
    "SHAPES",
    "along_last",
    "counts",
    "index_of",
    "is_one",
    "keeps_rows",
    "rank_of",
    "same_size",
]

_aten = torch.ops.aten
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
