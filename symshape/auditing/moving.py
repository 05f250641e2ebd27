"""The audit's rules of ops that move elements, which read their arguments for ``viewing``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symshape.auditing.domain import EVERYWHERE, Abstract
from symshape.auditing.op_calls import target_of
from symshape.auditing.picking import blurred
from symshape.auditing.viewing import (
    expanded,
    joined,
    lost,
    padded,
    permuted,
    picked,
    sliced,
    viewed,
)
from symshape.auditing.world import FINITE_NUMBERS, World
from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = ["MOVES"]

States = Mapping[Value, Abstract]


def _view(world: World, node: Node, states: States) -> list[Abstract]:
    if node.op._overloadname == "dtype":  # a view of the bits: 0.0 and -0.0 differ
        x = states[node.reads[0]]
        loose = FINITE_NUMBERS in x.assumes
        cause = x.cause or world.causes("the bits of numbers are read", known=False)
        dirty = frozenset((EVERYWHERE,)) if x.dirty or loose else frozenset()
        dims = world.slot_dims(target_of(node).spec.sizes)
        return [Abstract(dims, dirty, cause=cause if dirty else None, assumes=x.assumes)]
    return [viewed(world, states[node.reads[0]], target_of(node).spec.sizes)]


def _expand(world: World, node: Node, states: States) -> list[Abstract]:
    return [expanded(world, states[node.reads[0]], target_of(node).spec.sizes)]


def _permute(world: World, node: Node, states: States) -> list[Abstract]:
    x = states[node.reads[0]]
    rank = len(x.dims)
    given = arguments_by_name(node)
    name = node.op._schema.name
    order = list(range(rank))
    if name == "aten::permute":
        order = [each % rank for each in given["dims"]]
    elif rank >= 2:
        first, second = (given["dim0"], given["dim1"]) if "dim0" in given else (0, 1)
        first, second = first % rank, second % rank
        order[first], order[second] = order[second], order[first]
    return [permuted(x, order)]


def _select(world: World, node: Node, states: States) -> list[Abstract]:
    given, x = arguments_by_name(node), states[node.reads[0]]
    return [picked(world, x, given["dim"] % len(x.dims), given["index"])]


def _slice(world: World, node: Node, states: States) -> list[Abstract]:
    given, x = arguments_by_name(node), states[node.reads[0]]
    dim = given.get("dim", 0) % len(x.dims)
    start, step = given.get("start"), given.get("step", 1)
    return [sliced(world, x, dim, start, step, target_of(node).spec.sizes[dim])]


def _split(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of ``split``, ``chunk`` or ``unbind``: slices one after the other."""
    given, x = arguments_by_name(node), states[node.reads[0]]
    dim = given.get("dim", 0) % len(x.dims)
    start: Any = 0
    found = []
    for index, each in enumerate(node.outputs):
        assert each is not None
        if node.op._schema.name == "aten::unbind":
            found.append(picked(world, x, dim, index))
            continue
        size = world.size(each.spec.sizes[dim])
        if start is None:
            dims = (*x.dims[:dim], *world.slot_dims([size]), *x.dims[dim + 1 :])
            found.append(
                lost(
                    world, x, dims, "a piece whose positions are not known", frozenset(x.dims[dim])
                )
            )
            continue
        found.append(sliced(world, x, dim, start, 1, size))
        start = start + size if isinstance(size, int) else None
    return found


def _cat(world: World, node: Node, states: States) -> list[Abstract]:
    given, output = arguments_by_name(node), target_of(node)
    parts = [states[each] for each in node.reads]
    rank = output.spec.dim
    sizes = list(output.spec.sizes)
    dim = given.get("dim", 0) % max(rank, 1)
    if node.op._schema.name == "aten::stack":
        parts = [each.with_(dims=(*each.dims[:dim], (), *each.dims[dim:])) for each in parts]
    parts = [each for each in parts if len(each.dims) == rank]  # cat ignores an empty vector
    if len(parts) == 1:
        return [viewed(world, parts[0], sizes)]
    return [joined(world, parts, dim, sizes)]


def _pad(world: World, node: Node, states: States) -> list[Abstract]:
    given, x = arguments_by_name(node), states[node.reads[0]]
    pad = [world.size(each) for each in given["pad"]]
    value = given.get("value", 0) or 0
    before: list[Any] = [0] * len(x.dims)
    for i in range(len(pad) // 2):
        before[-1 - i] = pad[2 * i]
    if not isinstance(value, (int, float)):
        return [
            blurred(
                world,
                [x],
                world.slot_dims(target_of(node).spec.sizes),
                world.causes("unknown padding"),
            )
        ]
    return [padded(world, x, before, float(value), target_of(node).spec.sizes)]


def _repeat(world: World, node: Node, states: States) -> list[Abstract]:
    x, sizes = states[node.reads[0]], target_of(node).spec.sizes
    return [expanded(world, x, sizes)]


def _turned(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``flip`` or ``roll``: positions along some dimensions are lost."""
    given, x = arguments_by_name(node), states[node.reads[0]]
    dims = given.get("dims") or range(len(x.dims))
    gone = x.slots([each % len(x.dims) for each in dims]) if x.dims else frozenset()
    reason = "positions are turned: padding comes to where valid positions were"
    made = lost(world, x, x.dims, reason, gone)
    return [
        made.with_(
            dims=world.slot_dims(target_of(node).spec.sizes)
            if gone and made.everywhere
            else made.dims
        )
    ]


MOVES = {
    **dict.fromkeys(
        (
            *("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten"),
            *("unsqueeze", "squeeze", "view_as"),
        ),
        _view,
    ),
    "expand": _expand,
    **dict.fromkeys(("permute", "transpose", "t", "swapaxes", "swapdims"), _permute),
    "select": _select,
    "slice": _slice,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unbind"), _split),
    **dict.fromkeys(("cat", "stack", "concat"), _cat),
    "constant_pad_nd": _pad,
    "repeat": _repeat,
    **dict.fromkeys(("flip", "roll"), _turned),
}
"""The rules by the name of the op."""
