"""A set of guards: the condition under which one compiled graph stays valid.

A :class:`GuardSet` is the conjunction of its guards and of the ranges of its symbols.  Every guard
is read as total, so that every set is a total predicate on integers, with a complement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from guards.asking.arguments import checked_ranges, checked_values, described
from guards.asking.assumptions import check_names, holding, pair_of
from guards.asking.ladder import Effort
from guards.budget import about, whole_question
from guards.domains.interval_arithmetic import SIZES, Pair, meet
from guards.errors import ArgumentError
from guards.facts.definedness import guarded, satisfied
from guards.regions.minimising import needed
from guards.regions.projection import project
from guards.regions.raster import Grid, grid
from guards.regions.sampling import sample
from guards.regions.satisfiability import (
    core,
    empty_range,
    facts_of,
    implied,
    range_conditions,
    search,
    universe,
)
from guards.sets import html
from guards.sets.guard import Guard, Names, Violation, violation
from guards.sets.origin import COMPLEMENT, DECLARED
from guards.sets.sources import Source, spelled
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.term import Term

Condition = str | Term | Guard


def _guard(condition: object) -> Guard:
    if isinstance(condition, Guard):
        return condition
    if isinstance(condition, (str, Term)):
        return Guard(holding(condition))
    hint = " (compare terms, not their text or type)" if isinstance(condition, bool) else ""
    raise ArgumentError(
        "a guard set is made of conditions: texts, terms and guards, not "
        f"{type(condition).__name__}{hint}"
    )


def _key(ranges: Mapping[str, Pair]) -> frozenset[tuple[str, Pair]]:
    return frozenset(ranges.items())


@attrs.frozen(slots=True, weakref_slot=True, repr=False, init=False)
class GuardSet:
    """The conjunction of guards and of the ranges of their symbols: ``GuardSet("s0 > 2", s1 % 8 ==
    0, ranges={...})``.

    A condition is a text in Python's syntax, a condition on terms, or a ``Guard``; several may come
    in one sequence. ``a & b`` holds where both hold, ``~a`` where ``a`` does not.

    ``ranges`` maps the name of a symbol to ``(low, high)``, both inclusive, ``None`` for no bound.
    A symbol that the guards mention and that has no range is a size: ``(0, None)``; the attribute
    ``ranges`` holds it explicitly.

    >>> guards = GuardSet("s0 + s1 > 2", "s0 % 8 == 0", ranges={"s0": (1, 64)})
    >>> guards.holds({"s0": 8, "s1": 0}), guards.holds({"s0": 4, "s1": 0})
    (True, False)
    >>> [v.text for v in guards.violations({"s0": 65, "s1": 0})]
    ['s0 <= 64, but s0 = 65', 's0 % 8 == 0, but s0 = 65']
    >>> dict(guards.ranges)
    {'s0': (1, 64), 's1': (0, None)}
    >>> guards
    GuardSet('s0 + s1 > 2', 's0 % 8 == 0', ranges={'s0': (1, 64)})
    """

    guards: tuple[Guard, ...]
    ranges: Mapping[str, Pair] = attrs.field(eq=_key, hash=True)
    _conditions: tuple[Guard, ...] = attrs.field(eq=False, repr=False)

    def __init__(
        self, *conditions: Condition | Iterable[Condition], ranges: Mapping[str, Pair] | None = None
    ) -> None:
        """Raise ParseError where a text cannot be read or is an integer, RangeError for a range
        that is none.
        """
        given: Sequence[Any] = conditions
        if len(given) == 2 and isinstance(given[1], Mapping):  # GuardSet(guards, ranges)
            given, ranges = given[:1], given[1]
        guards: list[Guard] = []
        for each in given:
            if isinstance(each, GuardSet):
                raise ArgumentError("to combine guard sets with their ranges, write a & b")
            several = isinstance(each, Iterable) and not isinstance(each, str)
            guards += map(_guard, each) if several else [_guard(each)]
        if ranges and any(isinstance(each, str) for each in conditions):
            check_names(
                ranges,
                [each for each in conditions if isinstance(each, str)] + [g.term for g in guards],
            )
        object.__setattr__(self, "guards", tuple(guards))
        found = {symbol(name): pair_of(name, pair) for name, pair in checked_ranges(ranges).items()}
        for guard in guards:
            for s in guard.term.symbols:
                found.setdefault(s, SIZES)
        ordered = {s.name: found[s] for s in sorted(found, key=lambda s: s.order)}
        object.__setattr__(self, "ranges", MappingProxyType(ordered))
        declared = [
            Guard(c, DECLARED)
            for name, limits in ordered.items()
            for c in range_conditions(name, limits)
        ]
        object.__setattr__(self, "_conditions", (*declared, *self.guards))

    @classmethod
    def read(cls, *texts: str, ranges: Mapping[str, Pair] | None = None) -> GuardSet:
        """A set from conditions in Python syntax, as :class:`GuardSet` itself makes one.

        Raises:
            ParseError: a text cannot be read, or is an integer.

        >>> print(GuardSet.read("s0 > 2", "s0 % 8 == 0", ranges={"s0": (0, 64)}))
        s0 <= 64     # declared range
        s0 >= 3
        s0 % 8 == 0
        """
        return cls(*texts, ranges=ranges)

    @property
    def conditions(self) -> tuple[Guard, ...]:
        """Everything that must hold: the ranges, as guards, and then the guards."""
        return self._conditions

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbols that the set speaks about."""
        return tuple(self.ranges)

    @property
    def term(self) -> Term:
        """The whole set as one condition."""
        return boolean.and_(*(guard.term for guard in self._conditions))

    def __iter__(self) -> Iterator[Guard]:
        return iter(self.guards)

    def __len__(self) -> int:
        return len(self.guards)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        ranges = {name: limits for name, limits in self.ranges.items() if limits != SIZES}
        parts = [repr(guard.text()) for guard in self.guards] + (
            [f"ranges={ranges!r}"] if ranges else []
        )
        return f"GuardSet({', '.join(parts)})"

    def __reduce__(self) -> tuple[object, ...]:
        return GuardSet, (self.guards, dict(self.ranges))

    def text(self, names: Names | None = None) -> str:
        """The conditions, one a line, with their origins; trivial ranges of sizes are left out."""
        lines = [(guard.text(names), guard.origin) for guard in self._shown()]
        width = max((len(line) for line, _ in lines), default=0)
        return "\n".join(
            f"{line:{width}}  # {origin}" if origin else line for line, origin in lines
        )

    def _shown(self) -> list[Guard]:
        trivial = {boolean.ge(symbol(name), 0) for name in self.ranges}
        return [guard for guard in self._conditions if guard.term not in trivial]

    def _repr_html_(self) -> str:
        rows = [
            (guard.text(), *(guard.origin.cells if guard.origin else ("", "", "")))
            for guard in self._shown()
        ]
        columns = ("guard", "needed at", "line", "asked by")
        return html.table(columns, rows, caption=f"guards ({len(rows)})", code=("guard", "line"))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Return whether every condition holds at ``values``, which names every symbol of the set.

        Raises:
            Missing: a symbol has no value.
            ArgumentError: a value is no integer.
        """
        values = checked_values(values, self.ranges)
        return all(satisfied(guard.term, values) for guard in self._conditions)

    def violations(
        self, values: Mapping[str, int], sources: Mapping[str, Source | str] | None = None
    ) -> tuple[Violation, ...]:
        """The conditions that fail at ``values``, spelled in the names that ``sources`` gives.

        >>> for found in GuardSet.read("s0 == s1", "s1 < 9").violations(
        ...     {"s0": 3, "s1": 9}, {"s0": "n", "s1": "m"}
        ... ):
        ...     print(found)
        n == m, but n = 3 and m = 9
        m <= 8, but m = 9
        """
        values = checked_values(values, self.ranges)
        names = spelled(sources) if sources else None
        failed = [guard for guard in self._conditions if not satisfied(guard.term, values)]
        return tuple(violation(guard, values, names) for guard in failed)

    # -- the set as a region -----------------------------------------------------------------------

    def _set_of(self, other: object, method: str) -> GuardSet:
        return as_set(other, f"GuardSet.{method}", self.ranges)

    def _terms(self) -> list[Term]:
        return [guard.term for guard in self.guards]

    def is_satisfiable(self) -> bool | None:
        """Return whether some values satisfy the set; None if that could not be decided.

        >>> GuardSet.read("s0 % 8 == 0", "s0 % 4 == 1").is_satisfiable()
        False
        """
        return search(self._terms(), self.ranges).satisfiable

    @whole_question()
    def implies(self, other: GuardSet | Condition) -> bool | None:
        """Return whether every point of this set is one of ``other``; symbols that this set does
        not know are sizes.

        Wherever a method takes another set, a text, a term or a guard will do: it has this set's
        ranges.

        >>> (
        ...     GuardSet.read("s0 > 3").implies(GuardSet.read("s0 + s1 > 2")),
        ...     GuardSet.read("s0 > 3").implies(GuardSet.read("s0 > 4")),
        ... )
        (True, False)
        """
        other = self._set_of(other, "implies")
        ranges = {name: SIZES for name in other.ranges if name not in self.ranges} | dict(
            self.ranges
        )
        about(len(other.conditions))
        undecided = False
        facts = None if empty_range(ranges) else facts_of(ranges, self._terms())
        for guard in other.conditions:
            found = implied(self._terms(), ranges, guard.term, facts).satisfiable
            if found:
                return False
            undecided = undecided or found is None
        return None if undecided else True

    @whole_question()
    def equivalent(self, other: GuardSet | Condition) -> bool | None:
        """Return whether both sets hold for the same values.

        >>> GuardSet.read("s0 > 3", "s0 != 4").equivalent(GuardSet.read("s0 >= 5"))
        True
        """
        other = self._set_of(other, "equivalent")
        there = self.implies(other)
        back = other.implies(self) if there is not False else False
        return False if there is False or back is False else True if there and back else None

    def disjoint(self, other: GuardSet | Condition) -> bool | None:
        """Return whether no values satisfy both sets.

        >>> GuardSet.read("s0 <= 8").disjoint(GuardSet.read("s0 > 8"))
        True
        """
        found = self.intersect(other).is_satisfiable()
        return None if found is None else not found

    def intersect(self, other: GuardSet | Condition) -> GuardSet:
        """The set that holds where both hold.

        >>> print(
        ...     GuardSet.read("s0 > 1", ranges={"s0": (0, 9)}).intersect(
        ...         GuardSet.read("s0 < 5", "s1 > s0")
        ...     )
        ... )
        s0 <= 9  # declared range
        s0 >= 2
        s0 <= 4
        s0 < s1
        """
        other = self._set_of(other, "intersect")
        known = {guard.term for guard in self.guards}
        ranges = {
            name: meet(self.ranges.get(name, limits), limits)
            for name, limits in other.ranges.items()
        }
        added = tuple(guard for guard in other.guards if guard.term not in known)
        return GuardSet(self.guards + added, ranges={**self.ranges, **ranges})

    def __and__(self, other: object) -> GuardSet:
        return (
            self.intersect(other)
            if isinstance(other, GuardSet | Guard | Term | str)
            else NotImplemented
        )

    def __invert__(self) -> GuardSet:
        return self.negate()

    def negate(self) -> GuardSet:
        """The set that holds exactly where this one does not, among values that its symbols may
        have at all.

        A symbol whose range allows nothing below 0 is a size, and stays one; any other symbol may
        have any value.

        >>> print(GuardSet.read("s0 + s1 > 2", ranges={"s0": (0, 8)}).negate())
        s0 >= 9 or s0 + s1 <= 2  # complement
        """
        ranges = {name: universe(limits) for name, limits in self.ranges.items()}
        return GuardSet(Guard(_complement(self.conditions, ranges), COMPLEMENT), ranges=ranges)

    def difference(self, other: GuardSet | Condition) -> GuardSet:
        """The set that holds where this one holds and ``other`` does not.

        >>> print(GuardSet.read("s0 > 2").difference(GuardSet.read("s0 % 8 == 0")))
        s0 >= 3
        s0 % 8 != 0  # complement
        """
        other = self._set_of(other, "difference")
        ranges = {name: SIZES for name in other.ranges if name not in self.ranges} | dict(
            self.ranges
        )
        return GuardSet(
            self.guards, Guard(_complement(other.conditions, ranges), COMPLEMENT), ranges=ranges
        )

    def minimise(self, effort: Effort = Effort.FULL) -> GuardSet:
        """The set without the guards that the others and the ranges imply; what is not proven to be
        implied stays.

        >>> print(GuardSet.read("s0 + s1 > 2", "s0 > 2", "s0 != 1").minimise())
        s0 >= 3
        """
        kept = needed(self._terms(), self.ranges, effort)
        if len(kept) == len(self.guards):
            return self
        return GuardSet((self.guards[index] for index in kept), ranges=self.ranges)

    def project(self, name: str) -> Projection:
        """The values of one symbol for which the rest of the set can hold.

        >>> found = GuardSet.read("s0 + s1 > 2", "s1 <= 1").project("s0")
        >>> print(found.guard_set), found.exact
        s0 >= 2
        (None, True)
        """
        found = project(self._terms(), self.ranges, name)
        wide = universe(self.ranges.get(name, SIZES))
        return Projection(name, GuardSet(found.conditions, ranges={name: wide}), found.exact)

    def region(
        self,
        first: str,
        second: str,
        columns: Sequence[int] | None = None,
        rows: Sequence[int] | None = None,
        at: Mapping[str, int] | None = None,
    ) -> Grid:
        """Return a grid of the points of two symbols at which the set holds:
        :func:`guards.regions.raster.grid`.

        >>> print(GuardSet.read("s0 >= s1", ranges={"s0": (0, 4), "s1": (1, 3)}).region("s0", "s1"))
        3 ..##
        2 .###
        1 ####
        s1 upwards, s0 from left to right: 1..4
        """
        return grid(self._terms(), self.ranges, first, second, columns, rows, at)

    def sample(self, count: int = 1, seed: int = 0) -> list[dict[str, int]]:
        """Up to ``count`` different points of the set, spread over it; the same ones for the same
        ``seed``.

        >>> GuardSet.read("s0 % 8 == 0", ranges={"s0": (1, 8)}).sample(2)
        [{'s0': 8}]
        """
        if type(count) is not int:
            raise ArgumentError(f"sample takes the number of points, not {described(count)}")
        return sample(self._terms(), self.ranges, count, seed)

    def core(self) -> GuardSet | None:
        """Fewest conditions that contradict each other, as a set; None unless the set is proven to
        hold nowhere.

        >>> print(GuardSet.read("s0 > s1", "s0 != 7", "s1 > s0").core())
        s0 > s1
        s0 < s1
        """
        conditions = self.conditions
        free = dict.fromkeys(self.ranges, (None, None))
        found = core([guard.term for guard in conditions], free)
        return (
            None if found is None else GuardSet((conditions[index] for index in found), ranges=free)
        )


def as_set(given: object, function: str, ranges: Mapping[str, Pair] | None = None) -> GuardSet:
    """Return a guard set unchanged; turn a text, a term, a guard or a truth value into a set with
    the given ranges.

    Raises:
        ArgumentError: it is none of these.
        ParseError: a text cannot be read, or is an integer.
    """
    if isinstance(given, GuardSet):
        return given
    if not isinstance(given, str | Term | Guard | bool):
        raise ArgumentError(
            f"{function} takes a guard set, a text, a term or a guard, not {described(given)}"
        )
    guard = given if isinstance(given, Guard) else Guard(holding(given))
    own = {s.name: ranges[s.name] for s in guard.term.symbols if ranges and s.name in ranges}
    return GuardSet(guard, ranges=own)


def _complement(conditions: Sequence[Guard], ranges: Mapping[str, Pair]) -> Term:
    """Return the condition that one of the guards fails; guards that the ranges imply cannot
    fail.
    """
    sure = {c for name, limits in ranges.items() for c in range_conditions(name, limits)}
    return boolean.or_(
        *(boolean.not_(guarded(guard.term)) for guard in conditions if guard.term not in sure)
    )


@attrs.frozen
class Projection:
    """The shadow of a guard set on one symbol.

    Attributes:
        symbol: the name of the symbol.
        guard_set: holds for every value of the symbol for which the rest can hold.
        exact: whether it holds for no other.
    """

    symbol: str
    guard_set: GuardSet
    exact: bool

    def __str__(self) -> str:
        shown = " and ".join(self.guard_set.text().splitlines()) or f"any {self.symbol}"
        return shown if self.exact else f"at most: {shown}"
