"""The greatest size for which formulas stay within a budget and the guards hold: exact, or an
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from guards.asking.questions import ask
from guards.domains.quasi_polynomial import Pieces, TooMany, pieces_of
from guards.errors import CannotSolve
from guards.facts.definedness import guarded, satisfied
from guards.facts.facts import Facts
from guards.regions.solving import solve
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.origin import Origin
from guards.terms import arithmetic, boolean, fold
from guards.terms.term import Term
from symshape.cost.domain import MOST, Domain
from symshape.errors import InputError

_STEPS = 100_000
"""The number of sizes below a bound that are tried one by one until the guards allow one."""

_ABOVE = 64
"""The number of sizes above the largest at which guards are asked whether they refuse it."""


def largest(
    domain: Domain, terms: Sequence[Term], symbol: str, at_most: int, others: Mapping[str, int]
) -> int:
    """Return the greatest ``symbol``, from 1 on, for which guards hold and all ``terms`` are at
    most ``at_most``.

    ``others`` gives the values of the other symbols.  The values are found as runs of the
    polynomials that the formulas are in each remainder class, exactly; where these are too many, by
    bisection if the formulas are proven to grow.

    Raises:
        InputError: a symbol is unknown or missing, nothing fits, everything fits, or neither way
            leads to an answer.
        GuardViolation: the guards do not hold for the other sizes.
    """
    domain.require(symbol)
    if symbol in others:
        raise InputError(
            f"{symbol!r} is the size to solve for, but also given (={others[symbol]}); leave it "
            "out of the sizes"
        )
    unknown = arithmetic.symbol(symbol)
    domain.check_names(others, _needed(domain, terms, unknown))
    domain.check_sizes(others)
    replacements = {
        arithmetic.symbol(name): arithmetic.const(value) for name, value in others.items()
    }
    allowed = _conditions(domain, replacements, unknown)
    bounded = [fold.substitute(term, replacements) for term in terms]
    fitting = boolean.and_(*allowed, *(boolean.le(term, at_most) for term in bounded))
    lowest, high = domain.guards.ranges.get(symbol, (0, None))
    low = max(lowest or 0, 1)  # that nothing at all fits is no answer
    try:
        found = _last(pieces_of(fitting, (low, high)))
    except TooMany:
        found = _by_bisection(
            bounded, allowed, unknown, at_most, low, MOST if high is None else high
        )
    if found is None:
        raise _nothing_fits(bounded, allowed, unknown, at_most)
    if found >= MOST:
        raise InputError(
            f"every {symbol} fits: what is asked for does not grow with it, and no guard bounds it"
        )
    return found


def allowed_range(domain: Domain, symbol: str, others: Mapping[str, int]) -> tuple[int, int | None]:
    """Return the least size, from 1 on, and the greatest that the guards allow; None if there is no
    greatest.

    Raises:
        InputError: a symbol is unknown or missing, or no allowed size is found.
        GuardViolation: the guards do not hold for the other sizes.
    """
    domain.require(symbol)
    unknown = arithmetic.symbol(symbol)
    domain.check_names(others, _needed(domain, (), unknown))
    domain.check_sizes(others)
    replacements = {
        arithmetic.symbol(name): arithmetic.const(value) for name, value in others.items()
    }
    allowed = _conditions(domain, replacements, unknown)
    lowest, high = domain.guards.ranges.get(symbol, (0, None))
    low = max(lowest or 0, 1)
    try:
        pieces = pieces_of(boolean.and_(*allowed), (low, high))
        least, greatest = _first(pieces), _last(pieces)
    except TooMany:
        holding = (
            value
            for value in range(low, low + _STEPS)
            if all(satisfied(condition, {symbol: value}) for condition in allowed)
        )
        least = next(holding, None)
        greatest = MOST if high is None else _by_bisection([], allowed, unknown, 0, low, high)
    if least is None or greatest is None:
        raise _nothing_allowed(symbol)
    return least, None if greatest >= MOST else greatest


def limiting(domain: Domain, symbol: str, value: int, others: Mapping[str, int]) -> tuple[str, ...]:
    """Return the guards that allow no ``symbol`` above ``value``, whatever the budget; none if a
    larger one is allowed.

    Raises: as :func:`allowed_range`.
    """
    _, greatest = allowed_range(domain, symbol, others)
    if greatest is None or greatest > value:
        return ()
    far = [
        domain.broken({**others, symbol: above})
        for above in range(value + _ABOVE // 2, value + _ABOVE)
    ]
    always = tuple(text for text in far[0] if all(text in each for each in far))
    return always or tuple(domain.broken({**others, symbol: value + 1}))


def within(terms: Sequence[Term], at_most: int, rule: str, domain: Domain) -> GuardSet:
    """Return the sizes for which all ``terms`` are at most ``at_most``, with the ranges of the
    domain's symbols.
    """
    return budget([boolean.le(term, at_most) for term in terms], rule, domain)


def budget(conditions: Sequence[Term], rule: str, domain: Domain) -> GuardSet:
    """Return conditions as a guard set, with the ranges of the domain's symbols; ``rule`` names
    their origin.
    """
    origin = Origin("", 0, rule=rule)
    ranges = {name: domain.guards.ranges.get(name, (0, None)) for name in domain.symbols}
    return GuardSet(tuple(Guard(each, origin) for each in conditions), ranges=ranges)


def solved(
    domain: Domain, terms: Sequence[Term], symbol: str, at_most: int, others: Mapping[str, int]
) -> list[Term]:
    """Return the conditions on ``symbol`` under which all ``terms`` are at most ``at_most``, solved
    for the symbol.

    Sizes that ``others`` does not give stay in the conditions as symbols.

    Raises:
        InputError: a symbol is unknown, a value is no size, or no such condition is known.
    """
    domain.require(symbol)
    if symbol in others:
        raise InputError(
            f"{symbol!r} is the size to solve for, but also given (={others[symbol]}); leave it "
            "out of the sizes"
        )
    domain.check_names(others, frozenset())
    domain.check_sizes(others)
    replacements = {
        arithmetic.symbol(name): arithmetic.const(value) for name, value in others.items()
    }
    try:
        bounded = [boolean.le(fold.substitute(term, replacements), at_most) for term in terms]
    except ZeroDivisionError as error:
        sizes = ", ".join(f"{name}={value}" for name, value in others.items())
        raise InputError(f"the formula has no value at {sizes}: {error}") from None
    ranges = {
        arithmetic.symbol(name): domain.guards.ranges.get(name, (0, None))
        for name in domain.symbols
    }
    try:
        return [solve(each, symbol, Facts.make(ranges, [])) for each in bounded]
    except CannotSolve as error:
        free = [name for name in domain.symbols if name != symbol and name not in others]
        hint = f"; give values for {', '.join(free)}" if free else ""
        raise InputError(f"the budget is not solved for {symbol}: {error}{hint}") from None


def _needed(domain: Domain, terms: Sequence[Term], unknown: Term) -> frozenset[str]:
    """Return the symbols, except the unknown, in the formulas and in guards on the unknown."""
    spoken = [guard.term for guard in domain.guards if unknown in guard.term.symbols]
    return frozenset(s.name for term in (*terms, *spoken) for s in term.symbols if s is not unknown)


def _conditions(domain: Domain, replacements: Mapping[Term, Term], unknown: Term) -> list[Term]:
    """Return the guards on the unknown, with the other sizes substituted.

    Raises: GuardViolation where they do not hold for the other sizes, whatever the unknown is.
    """
    found: list[Term] = []
    wrong: list[str] = []
    for guard in domain.guards.conditions:
        left = fold.substitute(guarded(guard.term), replacements)
        if left is boolean.FALSE:
            wrong.append(guard.text())
        elif not left.symbols - {unknown} and left is not boolean.TRUE:
            found.append(left)
    if wrong:
        domain.refuse(wrong)
    return found


def _last(pieces: Pieces) -> int | None:
    """Return the greatest value at which a condition holds; ``MOST`` if it is unbounded, None if
    there is no value.
    """
    best: int | None = None
    for rest, runs in enumerate(pieces.classes):
        start = pieces.domain[0]
        for end, holds in runs:
            if holds:
                if end is None:
                    return MOST
                value = end - (end - rest) % pieces.modulus
                if (start is None or value >= start) and (best is None or value > best):
                    best = value
            start = None if end is None else end + 1
    return best


def _first(pieces: Pieces) -> int | None:
    """Return the least value at which a condition holds; None if there is no value."""
    best: int | None = None
    for rest, runs in enumerate(pieces.classes):
        start = pieces.domain[0] or 0
        for end, holds in runs:
            value = start + (rest - start) % pieces.modulus
            if holds and (end is None or value <= end) and (best is None or value < best):
                best = value
            if end is None:
                break
            start = end + 1
    return best


def _by_bisection(
    terms: Sequence[Term], allowed: Sequence[Term], unknown: Term, at_most: int, low: int, high: int
) -> int | None:
    name = unknown.name
    for term in terms:
        grown = fold.substitute(term, {unknown: unknown + 1})
        if ask(Facts().with_symbol(unknown, low), boolean.ge(grown, term)) is not True:
            raise InputError(
                f"the formula is not proven to grow with {name}, and has too many pieces to look "
                "at them all; "
                f"evaluate it at the values of {name} that you have in mind (.at({name}=…))"
            )

    def fits(value: int) -> bool:
        return all(fold.evaluate(term, {name: value}) <= at_most for term in terms)

    if not fits(low):
        return None
    good, bad = low, low + 1
    while bad < high and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, high + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    for value in range(good, max(low - 1, good - _STEPS), -1):
        if all(satisfied(condition, {name: value}) for condition in allowed):
            return value
    return None


def _nothing_fits(
    terms: Sequence[Term], allowed: Sequence[Term], unknown: Term, at_most: int
) -> InputError:
    """Return the error that names the need of the least size, if a size is found that the guards
    allow.
    """
    name = unknown.name
    for value in range(1, _STEPS):
        if all(satisfied(condition, {name: value}) for condition in allowed):
            least = max(int(fold.evaluate(term, {name: value})) for term in terms)
            return InputError(
                f"nothing fits: {name}={value}, the least that the guards allow, takes {least:,}, "
                f"more than {at_most:,}; raise the budget or make the other sizes smaller"
            )
    return _nothing_allowed(name)


def _nothing_allowed(name: str) -> InputError:
    return InputError(f"nothing fits: no {name} that the guards allow was found")
