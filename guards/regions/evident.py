"""Implications that are plain to see: no decider takes part, neither ours nor Z3.

A condition is plain if it is one of the others, or if it cannot fail within the limits that the
others set to their symbols: where it is assumed to fail, these limits are empty, or one of the
others is false.  Limits are found by going through each condition a few times, up and down its
formula.  That suffices for what most traces drop: ``s1 != 0`` beside ``s1 >= 2`` or beside
``s0*s1 != s1``, ``s1//8 >= 2`` beside ``s1//32 >= 2``.  The first question to a solver would cost
more than the rest of the work.

This confirms what facts and deciders dropped, so it uses neither: of theirs it has the arithmetic
of intervals alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from guards.domains import interval_arithmetic as intervals
from guards.domains.interval_arithmetic import EVERYTHING, SIZES, Pair
from guards.regions.satisfiability import Ranges
from guards.terms import arithmetic
from guards.terms.boolean import FALSE, not_
from guards.terms.fold import substitute
from guards.terms.term import Monomials, Op, Term

_ROUNDS = 3  # the times that each condition is gone through
_DEEP = 30  # of a deeper term nothing is known
_WIDE = 20  # a sum of more terms narrows none of them
_MOST = 40  # of more conditions, none is gone through: only those that are there are plain


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
    ...     seen.implies(ge(s0 * s0, 2 * s1)),
    ... )
    (True, True, True, False)
    """

    def __init__(self, conditions: Iterable[Term], ranges: Ranges) -> None:
        self._parts = list(dict.fromkeys(p for each in conditions for p in _conjuncts(each)))
        self._same = dict(filter(None, map(_two_alike, self._parts)))
        self._known = {*self._parts, *(substitute(part, self._same) for part in self._parts)}
        self._limits: _Limits | None = _Limits(ranges)
        self._searches = len(self._parts) <= _MOST
        if self._searches:
            self._limits = self._limits.within(self._parts)

    def implies(self, condition: Term) -> bool:
        """Return whether the conjunction plainly implies ``condition``; False where a proof would
        need a search.
        """
        if condition.op is Op.AND:
            return all(map(self.implies, condition.args))
        against = list(_conjuncts(not_(condition)))
        if any(
            each in self._known or substitute(each, self._same) in self._known
            for each in map(not_, against)
        ):
            return True
        if self._limits is None:
            return True  # nothing satisfies the conjunction
        parts = self._parts if self._searches else []
        return self._limits.within([*against, *parts]) is None


class _Empty(Exception):
    """No value is left."""


