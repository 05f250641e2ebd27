"""The results of ops that mix elements along dimensions: reductions, softmax, scans, matrix
products, attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from symshape.auditing.domain import (
    AFTER,
    ANYTHING,
    EVERYWHERE,
    FINITE,
    LOW,
    Abstract,
    Cause,
    Coordinate,
    Region,
    Slot,
    Tag,
    after,
    finite_as,
)
from symshape.auditing.pointwise import chosen, combine
from symshape.auditing.world import (
    FINITE_NUMBERS,
    MASKED_ROWS,
    SMALL_SCORES,
    STRONG,
    States,
    World,
    broadcast,
    referenced,
    rules_of,
    target_of,
)
from symshape.graph.steps import Node, Value, arguments_by_name

_NOT_NEGATIVE = frozenset({"var", "std", "norm", "linalg_vector_norm", "count_nonzero"})
_SAME_NUMBER = frozenset({"mean", "amax", "amin", "max", "min"})


def reduced(
    world: World, name: str, x: Abstract, dimensions: Iterable[int], keepdim: bool, cause: Cause
) -> Abstract:
    """Return the result of a reduction over some dimensions."""
    gone = frozenset(dimensions)
    slots = x.slots(gone)
    dims = tuple(
        () if i in gone else dim for i, dim in enumerate(x.dims) if keepdim or i not in gone
    )
    dirty = {_escaped(world, x, region, slots) for region in world.settled(x).dirty}
    facts = {}
    for region, fact in x.facts.items():
        if region.slots & slots or isinstance(fact, str):
            continue
        if name in _SAME_NUMBER or (name == "sum" and fact == 0):
            facts[region] = fact
        elif name in ("any", "all"):
            facts[region] = float(bool(fact))
    rest = x.constant if name in _SAME_NUMBER else None
    lowest = x.lowest
    low = lowest if name in _SAME_NUMBER else -math.inf
    if name in _NOT_NEGATIVE or (name == "sum" and lowest >= 0):
        low = 0.0
    masks = _whole_rows(world, name, x, slots)
    if masks is not None and x.rest is not None and x.rest > 0 and world.filled(masks.group):
        low = x.rest  # each row has a valid position
    level = finite_as((x,))
    tag = None
    if masks is not None and x.rest == 1 and len(slots) == 1 and world.side(masks.group) == "right":
        tag = Tag("count", masks.coordinates[:-1], masks.group)
    made = Abstract(dims, frozenset(dirty), facts, rest, level, low, tag, x.cause, x.assumes)
    return world.settled(made, cause)


def _whole_rows(world: World, name: str, x: Abstract, slots: frozenset[Slot]) -> Region | None:
    """Return the region of padding if whole rows are summed of an ``x`` that is 0 there and one
    number elsewhere.
    """
    if name != "sum" or x.rest is None or len(x.facts) != 1:
        return None
    ((region, fact),) = x.facts.items()
    if region.group < 0 or fact != 0:
        return None
    last = region.coordinates[-1]
    if last.slot is None or last.slot not in slots or last.offset != 0:
        return None
    return region if world.same(last.slot.size, world.lengths[region.group]) else None


def _escaped(world: World, x: Abstract, region: Region, slots: frozenset[Slot]) -> Region:
    """Return the region of a reduction's result that depends on a dirty region, if these slots are
    summed away.
    """
    if not region.slots & slots:
        return region
    if world.side(region.group) != "right":
        return EVERYWHERE
    *rows, last = region.coordinates
    if last.slot is None or any(each.slot in slots for each in rows):
        return EVERYWHERE
    for query, shift in world.causal(x, last.slot).items():
        if query not in slots:
            return Region(region.group, (*rows, Coordinate(query, last.offset + shift)))
    return EVERYWHERE


def mixed(
    world: World, x: Abstract, dimensions: Iterable[int], cause: Cause, level: int | None = None
) -> Abstract:
    """Return a result of the same dimensions whose elements depend on everything along some of
    them.
    """
    slots = x.slots(dimensions)
    dirty = frozenset(
        EVERYWHERE if region.slots & slots else region for region in world.settled(x).dirty
    )
    found = finite_as((x,)) if level is None else level
    return world.settled(
        Abstract(x.dims, dirty, level=found, cause=x.cause, assumes=x.assumes), cause
    )


def scanned(world: World, x: Abstract, dimension: int, cause: Cause) -> Abstract:
    """Return the result of a scan, such as a running sum: an element depends on the elements before
    it.
    """
    slots = x.slots([dimension])
    dirty = set()
    for region in world.settled(x).dirty:
        ends = region.group >= 0 and region.coordinates[-1].slot in slots and len(slots) == 1
        rows = any(each.slot in slots for each in region.coordinates[:-1])
        stays = not region.slots & slots or (
            ends and not rows and world.side(region.group) == "right"
        )
        dirty.add(region if stays else EVERYWHERE)
    level = finite_as((x,))
    return world.settled(
        Abstract(x.dims, frozenset(dirty), level=level, cause=x.cause, assumes=x.assumes), cause
    )


def softmax(world: World, x: Abstract, dimension: int, *, logarithm: bool = False) -> Abstract:
    """Return the result of ``softmax`` along a dimension: masked scores weigh exactly 0."""
    slots = x.slots([dimension])
    masks = {
        region: fact
        for region, fact in x.facts.items()
        if region.slots & slots and (isinstance(fact, str) or fact <= STRONG)
    }
    bottom = [region for region, fact in masks.items() if fact != -math.inf]
    assumes, extra = _rows_without_scores(world, x, masks, slots)
    if not all(
        world.filled(region.group) for region in bottom
    ):  # a row of equal large negative scores averages its padding
        masks = {region: fact for region, fact in masks.items() if fact == -math.inf}
    if bottom:
        assumes |= {SMALL_SCORES}
    seen = x.with_(facts={**dict.fromkeys(masks, 0.0)})
    dirty = set(extra)
    for region in world.settled(seen.with_(dirty=x.dirty)).dirty:
        dirty.add(_escaped(world, seen, region, slots))
    empty = any(fact == -math.inf and not region.slots & slots for region, fact in x.facts.items())
    level = ANYTHING if empty or x.worst > LOW or (logarithm and x.worst != FINITE) else FINITE
    if logarithm:
        facts = {region: fact for region, fact in masks.items() if fact == -math.inf}
        dirty |= {region for region in world.settled(x).dirty if region.slots & slots}
    else:
        facts = dict.fromkeys(masks, 0.0)
    cause = world.causes(
        "softmax gives weight to scores of padding",
        "set the scores of padding to minus infinity before the softmax (an attention mask)",
    )
    made = Abstract(
        x.dims, frozenset(dirty), facts, None, level, -math.inf, None, x.cause, x.assumes | assumes
    )
    return world.settled(made.with_(low=-math.inf if logarithm else 0.0), cause)


def _rows_without_scores(
    world: World, x: Abstract, masks: Iterable[Region], slots: frozenset[Slot]
) -> tuple[frozenset[str], set[Region]]:
    """Return the assumptions that no row is masked whole, and the regions in which a row may be:
    queries at padding.
    """
    padding = [each for each in masks if each.group >= 0]
    if not padding:
        return frozenset((MASKED_ROWS,) if x.level == LOW else ()), set()
    plain = x.level == FINITE and all(world.filled(each.group) for each in padding)
    if plain and len(padding) == 1 and len(list(masks)) == 1:
        return frozenset(), set()
    if plain and len(padding) == 1 and world.side(padding[0].group) == "right":
        return frozenset(), set()  # the first position is valid, and every query sees it
    extra = set()
    for region in padding:
        key = region.coordinates[-1]
        if key.slot not in slots:
            continue
        queries = [
            slot
            for dim in x.dims
            for slot in dim
            if slot is not key.slot
            and slot not in region.slots
            and world.same(slot.size, key.slot.size)
        ]
        extra |= {
            Region(region.group, (*region.coordinates[:-1], Coordinate(q, key.offset)))
            for q in queries
        }
    return frozenset((MASKED_ROWS,)), extra


def with_late_positions(world: World, x: Abstract) -> Abstract:
    """Return ``x`` with 0 at padding of one index, if it is 0 at padding of another index and
    beyond that index.

    With padding on the right, an index at padding is beyond the other index, or the other one is at
    padding, too.
    """
    facts = dict(x.facts)
    for later, fact in x.facts.items():
        if later.group != AFTER or fact != 0:
            continue
        larger, smaller = later.coordinates
        for region, number in x.facts.items():
            if region.group < 0 or number != 0 or world.side(region.group) != "right":
                continue
            *rows, last = region.coordinates
            if last.slot is smaller.slot and last.through is None:
                shifted = Coordinate(larger.slot, last.offset - smaller.offset + larger.offset)
                facts.setdefault(Region(region.group, (*rows, shifted)), 0.0)
    return world.settled(x.with_(facts=facts)) if len(facts) > len(x.facts) else x


def contraction(
    world: World,
    a: Abstract,
    b: Abstract,
    sizes: Sequence[Any],
    inner: Any,
    dtype: torch.dtype,
    cause: Cause,
) -> Abstract:
    """Return ``(…, m, k) @ (…, k, n)``: products of elements, summed over ``k``; ``sizes`` are
    those of the result.
    """
    wide_a = a.with_(dims=(*a.dims[:-1], (), a.dims[-1]))
    wide_b = b.with_(dims=(*b.dims[:-2], (), b.dims[-1], b.dims[-2]))
    dims, operands = broadcast(world, [wide_a, wide_b], [*sizes, inner])
    product = with_late_positions(world, combine(world, "mul", dims, operands, None, dtype))
    return reduced(world, "sum", product, [len(dims) - 1], False, cause)


def attention(
    world: World,
    query: Abstract,
    key: Abstract,
    value: Abstract,
    mask: Abstract | None,
    mask_is_bool: bool,
    causal: bool,
    sizes: Sequence[Any],
    keys: Any,
    width: Any,
    *,
    weights: bool = False,
) -> tuple[Abstract, Abstract]:
    """Return attention and its log-sum-exp, or with ``weights`` its weights.

    ``sizes`` are those of the result, ``keys`` is the number of keys, ``width`` the size of a
    query.
    """
    if len(key.dims) > 3 and len(query.dims) == len(key.dims):
        key, value = _same_heads(world, query, key), _same_heads(world, query, value)
    swapped = key.with_(dims=(*key.dims[:-2], key.dims[-1], key.dims[-2]))
    cause = world.causes("scores are products with padding")
    dtype = torch.float32
    scores = contraction(world, query, swapped, [*sizes[:-1], keys], width, dtype, cause)
    if mask is not None:
        scores = _masked_scores(world, scores, mask, mask_is_bool, [*sizes[:-1], keys])
    if causal and scores.dims[-1] and scores.dims[-2] and scores.level == FINITE:
        later = after(Coordinate(scores.dims[-1][0]), Coordinate(scores.dims[-2][0]))
        facts = scores.facts if later is None else {**scores.facts, later: -math.inf}
        scores = world.settled(scores.with_(facts=facts, assumes=scores.assumes | {FINITE_NUMBERS}))
    shares = softmax(world, scores, len(scores.dims) - 1)
    unmasked = world.causes(
        "attention to keys and values at padding positions",
        "pass an attention mask that hides padding keys; if it is passed, padding must be finite "
        "(0 * NaN is NaN)",
    )
    made = contraction(world, shares, value, sizes, keys, dtype, unmasked)
    return made, shares if weights else reduced(
        world, "logsumexp", shares, [len(scores.dims) - 1], False, unmasked
    )


def _same_heads(world: World, query: Abstract, other: Abstract) -> Abstract:
    """Return ``other`` with one head for all queries if it has fewer heads than the query."""
    mine, theirs = query.dims[-3], other.dims[-3]
    alike = len(mine) == len(theirs) and all(
        world.same(a.size, b.size) for a, b in zip(mine, theirs, strict=True)
    )
    if alike or not theirs:
        return other
    dims = (*other.dims[:-3], (), *other.dims[-2:])
    return other.moved(dims, dict.fromkeys(set(theirs) & referenced(other)))


def _masked_scores(
    world: World, scores: Abstract, mask: Abstract, is_bool: bool, sizes: Sequence[Any]
) -> Abstract:
    dims, (scores, mask) = broadcast(world, [scores, mask], sizes)
    if not is_bool:
        return combine(world, "add", dims, [scores, mask], None, torch.float32)
    if scores.level != FINITE:
        return scores.with_(dirty=scores.dirty | mask.dirty)  # minus infinity is added: NaN stays
    low = Abstract(dims, rest=-math.inf, level=LOW, low=-math.inf)
    made = chosen(world, dims, mask, scores, low)
    return made.with_(assumes=made.assumes | {FINITE_NUMBERS})


# -- the rules of matrix products


def _cause(world: World) -> Cause:
    return world.causes(
        "a matrix product sums over padding",
        "multiply one factor by the mask (and keep padding finite: 0 * NaN is NaN)",
    )


def _product(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``mm``, ``bmm``, ``mv``, ``dot`` or ``matmul``."""
    a, b = node.reads[:2]
    return [_multiplied(world, node, states[a], states[b], a, b)]


