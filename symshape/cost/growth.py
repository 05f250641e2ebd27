"""The growth of formulas: the degree of each symbol, and the ops that cause it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from guards.terms.arithmetic import split
from guards.terms.fold import fold
from guards.terms.term import Op, Term


@attrs.frozen
class Growth:
    """The highest power of a symbol in a cost, and the places that cause it.

    Attributes:
        symbol: its name.
        degree: the power, of this symbol alone.
        places: the ops that grow so, each with the user's line, those that weigh most first.
    """

    symbol: str
    degree: int
    places: tuple[str, ...]

    def __str__(self) -> str:
        power = "does not grow" if self.degree == 0 else f"grows with {self.symbol}"
        if self.degree > 1:
            power += f"**{self.degree}"
        if not self.places:
            return power if self.degree else f"{power} with {self.symbol}"
        more = f" and {len(self.places) - 1} more" if len(self.places) > 1 else ""
        return f"{power} in {self.places[0]}{more}"


def degree(term: Term, symbol: Term) -> int:
    """Return the highest power of ``symbol`` that a formula grows with, the other symbols fixed.

    >>> from guards import parse, symbol
    >>> s = symbol("s")
    >>> [
    ...     degree(parse(text), s)
    ...     for text in ("3*s*s + t*s", "(s*s + 7)//8", "min(s, 4)*s", "s % 8", "t*t", "s*s//s")
    ... ]
    [2, 2, 1, 0, 0, 1]
    """
    return fold(term, _degree_of(symbol))


def _degree_of(symbol: Term) -> Callable[[Term, list[int]], int]:
    def algebra(part: Term, operands: list[int]) -> int:
        op = part.op
        if op is Op.SYMBOL:
            return int(part is symbol)
        if not operands:
            return 0
        if op is Op.MUL:
            return sum(operands)
        if op is Op.FLOORDIV:
            return max(0, operands[0] - operands[1])
        if op is Op.MOD or op is Op.MIN:
            return min(operands) if op is Op.MIN or operands[1] else 0
        return max(operands[1:] if op is Op.ITE else operands)

    return algebra


def growth(symbol: Term, formulas: Sequence[tuple[str, Term]]) -> Growth:
    """Return the growth of a sum of formulas, each with its place."""
    degrees = [(place, term, degree(term, symbol)) for place, term in formulas]
    most = max((found for _, _, found in degrees), default=0)
    places: dict[str, int] = {}
    for place, term, found in degrees:
        if found == most and most:
            places[place] = places.get(place, 0) + _leading(term, symbol, most)
    ordered = sorted(places, key=lambda place: -places[place])
    return Growth(symbol.name, most, tuple(ordered))


def _leading(term: Term, symbol: Term, most: int) -> int:
    """Return the weight of a formula: the sum of the coefficients of its fastest-growing part."""
    return sum(coefficient for part, coefficient in split(term)[1] if degree(part, symbol) == most)
