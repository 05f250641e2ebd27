"""Fourier–Motzkin elimination over the integers: what conditions say about the other symbols where
some value of one satisfies all of them.

An equation gives the value away, and leaves that a division has no remainder.  Of inequalities
(Fourier 1826, Motzkin
1936) remains that each lower bound ``l <= a*s`` meets each upper bound ``b*s <= u``.  Over the
      rationals that is
``b*l <= a*u``, which Pugh calls the real shadow (The Omega Test, Supercomputing 1991); over the
integers it is exact only where ``a`` or ``b`` is 1 (Williams, J. Combinatorial Theory A 21, 1976).
The Omega test goes on with dark and grey shadows; here terms have quotients, so that
``ceil(l / a) <= floor(u / b)``, which is exact, is simply said.

What is not of that kind, such a quotient too, is looked at by cases, each a conjunction of its own:
the parts of an ``or``, the operands of a ``min``, ``max`` or ``ite``, the remainders by the numbers
that divide (as in Cooper, Machine Intelligence 7, 1972), the values of a small range.  Where that
takes too many cases, conditions are given up and the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import count, product
from math import lcm

from guards.domains.interval_arithmetic import EVERYTHING, meet
from guards.domains.linear_form import bounded_by
from guards.facts.component import new_symbol
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.boolean import FALSE, TRUE
from guards.terms.case_distinction import cases
from guards.terms.term import Op, Term, among, postorder, same_form

_ROWS = 200  # a case must not have more conditions than this
_CASES = 256  # cases looked at in all
_BRANCHES = 32  # cases made in one step

Rows = tuple[Term, ...]


def eliminate(rows: Iterable[Term], kept: Set[Term]) -> tuple[Term, bool]:
    """A condition on the symbols ``kept`` alone, and whether it says all that the rows say about
    those.

    Where it does not, it holds at more values than it should, never at fewer.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import gt, lt
    >>> a, b, c = map(symbol, "abc")
    >>> eliminate([lt(a, b), lt(b, c), gt(b, 3)], {a, c})
    (<a + 2 <= c and c >= 5>, True)
    >>> eliminate([boolean.eq(a, 8 * b + 3), gt(b, 0)], {a})
    (<(a + 5) % 8 == 0 and a >= 11>, True)
    """
    fresh = count()
    pending: list[Rows] = [tuple(rows)]
    found: dict[Term, None] = {}
    exact = True
    cases = 0
    while pending:
        cases += 1
        case = _flat(pending.pop())
        if case is None:
            continue
        others: set[Term] = {s for row in case for s in row.symbols} - kept
        if not others:
            found[boolean.and_(*case)] = None
            continue
        made = _best(case, others, fresh) if cases + len(pending) < _CASES else None
        if made is None:  # give up the conditions on one of them
            times = _times(case)
            s = min(others, key=lambda s: (times[s], s.order))
            pending.append(tuple(row for row in case if s not in row.symbols))
            exact = False
        else:
            pending += reversed(made)
    return boolean.or_(*found), exact


def _flat(rows: Sequence[Term]) -> Rows | None:
    """Return the rows with conjunctions split into their parts; None if one row is never true."""
    made: dict[Term, None] = {}
    for row in rows:
        for part in row.args if row.op is Op.AND else (row,):
            if part is FALSE:
                return None
            if part is not TRUE:
                made[part] = None
    return tuple(made)


def _put(row: Term, replacements: Mapping[Term, Term]) -> Term:
    """A condition with parts replaced; one that is undefined then does not hold."""
    try:
        return fold.substitute(row, replacements)
    except ZeroDivisionError:
        return FALSE


def _times(case: Rows) -> Counter[Term]:
    """Return in how many rows each symbol occurs."""
    return Counter([s for row in case for s in row.symbols])


def _best(case: Rows, others: Set[Term], fresh: Iterator[int]) -> list[Rows] | None:
    """The cases that are left without one symbol, or that make one easier; as few as possible."""
    best: list[Rows] | None = None
    times = _times(case)
    for s in sorted(others, key=lambda s: (times[s], s.order)):
        made = _without(case, s) or _split(case, s, fresh)
        if made is not None and (best is None or len(made) < len(best)):
            best = made
            if len(best) == 1:
                break
    return best


# -- one symbol ------------------------------------------------------------------------------------


def _without(case: Rows, s: Term) -> list[Rows] | None:
    """The case without ``s``, said with the same truth; None where that takes more than
    arithmetic.
    """
    about = [row for row in case if s in row.symbols]
    rest = tuple(row for row in case if s not in row.symbols)
    linear = [(_coefficient(row, s), row) for row in about]
    for c, row in sorted(linear, key=lambda pair: abs(pair[0] or 0)):
        if c and row.op is Op.EQ:
            others = arithmetic.sub(row.args[0], arithmetic.scale(s, c))  # c*s + others == 0
            whole = boolean.is_zero(division.mod(others, abs(c)))
            made = [_at(other, s, c, others) for other in about if other is not row]
            return [(*rest, whole, *made)]
    lower: list[tuple[int, Term]] = []  # coefficient * s >= term
    upper: list[tuple[int, Term]] = []
    for c, row in linear:
        if not c or row.op is not Op.LE:
            return None
        others = arithmetic.sub(row.args[0], arithmetic.scale(s, c))
        if c > 0:
            upper.append((c, arithmetic.scale(others, -1)))
        else:
            lower.append((-c, others))
    if len(lower) * len(upper) > _ROWS:
        return None
    return [(*rest, *(_meets(low, high) for low, high in product(lower, upper)))]


def _coefficient(row: Term, s: Term) -> int | None:
    """Return the coefficient of ``s`` in a relation that is linear in ``s``; None in any other."""
    if not Op.EQ <= row.op <= Op.LE or row.op is Op.NE:
        return None
    items = arithmetic.split(row.args[0])[1]
    if any(s in m.symbols for m, _ in items if m is not s):
        return None
    return dict(items).get(s)


def _at(row: Term, s: Term, c: int, others: Term) -> Term:
    """A condition at the ``s`` with ``c*s + others == 0``, which divides."""
    factor = _coefficient(row, s)
    if factor is None:
        return _put(
            row, {s: division.floordiv(arithmetic.scale(others, -1 if c > 0 else 1), abs(c))}
        )
    rest = arithmetic.sub(row.args[0], arithmetic.scale(s, factor))
    # |c| * (factor*s + rest) compared with 0
    scaled = arithmetic.scale(others, -factor if c > 0 else factor) + arithmetic.scale(rest, abs(c))
    return boolean.is_zero(scaled) if row.op is Op.EQ else boolean.not_positive(scaled)


def _meets(low: tuple[int, Term], high: tuple[int, Term]) -> Term:
    """Return the condition that an integer lies between both bounds: the real shadow, where that is
    exact.

    A bound is a pair that stands for ``term / coefficient``.
    """
    (a, least), (b, most) = low, high
    if a == 1 or b == 1:
        return boolean.le(arithmetic.scale(least, b), arithmetic.scale(most, a))
    return boolean.le(
        arithmetic.scale(division.floordiv(arithmetic.scale(least, -1), a), -1),
        division.floordiv(most, b),
    )


# -- cases -----------------------------------------------------------------------------------------


def _split(case: Rows, s: Term, fresh: Iterator[int]) -> list[Rows] | None:
    """Cases that together say the same, in each of which ``s`` stands more simply; None where none
    are known.
    """
    for index, row in enumerate(case):
        if s not in row.symbols:
            continue
        rest = (*case[:index], *case[index + 1 :])
        if row.op is Op.OR:
            return [(*rest, part) for part in row.args] if len(row.args) <= _BRANCHES else None
        if row.op is Op.NE:
            return [(*rest, boolean.le(row.args[0], -1)), (*rest, boolean.ge(row.args[0], 1))]
        for part in postorder(row):
            if part.op in (Op.MIN, Op.MAX, Op.ITE) and s in part.symbols:
                return [
                    (asked, *(_put(other, {part: taken}) for other in case))
                    for asked, taken in cases(part)
                ]
    return _by_remainder(case, s, fresh) or _by_value(case, s)


def _by_remainder(case: Rows, s: Term, fresh: Iterator[int]) -> list[Rows] | None:
    """``s`` as ``n*k + r`` for each remainder ``r`` by the numbers that divide it."""
    number = 1
    for row in case:
        for part in postorder(row):
            if (
                part.op in (Op.FLOORDIV, Op.MOD)
                and s in part.args[0].symbols
                and part.args[1].op is Op.CONST
            ):
                coefficient = dict(arithmetic.split(part.args[0])[1]).get(s)
                if coefficient is not None:
                    number = lcm(number, abs(part.args[1].value))
    if not 1 < number <= _BRANCHES:
        return None
    made = []
    k = new_symbol(f"{number}:{next(fresh)}")
    for rest in range(number):
        rows = tuple(_put(row, {s: arithmetic.scale(k, number) + rest}) for row in case)
        if not among(FALSE, rows):
            made.append(rows)
    return made or [(FALSE,)]


def _by_value(case: Rows, s: Term) -> list[Rows] | None:
    """One case for each value of ``s``, where the bounds in the case leave it but a few."""
    limits = EVERYTHING
    for row in case:
        found = bounded_by(row)
        if found is not None and same_form(found[0], ((s, 1),)):
            limits = meet(limits, found[1])
    low, high = limits
    if low is None or high is None or high - low >= _BRANCHES:
        return None
    made = [_at_value(case, s, value) for value in range(low, high + 1)]
    return [rows for rows in made if rows] or [(FALSE,)]


def _at_value(case: Rows, s: Term, value: int) -> Rows:
    rows = tuple(_put(row, {s: arithmetic.const(value)}) for row in case)
    return () if among(FALSE, rows) else rows
