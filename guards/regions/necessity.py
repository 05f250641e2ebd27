"""Conditions that are needed, shown by points: all the others hold there, and the condition does
not.

A point costs a few evaluations where a proof that there is none, or a solver that finds one, costs
milliseconds.  From a point at which everything holds one symbol of a condition is moved until the
condition fails; equations that the move breaks are mended by moving their other symbols along.  A
point is checked exactly before it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from guards.deciders.witnesses import each_point
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.facts.completion import Values
from guards.facts.facts import Facts
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term

_POINTS = 3  # from which moves start
_MENDED = 128  # symbols that one move may take along


def shown(
    facts: Facts,
    indices: Sequence[int],
    conditions: Sequence[Term],
    given: Sequence[Term],
    ranges: Mapping[str, Pair],
) -> set[int]:
    """Return the indices whose condition is shown not to follow from the others, ``given`` and the
    ranges.

    ``facts`` knows all of them.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ge
    >>> x, y = symbol("x"), symbol("y")
    >>> conditions = [eq(x, y), ge(x, 3), ge(x + y, 2)]
    >>> facts = Facts()
    >>> for condition in conditions:
    ...     facts = facts.assume(condition)
    >>> sorted(shown(facts, [0, 1, 2], conditions, [], {}))
    [0, 1]
    """
    found: set[int] = set()
    asked = [conditions[index] for index in indices]
    times = Counter([*asked, *given])  # one that stands there twice is implied
    about: dict[str, list[Term]] = {}
    for condition in times:
        for symbol in condition.symbols:
            about.setdefault(symbol.name, []).append(condition)
    for index in indices:
        condition = conditions[index]
        if times[condition] > 1:
            continue
        component = facts.component(condition)
        for number, point in enumerate(each_point(component)):
            if number >= _POINTS:
                break
            if any(_excludes(condition, move, about, ranges) for move in _moves(condition, point)):
                found.add(index)
                break
    return found


Move = tuple[Values, str]
"""Values, of which one was moved."""


def _moves(condition: Term, point: Values) -> Iterator[Move]:
    """Values like a point's, at which the condition fails, by one symbol each."""
    for symbol in sorted(condition.symbols, key=lambda each: each.order, reverse=True):
        name = symbol.name
        now = point[name]
        for number in dict.fromkeys(
            (*_nearest(condition, symbol, point), now + 1, now - 1, now + 2, 0, 1, 2 * now + 1)
        ):
            values = {**point, name: number}
            if number != now and _value(condition, values) is False:
                yield values, name


def _nearest(condition: Term, symbol: Term, point: Values) -> Iterator[int]:
    """The nearest value at which an inequality that is linear in a symbol fails."""
    if condition.op is Op.LE:
        for monomial, coefficient in arithmetic.split(condition.args[0])[1]:
            if monomial is symbol:
                try:
                    gap = 1 - int(fold.evaluate(condition.args[0], point))
                except ZeroDivisionError:
                    return
                step = -(-gap // abs(coefficient))
                yield point[symbol.name] + (step if coefficient > 0 else -step)


def _value(condition: Term, values: Values) -> bool | None:
    try:
        return bool(fold.evaluate(condition, values))
    except ZeroDivisionError:
        return None


def _excludes(
    condition: Term, move: Move, about: Mapping[str, Sequence[Term]], ranges: Mapping[str, Pair]
) -> bool:
    """Return whether a move, with the moves that it entails, makes ``condition`` fail and keeps all
    others true.
    """
    values, name = move
    moved = {name}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        lo, hi = ranges.get(name, SIZES)
        if (lo is not None and values[name] < lo) or (hi is not None and values[name] > hi):
            return False
        for other in about[name]:
            if other is condition or _value(other, values) is True:
                continue
            along = _mended(other, values, moved)
            if along is None or len(moved) >= _MENDED:
                return False
            values.update([along])
            moved.add(along[0])
            waiting.append(along[0])
    # What was mended first may be broken again.
    others = {other for each in moved for other in about[each] if other is not condition}
    return _value(condition, values) is False and all(
        _value(other, values) is True for other in others
    )


def _mended(equation: Term, values: Values, moved: set[str]) -> tuple[str, int] | None:
    """Another symbol of an equation, and the value at which it holds again."""
    if equation.op is not Op.EQ:
        return None
    try:
        gap = int(fold.evaluate(equation.args[0], values))
    except ZeroDivisionError:
        return None
    for monomial, coefficient in arithmetic.split(equation.args[0])[1]:
        if monomial.op is Op.SYMBOL and monomial.name not in moved and gap % coefficient == 0:
            number = values[monomial.name] - gap // coefficient
            if _value(equation, {**values, monomial.name: number}) is True:
                return monomial.name, number
    return None
