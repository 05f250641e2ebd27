"""Abstract tensors under common dimensions, as broadcasting aligns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guards.terms import arithmetic
from symshape.auditing.domain import Abstract, Coordinate, Dims, Slot
from symshape.auditing.world import World

__all__ = ["broadcast", "referenced"]


def referenced(x: Abstract) -> frozenset[Slot]:
    """Return the slots that the regions and the tag of an abstract tensor name."""
    found: set[Slot] = set()
    for region in (*x.dirty, *x.facts):
        found |= region.slots
    if x.tag is not None:
        found |= {each.slot for each in x.tag.coordinates if each.slot is not None}
    return frozenset(found)


def broadcast(
    world: World, operands: Sequence[Abstract], sizes: Sequence[Any]
) -> tuple[Dims, list[Abstract]]:
    """Return new dimensions of these sizes, and the operands under them."""
    named = [referenced(each) for each in operands]
    maps: list[dict[Slot, Coordinate | None]] = [{} for _ in operands]
    dims = []
    for back, size in enumerate(reversed(list(sizes)), 1):
        parts = [each.dims[-back] if back <= len(each.dims) else () for each in operands]
        wanted = _structure(world, parts, named, world.size(size))
        dims.append(wanted)
        for part, mapping, names in zip(parts, maps, named, strict=True):
            fits = len(part) == len(wanted) and all(
                world.same(a.size, b.size) for a, b in zip(part, wanted, strict=True)
            )
            for place, slot in enumerate(part):
                if slot in names:
                    mapping[slot] = Coordinate(wanted[place]) if fits else None
    dims.reverse()
    return tuple(dims), [
        each.moved(tuple(dims), mapping) for each, mapping in zip(operands, maps, strict=True)
    ]


def _structure(
    world: World, parts: Sequence[tuple[Slot, ...]], named: Sequence[frozenset[Slot]], size: Any
) -> tuple[Slot, ...]:
    """Return new slots for one dimension, like those of the operand whose slots matter."""
    for part, names in zip(parts, named, strict=True):
        if names & set(part) and world.same(arithmetic.prod([each.size for each in part]), size):
            return tuple(Slot(each.size) for each in part)
    return world.slot_dims([size])[0]
