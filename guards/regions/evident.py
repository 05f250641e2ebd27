"""Implications that are plain to see: no decider takes part, neither ours nor Z3.

What this says is read off the conditions as they stand: one of them is there, or it compares one
symbol with a constant that the others keep it on the right side of.  It is for what most traces
drop (``s1 != 0`` beside ``s1 >= 2``), where the first question to a solver would cost more than the
rest of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from guards.domains.interval_arithmetic import SIZES, Pair, meet
from guards.domains.linear_form import bounded_by
from guards.regions.satisfiability import Ranges
from guards.terms import arithmetic
from guards.terms.fold import substitute
from guards.terms.term import Op, Term


class Evident:
    """Plain consequences of a conjunction of conditions that are defined everywhere, under ranges.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ge, ne, or_
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> seen = Evident([ge(s0, 2), eq(s0, s1)], {})
    >>> (
    ...     seen.implies(ne(s0, 0)),
    ...     seen.implies(or_(ge(s0, 9), ge(s1, 1))),
    ...     seen.implies(ge(s0 * s1, 4)),
    ... )
    (True, True, False)
    """

    def __init__(self, conditions: Iterable[Term], ranges: Ranges) -> None:
        self._ranges = ranges
        self._parts: set[Term] = set()
        self._same: dict[Term, Term] = {}  # symbols that equal another one
        self._limits: dict[Term, Pair] = {}
        found = [part for condition in conditions for part in _conjuncts(condition)]
        for part in found:
            pair = _two_alike(part)
            if pair is not None:
                self._same.setdefault(pair[1], pair[0])
        for part in found:
            self._note(part)
            self._note(substitute(part, self._same))

    def implies(self, condition: Term) -> bool:
        """Return whether the conjunction plainly implies ``condition``; False where a proof would
        need a search.
        """
        return self._holds(condition) or (
            bool(self._same) and self._holds(substitute(condition, self._same))
        )

    def _note(self, part: Term) -> None:
        self._parts.add(part)
        found = _of_one(part)
        if found is not None:
            symbol, limits = found
            self._limits[symbol] = meet(self._limit(symbol), limits)

    def _limit(self, symbol: Term) -> Pair:
        return self._limits.get(symbol) or self._ranges.get(symbol.name, SIZES)

    def _holds(self, condition: Term) -> bool:
        if condition in self._parts:
            return True
        if condition.op is Op.AND:
            return all(map(self._holds, condition.args))
        if condition.op is Op.OR:
            return any(map(self._holds, condition.args))
        if condition.op is Op.NE:
            return self._differs(condition)
        found = _of_one(condition)
        if found is None:
            return False
        (low, high), (least, most) = found[1], self._limit(found[0])
        return (low is None or (least is not None and least >= low)) and (
            high is None or (most is not None and most <= high)
        )

    def _differs(self, condition: Term) -> bool:
        constant, items = arithmetic.split(condition.args[0])
        if len(items) != 1 or items[0][0].op is not Op.SYMBOL:
            return False
        value, rest = divmod(-constant, items[0][1])
        low, high = self._limit(items[0][0])
        return rest != 0 or (low is not None and value < low) or (high is not None and value > high)


def _conjuncts(condition: Term) -> Iterator[Term]:
    if condition.op is Op.AND:
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition


def _of_one(condition: Term) -> tuple[Term, Pair] | None:
    """The symbol that an equation or an inequality bounds, and its range; None where it says
    anything else.
    """
    found = bounded_by(condition)
    if found is None:
        return None
    form, limits = found
    if len(form) != 1 or form[0][0].op is not Op.SYMBOL or form[0][1] != 1:
        return None
    return form[0][0], limits


def _two_alike(condition: Term) -> tuple[Term, Term] | None:
    """Two symbols that an equation says are the same."""
    if condition.op is not Op.EQ:
        return None
    constant, items = arithmetic.split(condition.args[0])
    if constant or len(items) != 2 or any(each.op is not Op.SYMBOL for each, _ in items):
        return None
    return (items[0][0], items[1][0]) if items[0][1] == -items[1][1] else None
