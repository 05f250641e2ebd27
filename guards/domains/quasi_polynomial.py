"""Functions and conditions of one integer, exactly: on each run of each remainder class a
polynomial, or a truth.

Every term in one symbol is such a function: sums and products of polynomials are polynomials; a
quotient or remainder by a number becomes a polynomial in each class of a finer modulus; a quotient
by a polynomial is one beyond finitely many values; and a comparison holds or fails on the runs of
integers between the roots. So the values at which a condition holds form runs in remainder classes,
whatever the condition is, up to a limit on how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import attrs

from guards.budget import current
from guards.domains.interval_arithmetic import Pair
from guards.domains.polynomial import (
    Poly,
    period,
    polynomial,
    product,
    quotient,
    sign_runs,
    value_at,
    weighted_sum,
)
from guards.terms import fold
from guards.terms.term import Op, Term

MOST = 20_000  # runs of all classes together
_LISTED = 2_000  # values tried one by one where a quotient by a polynomial has not settled yet

# up to which value, inclusive, and what is there: a Poly, a bool, or None (not defined)
Run = tuple[int | None, Any]


class TooMany(Exception):
    """A function that has more pieces than one wants to look at, or than the question has left to
    look at.
    """


@attrs.frozen
class Pieces:
    """A function of one integer within ``domain``.

    Attributes:
        domain: the values looked at.
        modulus: how many remainder classes there are.
        classes: for each class the runs of its values, from the low end of the domain on; none for
            a class that is of no interest.
        most: how many runs a function made of this one may have.
    """

    domain: Pair
    modulus: int
    classes: tuple[tuple[Run, ...], ...]
    most: int = MOST

    def at(self, value: int) -> Any:
        """Return the piece at a value of the domain."""
        return next(
            what
            for last, what in self.classes[value % self.modulus]
            if last is None or value <= last
        )


def pieces_of(
    term: Term, domain: Pair, known: tuple[int, int] = (1, 0), most: int = MOST
) -> Pieces:
    """The pieces of a term in one symbol alone, for values of the domain that are ``known[1]``
    modulo ``known[0]``.

    Raises:
        TooMany: there are more than ``most`` in all classes together.

    >>> from guards import parse
    >>> found = pieces_of(parse("s // 4 == 2"), (0, None))
    >>> [value for value in range(20) if found.at(value)]
    [8, 9, 10, 11]
    """
    modulus, rest = known
    if modulus > most:
        raise TooMany
    whole: tuple[Run, ...] = ((domain[1], (Fraction(0), Fraction(1))),)
    start = Pieces(domain, modulus, tuple(whole if r == rest else () for r in range(modulus)), most)

    def algebra(part: Term, operands: list[Pieces]) -> Pieces:
        return _node(part, operands, start)

    return fold.fold(term, algebra)


def _node(part: Term, operands: list[Pieces], start: Pieces) -> Pieces:
    op = part.op
    if op is Op.SYMBOL:
        return start
    if op is Op.CONST:
        return _constant(start, polynomial(part.args[0]))
    if op is Op.TRUE or op is Op.FALSE:
        return _constant(start, op is Op.TRUE)
    if op is Op.ADD:
        weights = [c for _, c in part.args[1]]
        return _merged(operands, lambda *polys: weighted_sum(part.args[0], weights, polys))
    if op is Op.MUL:
        return _merged(operands, product)
    if op is Op.FLOORDIV:
        return _divided(operands[0], operands[1])
    if op is Op.MOD:
        whole = _divided(operands[0], operands[1])
        return _merged(
            [operands[0], operands[1], whole],
            lambda a, b, q: weighted_sum(0, (1, -1), (a, product(b, q))),
        )
    if op is Op.MIN or op is Op.MAX:
        result = operands[0]
        for other in operands[1:]:
            result = _picked(result, other, op is Op.MAX)
        return result
    if op is Op.AND or op is Op.OR:
        return _merged(operands, lambda *truths: _connected(op is Op.OR, truths))
    if op is Op.ITE:
        return _merged(operands, lambda asked, a, b: None if asked is None else a if asked else b)
    return _compared(operands[0], op)


# -- functions -------------------------------------------------------------------------------------


def _constant(like: Pieces, what: Any) -> Pieces:
    return Pieces(
        like.domain,
        like.modulus,
        tuple(((like.domain[1], what),) if runs else () for runs in like.classes),
        like.most,
    )


def _aligned(
    functions: Sequence[Pieces], modulus: int
) -> Iterator[list[tuple[int | None, int | None, list[Any]]]]:
    """For each class of a common modulus: the runs of all functions, cut where one of them is."""
    low = functions[0].domain[0]
    for rest in range(modulus):
        rows = [function.classes[rest % function.modulus] for function in functions]
        cut: list[tuple[int | None, int | None, list[Any]]] = []
        if all(rows):
            at = [0] * len(rows)
            start = low
            while True:
                ends = [
                    last
                    for row, index in zip(rows, at, strict=True)
                    if (last := row[index][0]) is not None
                ]
                end = min(ends, default=None)
                cut.append(
                    (start, end, [row[index][1] for row, index in zip(rows, at, strict=True)])
                )
                at = [
                    index + (end is not None and row[index][0] == end)
                    for row, index in zip(rows, at, strict=True)
                ]
                if end is None or any(
                    index == len(row) for row, index in zip(rows, at, strict=True)
                ):
                    break
                start = end + 1
        yield cut


def _made(functions: Sequence[Pieces], modulus: int, each: Callable[..., list[Run]]) -> Pieces:
    """The function whose runs ``each(what, ..., rest, lo, hi)`` gives for every run on which all
    are one piece.
    """
    domain, most = functions[0].domain, functions[0].most
    classes = []
    count = 0
    budget = current()
    if modulus > most or (budget is not None and budget.runs <= 0):
        raise TooMany
    for rest, cut in enumerate(_aligned(functions, modulus)):
        runs: list[Run] = []
        for lo, hi, parts in cut:
            for last, what in each(*parts, rest, lo, hi):
                if runs and runs[-1][1] == what:
                    runs.pop()
                runs.append((last, what))
            if cut and runs and hi is None:
                runs[-1] = (None, runs[-1][1])
        if runs:
            runs[-1] = (domain[1], runs[-1][1])
        count += len(runs)
        if count > most:
            raise TooMany
        classes.append(tuple(runs))
    if budget is not None:
        budget.runs -= max(count, modulus)
    return Pieces(domain, modulus, tuple(classes), most)


def _merged(functions: Sequence[Pieces], combine: Callable[..., Any]) -> Pieces:
    modulus = lcm(*(function.modulus for function in functions))
    return _made(functions, modulus, lambda *parts: [(parts[-1], combine(*parts[:-3]))])


def _connected(stop: bool, truths: Sequence[bool | None]) -> bool | None:
    if stop in truths:
        return stop
    return None if None in truths else not stop


def _compared(function: Pieces, op: Op) -> Pieces:
    holds = {Op.EQ: (0,), Op.NE: (-1, 1), Op.LE: (-1, 0)}[op]

    def each(poly: Poly | None, rest: int, lo: int | None, hi: int | None) -> list[Run]:
        if poly is None:
            return [(hi, None)]
        return [
            (last, sign in holds) for last, sign in sign_runs(poly, function.modulus, rest, lo, hi)
        ]

    return _made([function], function.modulus, each)


def _picked(a: Pieces, b: Pieces, greatest: bool) -> Pieces:
    modulus = lcm(a.modulus, b.modulus)

    def each(
        p: Poly | None, q: Poly | None, rest: int, lo: int | None, hi: int | None
    ) -> list[Run]:
        difference = weighted_sum(0, (1, -1), (p, q))
        if difference is None:
            return [(hi, None)]
        signs = sign_runs(difference, modulus, rest, lo, hi)
        return [(last, p if (sign > 0) is greatest else q) for last, sign in signs]

    return _made([a, b], modulus, each)


def _divided(a: Pieces, b: Pieces) -> Pieces:
    """``a // b``"""
    modulus = lcm(a.modulus, b.modulus)
    if modulus > a.most:
        raise TooMany
    finer = modulus
    for cut in _aligned([a, b], modulus):
        for _, _, (p, q) in cut:
            if p is None or not q:
                continue
            finer = lcm(finer, period(p, int(q[0])) if len(q) == 1 else period(quotient(p, q), 1))
            if finer > a.most:
                raise TooMany

    def each(
        p: Poly | None, q: Poly | None, rest: int, lo: int | None, hi: int | None
    ) -> list[Run]:
        if p is None or not q:
            return [(hi, None)]
        if len(q) > 1:
            return _by_polynomial(p, q, finer, rest, lo, hi)
        divisor = int(q[0])
        remainder = int(value_at(p, rest)) % divisor
        shifted = weighted_sum(-remainder, (1,), (p,))
        assert shifted is not None
        return [(hi, polynomial(*(c / divisor for c in shifted)))]

    return _made([a, b], finer, each)


