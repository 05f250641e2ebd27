"""The audit's rules of ops that pick elements by data, which read their arguments for
``picking``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from guards.terms import arithmetic
from symshape.auditing.broadcasting import broadcast
from symshape.auditing.domain import EVERYWHERE, FINITE, Abstract, Coordinate, Tag
from symshape.auditing.op_calls import target_of
from symshape.auditing.picking import blurred, embedded, gathered, indexed, ordered, selected_rows
from symshape.auditing.world import World
from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = ["SELECTIONS"]

States = Mapping[Value, Abstract]


def _embedding(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    return [
        embedded(
            world, states[given["weight"]], states[given["indices"]], target_of(node).spec.sizes
        )
    ]


def _one_hot(world: World, node: Node, states: States) -> list[Abstract]:
    ids = states[node.reads[0]]
    table = Abstract((), level=FINITE)
    return [embedded(world, table, ids, target_of(node).spec.sizes)]


def _gather(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    x, index = states[given["self"]], states[given["index"]]
    return [gathered(world, x, given["dim"] % max(len(x.dims), 1), index)]


def _index_select(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    x, index = states[given["self"]], states[given["index"]]
    dim = given["dim"] % max(len(x.dims), 1)
    sizes = target_of(node).spec.sizes
    tag = index.tag
    if tag is not None and tag.kind == "permutation" and len(x.dims[dim]) == 1 and not index.dirty:
        (row,) = tag.coordinates
        dims = (*x.dims[:dim], *world.slot_dims([sizes[dim]]), *x.dims[dim + 1 :])
        moved = Coordinate(dims[dim][0], 0, row.through)
        return [
            world.settled(x.moved(dims, {x.dims[dim][0]: moved}), world.causes("rows are permuted"))
        ]
    return [selected_rows(world, x, dim, index, sizes)]


def _index(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    x = states[given["self"]]
    values = [each for each in given["indices"] if isinstance(each, Value)]
    sizes = target_of(node).spec.sizes
    if any(each.spec.dtype in (torch.bool, torch.uint8) for each in values):
        if len(values) == 1 and isinstance(given["indices"][0], Value):
            return [_where_true(world, x, states[values[0]], sizes)]
        operands = [x, *(states[each] for each in values)]
        return [
            blurred(
                world,
                operands,
                world.slot_dims(sizes),
                world.causes("elements are picked by a mask"),
            )
        ]
    indices = [states[each] if isinstance(each, Value) else None for each in given["indices"]]
    return [indexed(world, x, indices, sizes)]


def _where_true(world: World, x: Abstract, mask: Abstract, sizes: Any) -> Abstract:
    """Return the result of ``x[mask]``: it contains no elements of padding if the mask is false
    there.
    """
    shape = [_size(dim) for dim in x.dims[: len(mask.dims)]]
    wide = x.with_(dims=x.dims)
    padded = mask.with_(dims=(*mask.dims, *((),) * (len(x.dims) - len(mask.dims))))
    shape += [_size(dim) for dim in x.dims[len(mask.dims) :]]
    _, (source, test) = broadcast(world, [wide, padded], shape)
    left = {each for each in source.dirty if world.fact_at(test, each) != 0}
    dirty = frozenset((EVERYWHERE,)) if left or mask.dirty else frozenset()
    cause = (
        x.cause or mask.cause or world.causes("elements of padding are picked", "pick by the mask")
    )
    found = Abstract(world.slot_dims(sizes), dirty, level=x.worst, cause=cause if dirty else None)
    return found.with_(assumes=x.assumes | mask.assumes)


def _size(dim: Any) -> Any:
    return arithmetic.prod([slot.size for slot in dim]) if dim else 1


def _masked_select(world: World, node: Node, states: States) -> list[Abstract]:
    x, mask = (states[each] for each in node.reads[:2])
    if len(x.dims) < len(mask.dims):
        return [
            blurred(
                world,
                [x, mask],
                world.slot_dims(target_of(node).spec.sizes),
                world.causes("masked_select"),
            )
        ]
    mask = mask.with_(dims=(*((),) * (len(x.dims) - len(mask.dims)), *mask.dims))
    return [_where_true(world, x, mask, target_of(node).spec.sizes)]


def _ordered(world: World, node: Node, states: States) -> list[Abstract]:
    given, x = arguments_by_name(node), states[node.reads[0]]
    dim = given.get("dim", -1) % max(len(x.dims), 1)
    cause = world.causes("an order among valid positions and padding", "mask the padding before")
    new = world.slot_dims(target_of(node).spec.sizes)
    dims = (*x.dims[:dim], new[dim], *x.dims[dim + 1 :]) if x.dims else ()
    made = ordered(world, x, dim, dims, cause)
    outputs = [made for _ in node.outputs]
    tag = x.tag
    if (
        len(outputs) == 2
        and not x.dirty
        and len(dims) == 1
        and dims[0]
        and tag is not None
        and tag.kind == "count"
    ):
        through = Coordinate(dims[0][0], 0, object())
        if tag.coordinates == (Coordinate(x.dims[0][0]),):
            counts = Tag("count", (through,), tag.group, tag.offset)
            outputs = [made.with_(tag=counts), made.with_(tag=Tag("permutation", (through,)))]
    return outputs


def _packed(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of ``pack_padded_sequence``: without padding if the lengths count the
    valid positions.
    """
    given = arguments_by_name(node)
    x, lengths = states[given["input"]], states[given["lengths"]]
    batch, time = (0, 1) if given["batch_first"] else (1, 0)
    tag = lengths.tag
    left = set()
    for region in world.settled(x).dirty:
        rows = (
            tag.replaced({lengths.dims[0][0]: Coordinate(x.dims[batch][0])})
            if tag and x.dims[batch]
            else None
        )
        fits = (
            rows is not None
            and rows.kind == "count"
            and region.group == rows.group
            and rows.offset <= 0
            and world.side(region.group) == "right"
            and region.coordinates
            == (*rows.coordinates, Coordinate(x.dims[time][0]) if x.dims[time] else None)
        )
        if not fits:
            left.add(region)
    cause = world.causes(
        "the lengths of a packed sequence are not known to be those of the valid positions"
    )
    source = x.with_(dirty=frozenset((EVERYWHERE,)) if left else frozenset())
    first, second = (each.spec.sizes for each in node.outputs if each is not None)
    data = blurred(world, [source, lengths], world.slot_dims(first), cause).with_(level=x.worst)
    return [data, blurred(world, [lengths], world.slot_dims(second), cause).with_(level=FINITE)]


def _scattered(world: World, node: Node, states: States) -> list[Abstract]:
    output = target_of(node)
    cause = world.causes("elements are written at indices", "keep padding out of the indices")
    return [
        blurred(
            world, [states[each] for each in node.reads], world.slot_dims(output.spec.sizes), cause
        )
    ]


SELECTIONS = {
    "embedding": _embedding,
    "one_hot": _one_hot,
    "gather": _gather,
    "index_select": _index_select,
    "index": _index,
    "masked_select": _masked_select,
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue"), _ordered),
    "_pack_padded_sequence": _packed,
    **dict.fromkeys(
        (
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_put",
            "index_add",
            "index_copy",
            "_index_put_impl",
        ),
        _scattered,
    ),
}
"""The rules by the name of the op."""
