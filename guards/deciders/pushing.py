"""Looking for values by pushing: one symbol is moved until a comparison holds, and others make room
for it.

For components with more comparisons than :mod:`guards.deciders.local_search` weighs against each
other: from a point that satisfies all of them, what a move breaks is mended row by row, each by the
least move of another of its terms. What is found is checked exactly before it is believed.  All
limits are counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from guards.deciders.local_search import checked, starts
from guards.domains.interval_arithmetic import Pair
from guards.facts.completion import Values
from guards.facts.component import Component
from guards.terms import arithmetic, fold
from guards.terms.term import Monomials, Op, Term

_MOVES = 64  # and some for each row
_MOVES_A_ROW = 12
_TARGETS = 8  # terms of a comparison that are moved
# of a symbol: where products are mended, each move may square what the one before made
_LARGEST = 1 << 256

Row = tuple[Monomials, Pair]


def push(component: Component, asked: Term, formula: Term, value: bool) -> Values | None:
    """A point of the component at which ``asked`` has that value, sought where ``formula`` holds;
    None: none was found.

    >>> from guards.asking.assumptions import facts_from
    >>> from guards import parse
    >>> asked = parse("c <= a")
    >>> component = facts_from(None, ["a <= b", "b <= c"]).component(asked)
    >>> point = push(component, asked, parse("c > a"), False)
    >>> point["a"] <= point["b"] <= point["c"], point["c"] > point["a"]
    (True, True)
    """
    touching: dict[str, list[Row]] = {}
    for row in component.rows.items():
        for monomial, _ in row[0]:
            for symbol in monomial.symbols:
                touching.setdefault(symbol.name, []).append(row)
    for _, values in starts(component, []):
        start = _mended(component, touching, values, [(row, "") for row in component.rows.items()])
        if start is None:
            continue
        found = checked(component, asked, start, value)
        if found is not None:
            return found
        for target in _targets(formula):
            for name, number in _moves(component, target, start):
                waiting = [(row, name) for row in touching.get(name, [])]
                made = _mended(component, touching, {**start, name: number}, waiting, name)
                point = None if made is None else checked(component, asked, made, value)
                if point is not None:
                    return point
    return None


def _targets(formula: Term) -> Iterator[Term]:
    """Terms of which one that is at most 0 is sought."""
    if formula.op is Op.LE:
        yield formula.args[0]
    elif formula.op is Op.NE:
        yield arithmetic.add(formula.args[0], 1)
        yield arithmetic.sub(1, formula.args[0])


def _moves(component: Component, target: Term, values: Values) -> Iterator[tuple[str, int]]:
    """Symbols, each with the nearest value at which a term that is linear in it is at most 0."""
    try:
        gap = int(fold.evaluate(target, values))
    except (ZeroDivisionError, KeyError):
        return
    for monomial, coefficient in arithmetic.split(target)[1][:_TARGETS]:
        if gap > 0 and monomial.op is Op.SYMBOL and monomial.name in values:
            step = -(-gap // abs(coefficient))
            number = values[monomial.name] - (step if coefficient > 0 else -step)
            if _within(component.bounds(monomial), number):
                yield monomial.name, number


def _within(pair: Pair, number: int) -> bool:
    return (pair[0] is None or pair[0] <= number) and (pair[1] is None or number <= pair[1])


def _mended(
    component: Component,
    touching: dict[str, list[Row]],
    values: Values,
    waiting: list[tuple[Row, str]],
    kept: str = "",
) -> Values | None:
    """Values at which all rows hold, as far as moves of one symbol after the other (and not of
    ``kept``) lead there.

    ``waiting`` are the rows to look at, each with the symbol that moved.
    """
    values = dict(values)
    left = _MOVES + _MOVES_A_ROW * len(component.rows)
    while waiting:
        (form, pair), moved = waiting.pop()
        try:
            total = sum([c * int(fold.evaluate(m, values)) for m, c in form])
        except (ZeroDivisionError, KeyError):
            return None
        if _within(pair, total):
            continue
        wanted = pair[0] if pair[0] is not None and total < pair[0] else pair[1]
        assert wanted is not None
        for monomial, coefficient in form:
            if (
                monomial.op is not Op.SYMBOL
                or monomial.name in (moved, kept)
                or monomial.name not in values
            ):
                continue
            gap = wanted - total  # rounded away from 0
            step = -(-abs(gap) // abs(coefficient))
            there = values[monomial.name] + (step if (gap > 0) is (coefficient > 0) else -step)
            if abs(there) <= _LARGEST and _within(component.bounds(monomial), there):
                left -= 1
                if left < 0:
                    return None
                values[monomial.name] = there
                waiting += [(row, monomial.name) for row in touching.get(monomial.name, [])]
                break
        else:
            return None
    return values
