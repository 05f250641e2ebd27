"""The questions and assumptions of an audit's rules: equality of sizes, the side of the padding,
causes in words; operands under common dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import Op, Term
from symshape.auditing.domain import (
    AFTER,
    EVERYWHERE,
    MASKED,
    Abstract,
    Cause,
    Coordinate,
    Dims,
    Fact,
    Region,
    Slot,
)
from symshape.graph.program import Program
from symshape.graph.steps import Node, Value

FINITE_NUMBERS = (
    "numbers are finite: padding, valid data and what is computed from them (0 times NaN is NaN)"
)
SMALL_SCORES = "scores are small beside the mask's large negative number"
MASKED_ROWS = "every softmax at a valid position sees at least one score that is not masked"
STRONG = -1e4  # scores are masked by adding this or less: exp(-1e4) is 0 in every floating dtype


def size_of(size: Any) -> Term | int:
    """Return a size of a tensor as an int or a formula."""
    found = getattr(size, "term", size)
    if isinstance(found, Term) and found.op is Op.CONST:
        return int(found.value)
    return found  # type: ignore[no-any-return]


def _equalities(conditions: Iterable[Term]) -> dict[Term, Term]:
    """Return the symbols that conditions make equal to a number or to another symbol, with
    these.
    """
    found: dict[Term, Term] = {}
    for condition in conditions:
        if condition.op is not Op.EQ:
            continue
        constant, parts = arithmetic.split(fold.substitute(condition.args[0], found))
        symbols = [
            (term, factor) for term, factor in parts if term.op is Op.SYMBOL and abs(factor) == 1
        ]
        if len(symbols) != len(parts) or not 1 <= len(parts) <= 2:
            continue
        (one, factor), *others = sorted(symbols, key=lambda each: each[0].name, reverse=True)
        if others and (constant or others[0][1] == factor):
            continue
        equal = others[0][0] if others else arithmetic.const(-constant * factor)
        found = {key: fold.substitute(value, {one: equal}) for key, value in found.items()}
        found[one] = equal
    return found


class World:
    """The facts about all calls that an audit covers.

    Attributes:
        sides: for each group the side of its mask's rows with the padding: ``right``, ``left`` or
            ``any``.
        filled_rows: for each group, whether each row of its mask has a valid position.
        lengths: the size of the last dimension of each group's mask.
        step: the step that is being interpreted.
    """

    def __init__(
        self,
        program: Program,
        lengths: Sequence[Any],
        sides: Sequence[str],
        filled_rows: Sequence[bool],
    ) -> None:
        self.sides = sides
        self.filled_rows = filled_rows
        self.lengths = lengths
        self.step: Any = None
        self._hints = {
            name: each.hint for name, each in program.symbols.items() if each.hint is not None
        }
        conditions = [guard.term for guard in program.guards]
        self._facts = Facts.make({}, conditions)
        self._equal = _equalities(conditions)

    def side(self, group: int) -> str:
        """Return the side of the padding in a group; empty for special regions."""
        return self.sides[group] if group >= 0 else ""

    def filled(self, group: int) -> bool:
        """Return whether each row of a group's mask has a valid position; true for special
        regions.
        """
        return group < 0 or self.filled_rows[group]

    def size(self, size: Any) -> Term | int:
        """Return a size as an int or a formula, in which symbols that the guards fix are
        replaced.
        """
        found = size_of(size)
        return size_of(fold.substitute(found, self._equal)) if isinstance(found, Term) else found

    def same(self, a: Any, b: Any) -> bool:
        """Return whether two sizes are provably equal in every call."""
        a, b = self.size(a), self.size(b)
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        a, b = arithmetic.integer(a), arithmetic.integer(b)
        if a is b:
            return True
        try:
            if fold.evaluate(a, self._hints) != fold.evaluate(b, self._hints):
                return False
        except (KeyError, ZeroDivisionError):
            pass
        return ask(self._facts, boolean.eq(a, b), effort=Effort.CHEAP, only=True) is True

    def slot_dims(self, sizes: Iterable[Any]) -> Dims:
        """Return new slots for a tensor of these sizes."""
        found = [self.size(size) for size in sizes]
        return tuple(() if isinstance(size, int) and size == 1 else (Slot(size),) for size in found)

    def causes(self, reason: str, repair: str = "", *, known: bool = True) -> Cause:
        """Return the cause of a spread at the step that is being interpreted."""
        return Cause(self.step, reason, repair, known)

    def settled(self, x: Abstract, cause: Cause | None = None) -> Abstract:
        """Return a tensor without its dirty regions that are empty or hold a known constant.

        ``cause`` is the reason why the tensor is dirty everywhere, used if it has none yet.
        """
        covering = [region for region, fact in x.facts.items() if fact != MASKED]
        dirty = frozenset(
            each
            for each in x.dirty
            if not self._is_empty(each) and not any(self.implies(each, other) for other in covering)
        )
        picked = [each for each in dirty if each.group >= 0 and each.coordinates[-1].slot is None]
        if picked:  # one position of each row, which is padding in some calls
            cause = cause or Cause(self.step, "an element is picked whose position may be padding")
        everywhere = bool(picked) or EVERYWHERE in dirty
        wanted = (x.cause or cause or Cause(self.step, "")) if everywhere else None
        if everywhere:
            dirty = frozenset((EVERYWHERE,))
        return x if dirty == x.dirty and wanted is x.cause else x.with_(dirty=dirty, cause=wanted)

    def _is_empty(self, region: Region) -> bool:
        """Return whether the mask is never 0 there: at the first position of right-padded rows, the
        last of others.
        """
        if region.group < 0 or not self.filled(region.group) or not region.coordinates:
            return False
        last = region.coordinates[-1]
        if last.slot is not None:
            return False
        return last.offset == {"right": 0, "left": -1}.get(self.side(region.group), math.nan)

    def implies(self, region: Region, other: Region) -> bool:
        """Return whether one region lies within another one, by the side of the padding."""
        if region == other or other == EVERYWHERE:
            return True
        if region.group != other.group or region.group < 0 or self.side(region.group) == "any":
            return False
        *rows, last = region.coordinates
        *other_rows, other_last = other.coordinates
        if rows != other_rows or last.slot is not other_last.slot or last.slot is None:
            return False
        if self.side(region.group) == "right":
            return last.offset <= other_last.offset
        return last.offset >= other_last.offset

    def fact_at(self, x: Abstract, region: Region) -> Fact | None:
        """Return the number that an abstract tensor holds in a region; None if it is not known."""
        if x.constant is not None:
            return x.constant
        for other, fact in x.facts.items():
            if self.implies(region, other):
                return fact
        return None

    def along(self, region: Region, slot: Slot) -> Coordinate | None:
        """Return the last coordinate of a region, the position within a row, if it runs along a
        slot; else None.
        """
        if region.group < 0 or not region.coordinates or region.coordinates[-1].slot is not slot:
            return None
        return region.coordinates[-1]

    def causal(self, x: Abstract, slot: Slot) -> Mapping[Slot, int]:
        """Return the slots whose index bounds the index along ``slot``, each with the bound's
        offset.

        In the facts of ``x``, elements do not count whose index along ``slot`` is larger than that
        along the other slot plus the offset.
        """
        found: dict[Slot, int] = {}
        for region, fact in x.facts.items():
            if (
                region.group == AFTER
                and not isinstance(fact, str)
                and region.coordinates[0].slot is slot
            ):
                key, query = region.coordinates
                if query.slot is not None:
                    found[query.slot] = query.offset - key.offset
        return found


# -- rules, and what they read of a step


States = Mapping[Value, Abstract]
Rule = Callable[[World, Node, States], list[Abstract]]
"""``rule(world, node, states)``: the abstract tensors of the results of a step."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text: names of ops."""
    return frozenset(text.split())


def rules_of(*rows: tuple[str, Rule]) -> dict[str, Rule]:
    """Return rules by the name of the op; a row has the names of the ops, and their rule."""
    return {name: rule for names, rule in rows for name in names.split()}


def name_of_op(node: Node) -> str:
    """Return the name of an op without namespace, overload and the underscore of an in-place
    variant.
    """
    name = str(node.op._schema.name).partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def target_of(node: Node) -> Value:
    """Return the first output of a step, or its first argument if the op returns nothing new."""
    found = next((each for each in node.outputs if each is not None), None)
    return found if found is not None else node.reads[0]


# -- operands under common dimensions


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


def aligned(x: Abstract, matching: Dims, dims: Dims) -> Abstract:
    """Return ``x`` under ``dims``; its own dimensions correspond to ``matching``."""
    named = referenced(x)
    mapping: dict[Slot, Coordinate | None] = {}
    for mine, theirs in zip(x.dims, matching, strict=True):
        for place, slot in enumerate(mine):
            if slot in named:
                mapping[slot] = Coordinate(theirs[place]) if len(mine) == len(theirs) else None
    return x.moved(dims, mapping)
