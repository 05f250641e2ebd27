"""Abstract tensors: the positions at which a value may differ between two calls that differ only in
their padding.

Two calls have the same sizes and the same mask, and the same numbers at valid positions.  Their
padding differs.  An abstract tensor describes both at once.  Its ``dirty`` regions contain every
position at which the two tensors may differ.  Its ``facts`` give the number at every position of a
region, which is the same in both.

Regions name positions by the indices of the tensor.  An index runs along a :class:`Slot`; a
dimension is the product of its slots, the first slowest, so that ``view(batch * length, -1)`` and
the view back lose nothing.  A dimension of size 1 has no slot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs


@attrs.frozen(eq=False)
class Slot:
    """One index of a tensor: it runs from 0 to ``size - 1``.  Compared by identity."""

    size: Any


@attrs.frozen
class Coordinate:
    """An index of the mask: the index along ``slot`` plus ``offset``, or without a slot the fixed
    index ``offset``.

    A fixed index below 0 counts from the end.  ``through`` is a permutation that is applied to the
    index along the slot, known by identity.
    """

    slot: Slot | None
    offset: int = 0
    through: Any = None


@attrs.frozen
class Region:
    """The positions at which the mask of ``group`` is 0 at these coordinates; or one of the special
    kinds below.

    ``AFTER``: the first coordinate is larger than the second.  ``EVERYWHERE``: all positions.
    """

    group: int
    coordinates: tuple[Coordinate, ...]

    @property
    def slots(self) -> frozenset[Slot]:
        """The slots that the coordinates run along."""
        return frozenset(each.slot for each in self.coordinates if each.slot is not None)

    def replaced(self, slots: Mapping[Slot, Coordinate | None]) -> Region | None:
        """Return the same region with other coordinates for some slots; None if one of them is
        lost.
        """
        found = []
        for each in self.coordinates:
            if each.slot is None or each.slot not in slots:
                found.append(each)
                continue
            new = slots[each.slot]
            moved = each.offset or each.through is not None
            if new is None or (
                moved
                and (new.slot is None or new.through is not None or (each.through and new.offset))
            ):
                return None
            found.append(
                Coordinate(new.slot, new.offset + each.offset, each.through or new.through)
            )
        made = Region(self.group, tuple(found))
        return after(*found) if self.group == AFTER else made


AFTER = -2


def after(larger: Coordinate, smaller: Coordinate) -> Region | None:
    """Return the region in which one coordinate is larger than another one; None for fixed
    coordinates.
    """
    if larger.slot is None or smaller.slot is None or larger.slot is smaller.slot:
        return None
    if larger.through is not None or smaller.through is not None:
        return None
    return Region(
        AFTER, (Coordinate(larger.slot), Coordinate(smaller.slot, smaller.offset - larger.offset))
    )


EVERYWHERE = Region(-1, ())
MASKED = "masked"
"""The fact that scores in a region are so negative that their softmax is 0; they may differ between
the calls.
"""

Fact = float | str
"""A number, or ``MASKED``."""

FINITE, LOW, ANYTHING = 0, 1, 2
"""Levels of a tensor outside its facts: all finite; finite or minus infinity; anything."""

Dims = tuple[tuple[Slot, ...], ...]


@attrs.frozen(eq=False)
class Cause:
    """The reason why a value depends on padding everywhere: the step, the reason in words, and a
    repair.
    """

    step: Any
    reason: str
    repair: str = ""
    known: bool = True


@attrs.frozen
class Tag:
    """The integers that a tensor holds: ``position``: the coordinate; ``count``: a row's number of
    valid positions.

    A count has ``group`` and the coordinates of the row; ``offset`` is added to the count.
    """

    kind: str
    coordinates: tuple[Coordinate, ...]
    group: int = 0
    offset: int = 0

    def replaced(self, slots: Mapping[Slot, Coordinate | None]) -> Tag | None:
        """Return the same tag with other coordinates for some slots; None if one of them is
        lost.
        """
        found = Region(self.group, self.coordinates).replaced(slots)
        return None if found is None else attrs.evolve(self, coordinates=found.coordinates)


@attrs.frozen(eq=False)
class Abstract:
    """An abstract tensor: the facts about a tensor in two calls that differ only in their padding.

    Attributes:
        dims: the slots of each dimension.
        dirty: regions that contain every position at which the two calls may differ.
        facts: for a region, the number at every position of it.
        rest: the number at every position outside the regions of ``facts``; None if there is no one
            number.
        level: the kind of numbers outside the facts, under the assumptions: ``FINITE``, ``LOW`` or
            ``ANYTHING``.
        low: a lower bound of the numbers outside the facts.
        tag: the integers that the tensor holds, if known.
        cause: why the tensor is dirty everywhere, if it is.
        assumes: the assumptions that this description depends on.
    """

    dims: Dims
    dirty: frozenset[Region] = frozenset()
    facts: Mapping[Region, Fact] = attrs.field(factory=dict)
    rest: float | None = None
    level: int = ANYTHING
    low: float = -math.inf
    tag: Tag | None = None
    cause: Cause | None = None
    assumes: frozenset[str] = frozenset()

    @property
    def everywhere(self) -> bool:
        """Return whether every position may differ."""
        return EVERYWHERE in self.dirty

    @property
    def constant(self) -> float | None:
        """The number that every element is, if known; else None."""
        return self.rest if not self.facts else None

    @property
    def worst(self) -> int:
        """The level of all elements, including those of the facts."""
        return max([self.level, *map(level_of, self.facts.values())])

    @property
    def lowest(self) -> float:
        """A lower bound of all elements, including those of the facts."""
        return min(
            [
                self.low,
                *(-math.inf if isinstance(each, str) else each for each in self.facts.values()),
            ]
        )

    def with_(self, **changes: Any) -> Abstract:
        """Return a copy with some fields changed."""
        return attrs.evolve(self, **changes)

    def moved(self, dims: Dims, slots: Mapping[Slot, Coordinate | None]) -> Abstract:
        """Return the same elements under other dimensions: ``slots`` gives new coordinates, or None
        for lost ones.

        A dirty region without coordinates becomes ``EVERYWHERE``; the caller gives the cause.
        """
        dirty = {each.replaced(slots) or EVERYWHERE for each in self.dirty}
        facts, lost = {}, False
        for region, fact in self.facts.items():
            new = region.replaced(slots)
            lost |= new is None
            if new is not None:
                facts[new] = fact
        level, low, rest = (
            (self.worst, self.lowest, None) if lost else (self.level, self.low, self.rest)
        )
        tag = self.tag and self.tag.replaced(slots)
        return self.with_(
            dims=dims, dirty=frozenset(dirty), facts=facts, level=level, low=low, rest=rest, tag=tag
        )

    def slots(self, dimensions: Iterable[int]) -> frozenset[Slot]:
        """Return the slots of some dimensions."""
        return frozenset(slot for i in dimensions for slot in self.dims[i])


def cause_of(operands: Iterable[Abstract]) -> Cause | None:
    """Return the reason why an operand is dirty everywhere; None if none is."""
    return next((each.cause for each in operands if each.cause is not None), None)


def assumptions_of(operands: Iterable[Abstract]) -> frozenset[str]:
    """Return the assumptions that the descriptions of these operands depend on."""
    return frozenset[str]().union(*(each.assumes for each in operands))


def finite_as(operands: Iterable[Abstract]) -> int:
    """Return the level of a result that is finite if all operands are."""
    return FINITE if all(each.worst == FINITE for each in operands) else ANYTHING


def everywhere_if(spread: object) -> frozenset[Region]:
    """Return the dirty regions of a result that may differ at all positions, or at none."""
    return frozenset((EVERYWHERE,)) if spread else frozenset()


def level_of(number: Fact) -> int:
    """Return the level of one number."""
    if isinstance(number, str) or math.isfinite(number):
        return FINITE
    return LOW if number == -math.inf else ANYTHING
