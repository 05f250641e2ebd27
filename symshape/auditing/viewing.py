"""The results of ops that move elements: views, permutations, slices, joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guards.terms import arithmetic
from guards.terms.term import Op
from symshape.auditing.domain import (
    FINITE,
    Abstract,
    Coordinate,
    Dims,
    Fact,
    Region,
    Slot,
    assumptions_of,
    cause_of,
    everywhere_if,
    level_of,
)
from symshape.auditing.picking import all_blurred
from symshape.auditing.world import (
    FINITE_NUMBERS,
    States,
    World,
    broadcast,
    referenced,
    rules_of,
    target_of,
)
from symshape.graph.steps import Node, arguments_by_name


def lost(
    world: World, x: Abstract, dims: Dims, reason: str, slots: frozenset[Slot] | None = None
) -> Abstract:
    """Return ``x`` under other dimensions, without the regions that name some slots (all if not
    given).
    """
    gone = slots if slots is not None else referenced(x)
    return world.settled(x.moved(dims, dict.fromkeys(gone & referenced(x))), world.causes(reason))


def viewed(world: World, x: Abstract, sizes: Sequence[Any]) -> Abstract:
    """Return a view of other sizes: slots move between dimensions, and split where their parts do
    not matter.
    """
    stack = [slot for dim in x.dims for slot in dim]
    named = referenced(x)
    found: list[tuple[Slot, ...]] = []
    broken: set[Slot] = set()
    for size in reversed([world.size(each) for each in sizes]):
        taken = _take(world, stack, size, named, broken)
        if taken is None:
            return lost(
                world,
                x,
                world.slot_dims(sizes),
                "a view mixes valid positions and padding in one dimension",
            )
        found.append(taken)
    if stack and not all(world.same(slot.size, 1) for slot in stack):
        return lost(
            world,
            x,
            world.slot_dims(sizes),
            "a view mixes valid positions and padding in one dimension",
        )
    broken |= set(stack) & named
    reason = "a view splits the dimension that has the padding"
    return lost(world, x, tuple(reversed(found)), reason, frozenset(broken))


def _take(
    world: World, stack: list[Slot], size: Any, named: frozenset[Slot], broken: set[Slot]
) -> tuple[Slot, ...] | None:
    """Pop slots off the end of the stack whose product is ``size`` and return them; None if there
    are none.
    """
    if isinstance(size, int) and size == 1:
        return ()
    taken: list[Slot] = []
    while stack:
        last = stack.pop()
        if world.same(_product([last, *taken]), size):
            return (last, *taken)
        piece = _piece(world, last, taken, size)
        if piece is not None:
            inner, outer = Slot(piece[0]), Slot(piece[1])
            if last in named:
                broken.add(last)
            stack.append(outer)
            return (inner, *taken)
        taken.insert(0, last)
    return None


def _product(slots: Sequence[Slot]) -> Any:
    return arithmetic.prod([slot.size for slot in slots])


def _piece(world: World, last: Slot, taken: Sequence[Slot], size: Any) -> tuple[Any, Any] | None:
    """Return the inner and the outer part of a slot, of which the inner one completes ``size``."""
    done = world.size(_product(taken)) if taken else 1
    if isinstance(size, int) and isinstance(done, int):
        if done == 0 or size % done:
            return None
        inner = size // done
    else:
        factor = _factor(size, done)
        if factor is None:
            return None
        inner = factor
    if isinstance(last.size, int):
        return (inner, last.size // inner) if inner and last.size % inner == 0 else None
    outer = _factor(last.size, inner)
    return None if outer is None else (inner, outer)


def _factor(product: Any, part: Any) -> int | None:
    """Return the integer whose product with ``part`` is ``product``; None if there is none."""
    whole, piece = arithmetic.integer(product), arithmetic.integer(part)
    if piece.op is Op.CONST and whole.op is not Op.CONST:
        return None
    number = arithmetic.content(whole) // max(arithmetic.content(piece), 1)
    return number if number > 0 and arithmetic.scale(piece, number) is whole else None


def permuted(x: Abstract, order: Sequence[int]) -> Abstract:
    """Return ``x`` with its dimensions in another order."""
    return x.with_(dims=tuple(x.dims[i] for i in order))


def expanded(world: World, x: Abstract, sizes: Sequence[Any]) -> Abstract:
    """Return ``x`` with dimensions of size 1 repeated, and new ones in front."""
    dims: list[tuple[Slot, ...]] = []
    broken: set[Slot] = set()
    for back, size in enumerate(reversed(list(sizes)), 1):
        dim = x.dims[-back] if back <= len(x.dims) else ()
        if dim and world.same(_product(dim), world.size(size)):
            dims.append(dim)
            continue
        broken |= set(dim)
        dims.append(world.slot_dims([size])[0])
    return lost(
        world,
        x,
        tuple(reversed(dims)),
        "a dimension is expanded whose size is not known",
        frozenset(broken),
    )


def picked(world: World, x: Abstract, dimension: int, index: Any) -> Abstract:
    """Return the result of ``select``: one index of a dimension."""
    dims = (*x.dims[:dimension], *x.dims[dimension + 1 :])
    slots = x.dims[dimension]
    if len(slots) != 1:
        return lost(
            world,
            x,
            dims,
            "an element of a dimension that holds padding is picked",
            frozenset(slots),
        )
    (slot,) = slots
    at = _fixed(world, slot, index)
    mapping: dict[Slot, Coordinate | None] = {slot: None}
    causing = "an element is picked whose position may be padding"
    if at is not None:
        mapping[slot] = at
        if at.offset < 0:
            x = x.with_(tag=None)
            if not _at_end(world, x, slot):
                mapping[slot] = None
    return world.settled(
        x.moved(dims, mapping), world.causes(causing, "pick the last valid position of each row")
    )


def _fixed(world: World, slot: Slot, index: Any) -> Coordinate | None:
    """Return the fixed coordinate of an index, below 0 from the end; None if it is not known."""
    index = world.size(index)
    if isinstance(index, int):
        return Coordinate(None, index)
    for back in (1, 2):
        if world.same(index, arithmetic.sub(slot.size, back)):
            return Coordinate(None, -back)
    return None


def _at_end(world: World, x: Abstract, slot: Slot) -> bool:
    """Return whether an index from the end of a slot is one from the end of each mask that is named
    along it.
    """
    for region in (*x.dirty, *x.facts):
        for each in region.coordinates:
            if each.slot is slot and (
                region.group < 0
                or each.offset
                or not world.same(slot.size, world.lengths[region.group])
            ):
                return False
    return True


def sliced(world: World, x: Abstract, dimension: int, start: Any, step: Any, size: Any) -> Abstract:
    """Return a slice of one dimension; ``size`` is that of the result."""
    slots = x.dims[dimension]
    size = world.size(size)
    if isinstance(size, int) and size == 1 and len(slots) == 1:
        made = picked(world, x, dimension, 0 if start is None else start)
        return made.with_(dims=(*x.dims[:dimension], (), *x.dims[dimension + 1 :]))
    if len(slots) == 1 and step == 1 and world.same(slots[0].size, size):
        return x
    new = world.slot_dims([size])
    dims = (*x.dims[:dimension], *new, *x.dims[dimension + 1 :])
    mapping: dict[Slot, Coordinate | None] = dict.fromkeys(slots)
    start = _start(world, start, slots)
    if len(slots) == 1 and step == 1 and start is not None and new[0]:
        mapping[slots[0]] = Coordinate(new[0][0], start)
    return world.settled(
        x.moved(dims, mapping), world.causes("a slice whose positions are not known")
    )


def _start(world: World, start: Any, slots: tuple[Slot, ...]) -> int | None:
    start = world.size(start)
    if start is None:
        return 0
    if isinstance(start, int) and start >= 0:
        return start
    return None


def padded(
    world: World, x: Abstract, before: Sequence[Any], value: float, sizes: Sequence[Any]
) -> Abstract:
    """Return ``x`` padded with a constant to ``sizes``; ``before`` gives the count before each
    dimension.
    """
    dims: list[tuple[Slot, ...]] = []
    mapping: dict[Slot, Coordinate | None] = {}
    grown = []
    for dim, first, size in zip(x.dims, before, sizes, strict=True):
        if (isinstance(first, int) and first == 0) and world.same(_product(dim), world.size(size)):
            dims.append(dim)
            continue
        dims.append(world.slot_dims([size])[0])
        for slot in dim:
            fits = len(dim) == 1 and isinstance(first, int) and dims[-1]
            mapping[slot] = Coordinate(dims[-1][0], -first) if fits else None
            grown.append(slot)
    kept: dict[Region, Fact] = {}
    for region, fact in x.facts.items():
        outside = [each for each in region.coordinates if each.slot in grown]
        if not outside or (fact == value and _beyond(world, region, before, grown)):
            if outside and region.coordinates[-1].slot not in grown:
                continue
            if not outside:
                continue  # new elements at the region's positions are another number
            kept[region] = fact
    level = max(x.level if len(kept) == len(x.facts) else x.worst, level_of(value))
    plain = x.with_(facts=kept, rest=None, tag=None, level=level, low=min(x.lowest, value))
    return world.settled(plain.moved(tuple(dims), mapping), world.causes("padding is moved"))


def _beyond(world: World, region: Region, before: Sequence[Any], grown: Sequence[Slot]) -> bool:
    """Return whether new elements are after the padded end of each row, where the region
    continues.
    """
    last = region.coordinates[-1]
    if (
        region.group < 0
        or any(each.slot in grown for each in region.coordinates[:-1])
        or last.slot not in grown
    ):
        return False
    if len(grown) != 1:
        return False
    added_before = any(not (isinstance(each, int) and each == 0) for each in before)
    return not added_before if world.side(region.group) == "right" else False


def joined(
    world: World, parts: Sequence[Abstract], dimension: int, sizes: Sequence[Any]
) -> Abstract:
    """Return the result of ``cat`` along a dimension."""
    new = world.slot_dims(sizes)
    moved = []
    for part in parts:
        part = part.moved(
            part.dims, dict.fromkeys(frozenset(part.dims[dimension]) & referenced(part))
        )
        flat = part.with_(dims=(*part.dims[:dimension], (), *part.dims[dimension + 1 :]))
        moved.append(flat)
    shape = [*sizes[:dimension], 1, *sizes[dimension + 1 :]]
    dims, operands = broadcast(world, moved, shape)
    dims = (*dims[:dimension], new[dimension], *dims[dimension + 1 :])
    facts = {}
    for region in dict.fromkeys(region for each in operands for region in each.facts):
        known = {world.fact_at(each, region) for each in operands}
        if len(known) == 1 and (fact := known.pop()) is not None:
            facts[region] = fact
    whole = all(region in facts for each in operands for region in each.facts)
    level = max([FINITE, *(each.level if whole else each.worst for each in operands)])
    low = min(each.low if whole else each.lowest for each in operands) if operands else 0.0
    cause, assumes = cause_of(operands), assumptions_of(operands)
    dirty = frozenset[Region]().union(*(each.dirty for each in operands))
    why = world.causes("tensors are joined along the dimension that has the padding")
    return world.settled(
        Abstract(dims, dirty, facts, None, level, low, None, cause, assumes), cause or why
    )


# -- the rules, which read the arguments of ops for the functions above


def _view(world: World, node: Node, states: States) -> list[Abstract]:
    if node.op._overloadname == "dtype":  # a view of the bits: 0.0 and -0.0 differ
        x = states[node.reads[0]]
        loose = FINITE_NUMBERS in x.assumes
        cause = x.cause or world.causes("the bits of numbers are read", known=False)
        dirty = everywhere_if(x.dirty or loose)
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
        return all_blurred(world, node, [x], world.causes("unknown padding"))
    return [padded(world, x, before, float(value), target_of(node).spec.sizes)]


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


MOVES = rules_of(
    ("view _unsafe_view reshape _reshape_alias flatten unflatten", _view),
    ("unsqueeze squeeze view_as", _view),
    ("expand repeat", _expand),
    ("permute transpose t swapaxes swapdims", _permute),
    ("select", _select),
    ("slice", _slice),
    ("split split_with_sizes chunk unbind", _split),
    ("cat stack concat", _cat),
    ("constant_pad_nd", _pad),
    ("flip roll", _turned),
)
"""The rules by the name of the op."""
