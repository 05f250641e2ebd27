"""The results of ops that read or write elements at index tensors: embedding, gather, index, topk,
scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.auditing.broadcasting import broadcast, referenced
from symshape.auditing.domain import EVERYWHERE, Abstract, Cause, Coordinate, Dims, Region, Slot
from symshape.auditing.world import World

__all__ = ["blurred", "embedded", "gathered", "indexed", "ordered", "selected_rows"]


def embedded(world: World, weight: Abstract, ids: Abstract, sizes: Sequence[Any]) -> Abstract:
    """Return the result of ``embedding(weight, ids)``: a row for each index."""
    dims = (*ids.dims, *world.slot_dims(sizes[len(ids.dims) :]))
    cause = world.causes("rows are looked up in a table that depends on padding")
    dirty = ids.dirty | ({EVERYWHERE} if weight.dirty else frozenset())
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
    dirty = made.dirty | ({EVERYWHERE} if index.dirty else frozenset())
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
        return blurred(
            world,
            [x, *given],
            world.slot_dims(sizes),
            world.causes("index tensors among whole dimensions"),
        )
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
    assumes = made.assumes.union(*(each.assumes for each in moved))
    cause = next((each.cause for each in (x, *moved) if each.cause is not None), None)
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


def blurred(world: World, operands: Sequence[Abstract], dims: Dims, cause: Cause) -> Abstract:
    """Return a result about which only its operands are known: dirty everywhere if any operand is
    dirty.
    """
    dirty = any(each.dirty for each in operands)
    found = (
        next((each.cause for each in operands if each.cause is not None), cause) if dirty else None
    )
    assumes = frozenset().union(*(each.assumes for each in operands))
    return Abstract(
        dims, frozenset((EVERYWHERE,)) if dirty else frozenset(), cause=found, assumes=assumes
    )
