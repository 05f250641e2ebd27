"""A closed world: proof that no call inside declared ranges can miss a set of entries.

The declared region is cut, where a condition of some entry cuts it, into parts that lie in one
entry or outside of all. A part outside of all with a point in it is a counterexample; when every
part is inside some entry, nothing can miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from guards.asking.arguments import described
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import about, spent, whole_question
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.domains.linear_form import bounded_by
from guards.errors import ArgumentError
from guards.facts.definedness import guarded
from guards.facts.facts import Facts
from guards.regions.satisfiability import Values, empty_range, facts_of, holds, search
from guards.sets.guard_set import GuardSet, as_set
from guards.terms import arithmetic, boolean
from guards.terms.boolean import FALSE
from guards.terms.term import Op, Term, among

PARTS = 20_000  # cuts after which it is given up
_DEPTH = 400  # cuts on the way to one part
_PATIENCE = 64  # parts after which small values are tried
_TRIED = 4  # values of each symbol that are tried then, at most 4**4 points


@attrs.frozen
class Certificate:
    """The verdict on coverage: every call that a contract allows is served, or one is not.

    Attributes:
        covered: True with a proof that none can miss, False with a call that does, None when
            neither was found.
        counterexample: values, by symbol, that the contract allows and that no guard set serves.
        parts: how many parts the proof looked at.
        reason: a sentence.
    """

    covered: bool | None
    counterexample: Mapping[str, int] | None
    parts: int
    reason: str

    def __bool__(self) -> bool:
        return self.covered is True

    def __str__(self) -> str:
        return self.reason


@whole_question()
def certify(contract: GuardSet | Mapping[str, Pair], guard_sets: Any) -> Certificate:
    """Prove that every point of the contract satisfies one of the guard sets, or find one that
    satisfies none.

    ``contract`` is a guard set, or just ranges by symbol; a symbol that it does not mention is a
    size.

    >>> entries = [GuardSet.read("s0 <= 8"), GuardSet.read("s0 > 8", "s0 % 8 == 0")]
    >>> print(certify(GuardSet.read("s0 % 8 == 0"), entries))
    no call can miss: proven in 3 parts
    >>> certify({"s0": (1, 64)}, entries).counterexample
    {'s0': 9}
    """
    declared = (
        GuardSet(ranges=contract) if isinstance(contract, Mapping) else as_set(contract, "certify")
    )
    if isinstance(guard_sets, GuardSet | str) or not isinstance(guard_sets, Iterable):
        raise ArgumentError(f"certify takes several guard sets, not {described(guard_sets)}")
    guard_sets = [as_set(each, "certify", declared.ranges) for each in guard_sets]
    terms = [guard.term for guard in declared.guards]
    ranges = {name: SIZES for guards in guard_sets for name in guards.ranges} | dict(
        declared.ranges
    )
    if empty_range(ranges) or among(FALSE, terms):
        return Certificate(True, None, 0, "no call can miss: the contract allows none")
    start = facts_of(ranges, terms)
    entries = [[guarded(guard.term, start) for guard in guards.conditions] for guards in guard_sets]
    about(sum(map(len, entries)))
    return _Cover(terms, ranges, entries).run(start)


class _Cover:
    """One proof, as a walk over the parts that are left to look at."""

    def __init__(
        self, contract: Sequence[Term], ranges: Mapping[str, Pair], entries: Sequence[list[Term]]
    ) -> None:
        self.contract = contract
        self.ranges = ranges
        self.entries = entries
        self.parts = 0
        self.open = ""  # why the proof has a gap

    def run(self, facts: Facts) -> Certificate:
        every = [(index, conditions) for index, conditions in enumerate(self.entries)]
        pending: list[tuple[Facts, tuple[Term, ...], list[tuple[int, list[Term]]]]] = [
            (facts, (), every)
        ]
        while pending:
            facts, cuts, entries = pending.pop()
            if facts.contradictory:
                continue
            self.parts += 1
            if self.parts > PARTS:
                return self._undecided(f"more than {PARTS} parts")
            tried = self._tried() if self.parts == _PATIENCE else None
            if tried is not None:
                return self._missed(tried)
            left = self._left(facts, entries)
            if left is None:
                continue
            cut = self._cut(facts, left, cuts) if left and len(cuts) < _DEPTH else None
            if cut is None:
                missed = self._outside(cuts, left)
                if missed is not None:
                    return self._missed(missed)
                if spent():
                    return self._undecided(self.open)
                continue
            pending.append((facts.assume(boolean.not_(cut)), (*cuts, boolean.not_(cut)), left))
            pending.append((facts.assume(cut), (*cuts, cut), left))
        if self.open:
            return self._undecided(self.open)
        return Certificate(
            True, None, self.parts, f"no call can miss: proven in {self.parts} parts"
        )

    def _missed(self, point: Values) -> Certificate:
        shown = ", ".join(f"{name} = {value}" for name, value in point.items())
        return Certificate(False, point, self.parts, f"no entry serves {shown}")

    def _tried(self) -> Values | None:
        """A point of the contract, of the smallest values, that no entry serves."""
        names = list(self.ranges)[:4]
        rest = {name: _smallest(self.ranges[name])[0] for name in list(self.ranges)[4:]}
        for values in product(*(_smallest(self.ranges[name]) for name in names)):
            point = dict(zip(names, values, strict=True)) | rest
            if holds(self.contract, {}, point) and not any(
                holds(each, {}, point) for each in self.entries
            ):
                return point
        return None

    def _undecided(self, reason: str) -> Certificate:
        return Certificate(None, None, self.parts, f"not known: {reason}")

    def _left(
        self, facts: Facts, entries: list[tuple[int, list[Term]]]
    ) -> list[tuple[int, list[Term]]] | None:
        """Return the conditions that each entry still needs in this part; None if one entry always
        holds.

        Entries that cannot hold in this part are left out.
        """
        left = []
        for index, conditions in entries:
            asked = []
            for condition in conditions:
                answer = ask(facts, condition, effort=Effort.CHEAP)
                if answer is False:
                    break
                if answer is None:
                    asked.append(condition)
            else:
                if not asked:
                    return None
                left.append((index, asked))
        return left

    def _cut(
        self, facts: Facts, left: list[tuple[int, list[Term]]], cuts: Sequence[Term]
    ) -> Term | None:
        """A condition to cut the part by: in the middle of the bounds of what most entries bound.

        None where all that could be told apart is told: a cut may be one that facts cannot take in.
        """
        made = {*cuts, *map(boolean.not_, cuts)}
        bounds: dict[Term, set[int]] = {}
        for _, conditions in left:
            for condition in conditions:
                for atom in _atoms(condition):
                    form, limits = _bounds(atom)
                    bounds.setdefault(form, set()).update(limits)
        for form, values in sorted(bounds.items(), key=lambda item: -len(item[1])):
            new = [boolean.le(form, limit) for limit in sorted(values)]
            new = [
                cut
                for cut in new
                if cut not in made and ask(facts, cut, effort=Effort.CHEAP) is None
            ]
            if new:
                return new[len(new) // 2]
        atoms = (
            atom for _, conditions in left for condition in conditions for atom in _atoms(condition)
        )
        return next((atom for atom in atoms if atom not in made), None)

    def _outside(self, cuts: Sequence[Term], left: list[tuple[int, list[Term]]]) -> Values | None:
        """A point of the part that no entry serves."""
        fails = [boolean.or_(*map(boolean.not_, conditions)) for _, conditions in left]
        found = search([*self.contract, *cuts, *fails], self.ranges)
        if found.satisfiable is None:
            self.open = found.reason
        if found.model is None:
            return None
        if any(holds(conditions, {}, found.model) for conditions in self.entries):
            self.open = "a part that no entry seemed to serve is served by one"
            return None
        return found.model


def _smallest(pair: Pair) -> range:
    """The first few values of a range, or those about 0."""
    low, high = pair
    if low is None:
        low = min(-1, high - _TRIED + 1) if high is not None else -1
    return range(low, low + _TRIED if high is None else min(high + 1, low + _TRIED))


def _atoms(condition: Term) -> list[Term]:
    if condition.op is Op.AND or condition.op is Op.OR:
        return [atom for part in condition.args for atom in _atoms(part)]
    return [condition]


def _bounds(atom: Term) -> tuple[Term, tuple[int, ...]]:
    """A form and the values of it after which a relation changes: relations that differ in numbers
    share the form.
    """
    found = bounded_by(boolean.not_(atom) if atom.op is Op.NE else atom)
    assert found is not None
    form, (low, high) = found
    limits = (*([] if low is None else [low - 1]), *([] if high is None else [high]))
    return arithmetic.linear(0, dict(form)), limits
