"""Implications that are plain to see: no decider takes part, neither ours nor Z3.

What this says is read off the conditions as they stand: one of them is there, or it compares one
symbol with a constant that the others keep it on the right side of, or it fails at single values
only, and another one is false at these.  It is for what most traces drop (``s1 != 0`` beside
``s1 >= 2`` or ``s0*s1 != s1``), where the first question to a solver would cost more than the rest
of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from guards.domains.interval_arithmetic import SIZES, Pair, meet
from guards.domains.linear_form import bounded_by
from guards.regions.satisfiability import Ranges
from guards.terms import arithmetic
from guards.terms.boolean import FALSE
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
        forms = [condition, substitute(condition, self._same)] if self._same else [condition]
        return any(self._holds(each) or self._excludes(each) for each in forms)

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

    def _excludes(self, condition: Term) -> bool:
        """Return whether a part is false at the only values at which ``condition`` can fail."""
        values = self._values_without(condition)
        return bool(values) and any(_is_false(part, values) for part in self._parts)

    def _values_without(self, condition: Term) -> dict[Term, Term]:
        """Return the values that terms must have where ``condition`` fails, as far as they are
        plain.
        """
        if condition.op is Op.OR:
            found: dict[Term, Term] = {}
            for part in condition.args:
                found |= self._values_without(part)
            return found
        if condition.op is Op.NE:
            return self._values_of_product(condition)
        bounded = _of_one(condition)
        if bounded is None:
            return {}
        symbol, (low, high) = bounded
        least, most = self._limit(symbol)
        if high is None and low is not None and least == low - 1:
            return {symbol: arithmetic.const(least)}
        if low is None and high is not None and most == high + 1:
            return {symbol: arithmetic.const(most)}
        return {}

    def _values_of_product(self, condition: Term) -> dict[Term, Term]:
        """Return the values of the factors of a product that a condition tells from a number, where
        they are equal: of a product of sizes that is 1, each is 1.
        """
        constant, items = arithmetic.split(condition.args[0])
        if len(items) != 1:
            return {}
        value, rest = divmod(-constant, items[0][1])
        factors = arithmetic.factors(items[0][0])
        if rest or (len(factors) > 1 and not (value == 1 and all(map(self._is_size, factors)))):
            return {}
        return dict.fromkeys(factors, arithmetic.const(value))

    def _is_size(self, term: Term) -> bool:
        """Return whether a term is plainly 0 or more."""
        if term.op is Op.SYMBOL:
            low = self._limit(term)[0]
            return low is not None and low >= 0
        if term.op is Op.CONST:
            return term.args[0] >= 0  # type: ignore[no-any-return]
        if term.op is Op.ADD:
            constant, items = arithmetic.split(term)
            return constant >= 0 and all(
                factor > 0 and all(map(self._is_size, arithmetic.factors(each)))
                for each, factor in items
            )
        if term.op is Op.FLOORDIV:
            divisor = term.args[1]
            return divisor.op is Op.CONST and divisor.args[0] > 0 and self._is_size(term.args[0])
        return False


def _is_false(part: Term, values: dict[Term, Term]) -> bool:
    """Return whether a condition is false where terms have these values."""
    try:
        return substitute(part, values) is FALSE
    except ZeroDivisionError:  # it has no truth there
        return False


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