def _by_polynomial(
    p: Poly, q: Poly, modulus: int, rest: int, lo: int | None, hi: int | None
) -> list[Run]:
    """``p // q`` in one class in which the polynomial part of the quotient has one fraction."""
    whole = quotient(p, q)
    fraction = value_at(whole, rest) % 1
    runs: list[Run] = []
    start = lo
    for end, sign in sign_runs(q, modulus, rest, lo, hi):
        if not sign:
            runs.append((end, None))
        else:
            floor = polynomial(whole[0] - fraction, *whole[1:]) if whole else whole
            runs += _settled(p, q, sign, floor, modulus, rest, start, end)
        start = None if end is None else end + 1
    return runs


def _settled(
    p: Poly,
    q: Poly,
    sign: int,
    floor: Poly,
    modulus: int,
    rest: int,
    lo: int | None,
    hi: int | None,
) -> list[Run]:
    """The quotient where the divisor has one sign: ``floor`` or one less in the long run, value by
    value elsewhere.
    """
    # p - floor*q, as if the divisor were positive
    left = weighted_sum(0, (sign, -sign), (p, product(floor, q)))
    assert left is not None
    runs: list[Run] = []
    start = lo
    for end, low in sign_runs(left, modulus, rest, lo, hi):
        offset = 0 if low >= 0 else -1  # it is floor + offset where 0 <= left - offset*size < size
        close = weighted_sum(0, (1, -sign if low >= 0 else sign), (left, q))
        assert close is not None
        for last, other in sign_runs(close, modulus, rest, start, end):
            if (other < 0) if low >= 0 else (other >= 0):
                runs.append((last, weighted_sum(offset, (1,), (floor,))))
            else:
                runs += _one_by_one(p, q, modulus, rest, start, last)
            start = None if last is None else last + 1
    return runs


def _one_by_one(
    p: Poly, q: Poly, modulus: int, rest: int, lo: int | None, hi: int | None
) -> list[Run]:
    if lo is None or hi is None or hi - lo > _LISTED * modulus:
        raise TooMany
    values = range(lo + (rest - lo) % modulus, hi + 1, modulus)
    runs: list[Run] = [
        (value, polynomial(value_at(p, value) // value_at(q, value))) for value in values
    ]
    if runs:
        runs[-1] = (hi, runs[-1][1])
    return runs