class _Limits:
    """The limits of symbols, and what follows from them."""

    def __init__(self, ranges: Ranges, found: dict[Term, Pair] | None = None) -> None:
        self._ranges = ranges
        self._found = dict(found or {})
        self._memo: dict[Term, Pair] = {}

    def within(self, conditions: list[Term]) -> _Limits | None:
        """Return the limits under which conditions hold; None if they cannot all hold."""
        made = _Limits(self._ranges, self._found)
        try:
            for _ in range(_ROUNDS):
                before = dict(made._found)
                for each in conditions:
                    made._assume(each)
                if made._found == before:
                    break
        except _Empty:
            return None
        return made

    # -- from symbols to terms

    def _of(self, term: Term) -> Pair:
        """Return an interval that has all values of a term."""
        op = term.op
        if op is Op.SYMBOL:
            return self._found.get(term) or self._ranges.get(term.name, SIZES)
        if op is Op.CONST:
            return term.args[0], term.args[0]
        found = self._memo.get(term)
        if found is None:
            found = self._memo[term] = EVERYTHING if term.depth > _DEEP else self._computed(term)
        return found

    def _computed(self, term: Term) -> Pair:
        op = term.op
        if op is Op.ADD:
            constant, items = arithmetic.split(term)
            found: Pair = (constant, constant)
            for each, factor in items:
                found = intervals.add(found, intervals.scaled(self._of(each), factor))
            for atom in _shared(items):
                found = intervals.meet(found, self._factored(term, atom))
            return found
        if op is Op.MUL:
            found = (1, 1)
            for each in term.args:
                found = intervals.product(found, self._of(each))
            return found
        if op is Op.FLOORDIV or op is Op.MOD:
            compute = intervals.floordiv if op is Op.FLOORDIV else intervals.mod
            return compute(self._of(term.args[0]), self._of(term.args[1]))
        if op is Op.MIN:
            return _minimum(list(map(self._of, term.args)))
        if op is Op.MAX:
            return intervals.negated(
                _minimum([intervals.negated(self._of(each)) for each in term.args])
            )
        return EVERYTHING

    def _factored(self, term: Term, atom: Term) -> Pair:
        """Return an interval of a sum, in which a factor of several terms is taken out."""
        constant, items = arithmetic.split(term)
        inside: Pair = (0, 0)
        outside: Pair = (constant, constant)
        for each, factor in items:
            others = [other for other in arithmetic.factors(each) if other is not atom]
            powers = len(arithmetic.factors(each)) - len(others)
            rest = self._of(arithmetic.prod([*others, *[atom] * max(powers - 1, 0)]))
            if powers:
                inside = intervals.add(inside, intervals.scaled(rest, factor))
            else:
                outside = intervals.add(outside, intervals.scaled(rest, factor))
        return intervals.add(outside, intervals.product(self._of(atom), inside))

    def _is_false(self, condition: Term) -> bool:
        """Return whether a condition holds nowhere within the limits."""
        op = condition.op
        if condition.depth > _DEEP:
            return False
        if op is Op.AND:
            return any(map(self._is_false, condition.args))
        if op is Op.OR:
            return all(map(self._is_false, condition.args))
        if op is not Op.EQ and op is not Op.NE and op is not Op.LE:
            return condition is FALSE
        low, high = self._of(condition.args[0])
        if op is Op.NE:
            return low == 0 == high
        return (low is not None and low > 0) or (op is Op.EQ and high is not None and high < 0)

    # -- from terms to symbols

    def _assume(self, condition: Term) -> None:
        """Narrow the limits to those under which a condition holds.

        Raises:
            _Empty: it holds nowhere.
        """
        if self._is_false(condition):
            raise _Empty
        op = condition.op
        if condition.depth > _DEEP:
            return
        if op is Op.AND:
            for each in condition.args:
                self._assume(each)
        elif op is Op.OR:
            left = [each for each in condition.args if not self._is_false(each)]
            if len(left) == 1:
                self._assume(left[0])
        elif op is Op.EQ:
            self._narrow(condition.args[0], (0, 0))
        elif op is Op.LE:
            self._narrow(condition.args[0], (None, 0))
        elif op is Op.NE:
            self._exclude(condition.args[0])

    def _exclude(self, term: Term) -> None:
        """Narrow the limits if a term is not 0, and an end of its interval is."""
        low, high = self._of(term)
        if low == 0:
            self._narrow(term, (1, None))
        elif high == 0:
            self._narrow(term, (None, -1))

    def _narrow(self, term: Term, to: Pair) -> None:
        """Narrow the limits to those under which a term is in an interval."""
        low, high = to = intervals.meet(self._of(term), to)
        if low is not None and high is not None and low > high:
            raise _Empty
        op = term.op
        if term.depth > _DEEP:
            return
        if op is Op.SYMBOL:
            if to != self._of(term):
                self._found[term] = to
                self._memo.clear()
        elif op is Op.ADD:
            self._narrow_sum(term, to)
        elif op is Op.MUL:
            self._narrow_product(term, to)
        elif op is Op.FLOORDIV and term.args[1].op is Op.CONST and term.args[1].args[0] > 0:
            by = term.args[1].args[0]
            self._narrow(
                term.args[0],
                (None if low is None else low * by, None if high is None else high * by + by - 1),
            )
        elif (op is Op.MIN and low is not None) or (op is Op.MAX and high is not None):
            for each in term.args:
                self._narrow(each, (low, None) if op is Op.MIN else (None, high))

    def _narrow_sum(self, term: Term, to: Pair) -> None:
        constant, items = arithmetic.split(term)
        if len(items) > _WIDE:
            return
        parts = [intervals.scaled(self._of(each), factor) for each, factor in items]
        for at, (each, factor) in enumerate(items):
            rest: Pair = (constant, constant)
            for other, part in enumerate(parts):
                if other != at:
                    rest = intervals.add(rest, part)
            low, high = intervals.add(to, intervals.negated(rest))
            if factor < 0:
                low, high = intervals.negated((low, high))
            by = abs(factor)
            self._narrow(
                each, (None if low is None else -(-low // by), None if high is None else high // by)
            )

    def _narrow_product(self, term: Term, to: Pair) -> None:
        """Narrow the factors of a product of at least 1, if none is negative."""
        low, high = to
        lows = [self._of(each)[0] for each in term.args]
        if low is None or low < 1 or any(each is None or each < 0 for each in lows):
            return
        for each in term.args:
            self._narrow(each, (1, high))


def _shared(items: Monomials) -> list[Term]:
    """Return the factors that several terms of a short sum have."""
    if not 2 <= len(items) <= _WIDE:
        return []
    counts = Counter(atom for each, _ in items for atom in set(arithmetic.factors(each)))
    return [atom for atom, count in counts.items() if count > 1]


def _minimum(pairs: list[Pair]) -> Pair:
    """Return the interval of the least of several values."""
    lows = [low for low, _ in pairs if low is not None]
    highs = [high for _, high in pairs if high is not None]
    return min(lows) if len(lows) == len(pairs) else None, min(highs, default=None)


def _conjuncts(condition: Term) -> Iterator[Term]:
    if condition.op is Op.AND:
        for part in condition.args:
            yield from _conjuncts(part)
    else:
        yield condition


def _two_alike(condition: Term) -> tuple[Term, Term] | None:
    """Return a symbol, and the one that an equation says is the same."""
    if condition.op is not Op.EQ:
        return None
    constant, items = arithmetic.split(condition.args[0])
    if constant or len(items) != 2 or any(each.op is not Op.SYMBOL for each, _ in items):
        return None
    return (items[1][0], items[0][0]) if items[0][1] == -items[1][1] else None
