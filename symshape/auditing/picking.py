"""The results of ops that read or write elements at index tensors: embedding, gather, index, topk,
scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from guards.terms import arithmetic
from symshape.auditing.domain import (
    EVERYWHERE,
    FINITE,
    Abstract,
    Cause,
    Coordinate,
    Dims,
    Region,
    Slot,
    Tag,
    assumptions_of,
    cause_of,
    everywhere_if,
)
from symshape.auditing.world import States, World, broadcast, referenced, rules_of, target_of
from symshape.graph.steps import Node, Value, arguments_by_name


def embedded(world: World, weight: Abstract, ids: Abstract, sizes: Sequence[Any]) -> Abstract:
    """Return the result of ``embedding(weight, ids)``: a row for each index."""
    dims = (*ids.dims, *world.slot_dims(sizes[len(ids.dims) :]))
    cause = world.causes("rows are looked up in a table that depends on padding")
    dirty = ids.dirty | everywhere_if(weight.dirty)
    found = Abstract(dims, dirty, level=weight.worst, cause=ids.cause or weight.cause)
    return world.settled(found.with_(assumes=ids.assumes | weight.assumes), cause)


def gathered(world: World, x: Abstract, dimension: int, index: Abstract) -> Abstract:
    """Return the result of ``gather``: an element is picked along one dimension by the index at its
    own position.
    """
    if x.dims and index.dims and dimension < len(index.dims):
        x = _within(world, x, index, dimension)
    level, assumes = x.worst, x.assumes | index.assumes
    cause = world.causes("gather picks elements that may be padding")
    made = Abstract(
        index.dims,
        x.dirty | index.dirty,
        level=level,
        cause=x.cause or index.cause,
        assumes=assumes,
    )
    return world.settled(made, cause)


def _within(world: World, x: Abstract, index: Abstract, dimension: int) -> Abstract:
    """Return ``x`` by the slots of the index, except for the dimension along which elements are
    picked.
    """
    mapping: dict[Slot, Coordinate | None] = {}
    for i, (mine, theirs) in enumerate(zip(x.dims, index.dims, strict=True)):
        alike = len(mine) == len(theirs) and i != dimension
        if len(mine) > 1:
            alike = alike and all(
                world.same(a.size, b.size) for a, b in zip(mine, theirs, strict=False)
            )
        for place, slot in enumerate(mine):
            mapping[slot] = Coordinate(theirs[place]) if alike else None
    kept = {slot: found for slot, found in mapping.items() if slot in referenced(x)}
    return x.moved(index.dims, kept)


def selected_rows(
    world: World, x: Abstract, dimension: int, index: Abstract, sizes: Sequence[Any]
) -> Abstract:
    """Return the result of ``index_select``: whole slices picked by a vector of indices."""
    new = world.slot_dims([sizes[dimension]])[0]
    dims = (*x.dims[:dimension], new, *x.dims[dimension + 1 :])
    made = x.moved(dims, dict.fromkeys(frozenset(x.dims[dimension]) & referenced(x)))
    dirty = made.dirty | everywhere_if(index.dirty)
    cause = world.causes("rows are picked by their index, and some may be padding")
    made = made.with_(
        dirty=dirty, cause=made.cause or index.cause, assumes=made.assumes | index.assumes
    )
    return world.settled(made, cause)


def indexed(
    world: World, x: Abstract, indices: Sequence[Abstract | None], sizes: Sequence[Any]
) -> Abstract:
    """Return the result of ``x[i, j, …]`` with index tensors in front: if they are positions, it is
    ``x`` moved.

    The number of valid positions minus 1 is the index of the last valid position.
    """
    given = [each for each in indices if each is not None]
    front = len(given)
    if any(each is None for each in indices[:front]) or any(
        each is not None for each in indices[front:]
    ):
        why = world.causes("index tensors among whole dimensions")
        return blurred(world, [x, *given], sizes, why)
    count = len(sizes) - (len(x.dims) - front)
    dims, moved = broadcast(world, given, sizes[:count])
    mapping: dict[Slot, Coordinate | None] = {}
    named = referenced(x)
    last = None
    for place, (dim, index) in enumerate(zip(x.dims[:front], moved, strict=True)):
        for slot in dim:
            at = (
                index.tag.coordinates[0]
                if index.tag is not None and index.tag.kind == "position"
                else None
            )
            if slot in named:
                usable = len(dim) == 1 and at is not None and at.slot is not None and at.offset >= 0
                mapping[slot] = at if usable else None  # an index below 0 counts from the end
        if _is_last(world, index) and len(dim) == 1:
            last = (place, dim[0], index)
    if last is not None and not any(each.dirty for each in given):
        x, mapping = _at_last(world, x, last, mapping)
    made = x.moved((*dims, *x.dims[front:]), mapping)
    dirty = made.dirty.union(*(each.dirty for each in moved))
    assumes = assumptions_of((made, *moved))
    cause = cause_of((x, *moved))
    why = world.causes(
        "an index picks elements that may be padding", "pick by the number of valid positions"
    )
    return world.settled(made.with_(dirty=dirty, assumes=assumes, cause=cause), why)


def _is_last(world: World, index: Abstract) -> bool:
    tag = index.tag
    if tag is None or tag.kind != "count" or tag.offset != -1:
        return False
    return world.side(tag.group) == "right" and world.filled(tag.group)


def _at_last(
    world: World,
    x: Abstract,
    last: tuple[int, Slot, Abstract],
    mapping: dict[Slot, Coordinate | None],
) -> tuple[Abstract, dict[Slot, Coordinate | None]]:
    """Return ``x`` without the dirty regions that do not contain the last valid position of the
    same row.
    """
    _, slot, index = last
    assert index.tag is not None
    kept: set[Region] = set()
    for region in x.dirty:
        end = world.along(region, slot)
        rows = (
            Region(region.group, region.coordinates[:-1]).replaced(mapping)
            if region.group >= 0
            else None
        )
        clean = (
            end is not None
            and end.offset <= 0
            and region.group == index.tag.group
            and rows is not None
            and rows.coordinates == index.tag.coordinates
        )
        if not clean:
            kept.add(region)
    return x.with_(dirty=frozenset(kept)), mapping


def ordered(world: World, x: Abstract, dimension: int, dims: Dims, cause: Cause) -> Abstract:
    """Return the result of ``topk`` or ``sort``: elements depend on all others along one
    dimension.
    """
    slots = frozenset(x.dims[dimension]) if x.dims else frozenset()
    dirty = frozenset(
        EVERYWHERE if region.slots & slots else region for region in world.settled(x).dirty
    )
    mapping = {
        slot: Coordinate(new)
        for i, (old, made) in enumerate(zip(x.dims, dims, strict=True))
        if i != dimension and len(old) == len(made)
        for slot, new in zip(old, made, strict=True)
    }
    plain = Abstract(x.dims, dirty, level=x.worst, cause=x.cause, assumes=x.assumes)
    lost = dict.fromkeys(referenced(plain) - mapping.keys())
    return world.settled(plain.moved(dims, {**lost, **mapping}), cause)


def blurred(
    world: World, operands: Sequence[Abstract], sizes: Sequence[Any], cause: Cause
) -> Abstract:
    """Return a result of these sizes about which only its operands are known: dirty everywhere if
    any operand is dirty.
    """
    dirty = any(each.dirty for each in operands)
    found = (cause_of(operands) or cause) if dirty else None
    dims, assumes = world.slot_dims(sizes), assumptions_of(operands)
    return Abstract(dims, everywhere_if(dirty), cause=found, assumes=assumes)


def all_blurred(
    world: World, node: Node, operands: Sequence[Abstract], cause: Cause
) -> list[Abstract]:
    """Return such a result for each output of a step."""
    outputs = [each for each in node.outputs if each is not None]
    return [blurred(world, operands, each.spec.sizes, cause) for each in outputs]


# -- the rules, which read the arguments of ops for the functions above


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
        return [blurred(world, operands, sizes, world.causes("elements are picked by a mask"))]
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
    dirty = everywhere_if(left or mask.dirty)
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
        return all_blurred(world, node, [x, mask], world.causes("masked_select"))
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
    source = x.with_(dirty=everywhere_if(left))
    first, second = (each.spec.sizes for each in node.outputs if each is not None)
    data = blurred(world, [source, lengths], first, cause).with_(level=x.worst)
    return [data, blurred(world, [lengths], second, cause).with_(level=FINITE)]


def _scattered(world: World, node: Node, states: States) -> list[Abstract]:
    cause = world.causes("elements are written at indices", "keep padding out of the indices")
    reads = [states[each] for each in node.reads]
    return [blurred(world, reads, target_of(node).spec.sizes, cause)]


SELECTIONS = rules_of(
    ("embedding", _embedding),
    ("one_hot", _one_hot),
    ("gather", _gather),
    ("index_select", _index_select),
    ("index", _index),
    ("masked_select", _masked_select),
    ("topk sort argsort kthvalue", _ordered),
    ("_pack_padded_sequence", _packed),
    ("scatter scatter_add scatter_reduce", _scattered),
    ("index_put index_add index_copy _index_put_impl", _scattered),
)
"""The rules by the name of the op."""