def _multiplied(world: World, node: Node, x: Abstract, y: Abstract, a: Value, b: Value) -> Abstract:
    output = target_of(node)
    sizes = list(output.spec.sizes)
    vector_a, vector_b = len(x.dims) == 1, len(y.dims) == 1
    if vector_a:
        x, sizes = (
            x.with_(dims=((), *x.dims)),
            [*sizes, 1] if vector_b else [*sizes[:-1], 1, sizes[-1]],
        )
    if vector_b:
        y, sizes = y.with_(dims=(*y.dims, ())), [*sizes, 1]
    made = contraction(world, x, y, sizes, a.spec.sizes[-1], output.spec.dtype, _cause(world))
    dims = made.dims[:-1] if vector_b else made.dims
    if vector_a:
        dims = (*dims[:-2], dims[-1]) if not vector_b else dims[:-1]
    return made.with_(dims=dims)


def _linear(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``linear(input, weight, bias)``."""
    given = arguments_by_name(node)
    x, weight = given["input"], states[given["weight"]]
    output = target_of(node)
    turned = weight.with_(dims=(*weight.dims[:-2], weight.dims[-1], weight.dims[-2]))
    sizes, dtype = output.spec.sizes, output.spec.dtype
    made = contraction(world, states[x], turned, sizes, x.spec.sizes[-1], dtype, _cause(world))
    bias = given.get("bias")
    return [_added(world, node, states[bias], made, output) if isinstance(bias, Value) else made]


def _added(world: World, node: Node, bias: Abstract, made: Abstract, output: Value) -> Abstract:
    dims, operands = broadcast(world, [bias, made], output.spec.sizes)
    plain = all(node.kwargs.get(each, 1) == 1 for each in ("alpha", "beta"))
    return combine(world, "add" if plain else "scaled_add", dims, operands, None, output.spec.dtype)


def _added_product(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``addmm``, ``baddbmm`` or ``addmv``: a tensor plus a product."""
    bias, a, b = node.reads[:3]
    output = target_of(node)
    made = _multiplied(world, node, states[a], states[b], a, b)
    return [_added(world, node, states[bias], made, output)]


MATRICES = rules_of(
    ("mm bmm mv dot vdot matmul", _product),
    ("addmm baddbmm addmv", _added_product),
    ("linear", _linear),
)
"""The rules by the name of the op."""
