"""Simplifying under facts, and the bounds of terms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from guards.asking.assumptions import check_names, facts_from
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.asking.reading import parse
from guards.budget import whole_question
from guards.deciders import linear_refutation
from guards.deciders.witnesses import points
from guards.domains.interval_arithmetic import Pair
from guards.errors import ParseError
from guards.facts.component import Component, contains
from guards.facts.definedness import conjuncts, defined, guarded, partial
from guards.facts.facts import Facts
from guards.facts.laws_of_division import divide
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import DEEP, Op, Term, among, children, drop, postorder

_GALLOP = 24  # doublings tried to find a bound where the ranges give none
_ROOM = 2**40  # ranges wider than this are not narrowed by search


def _size(term: Term) -> int:
    return sum(1 for _ in postorder(term))


# -- simplifying -----------------------------------------------------------------------------------


@whole_question()
def simplify(term: Term | str, facts: Facts | None = None) -> Term:
    """A term that is equal wherever the facts hold, and no larger.

    Z3 is asked about a comparison, not about the parts of an ``and`` or ``or``: that may take a
    second for each.

    >>> from guards.facts.facts import Facts
    >>> from guards import parse
    >>> facts = Facts().assume(parse("s0 % 8 == 0")).assume(parse("s0 >= 1"))
    >>> print(
    ...     simplify("max(1, s0)", facts),
    ...     simplify("s0 // 8 * 8", facts),
    ...     simplify("s0 > 7 and s1 > 2", facts),
    ... )
    s0 s0 s1 >= 3
    """
    term = parse(term) if isinstance(term, str) else term
    known = Facts() if facts is None else facts
    if term.is_bool:
        return _simplify_condition(term, known)
    return _simplify_integer(term, known)


def _simplify_integer(term: Term, facts: Facts) -> Term:
    component = facts.component(term)
    best = term
    visible = rewritten(component, facts.canonical(term))
    if _size(visible) <= _size(best):
        best = visible
    if component.rewrites and term.depth <= DEEP:
        inner = restore(component, rewritten(component, component.canonical(term)))
        if inner is not None and _size(inner) < _size(best):
            best = inner
    return best


def _simplify_condition(term: Term, facts: Facts, effort: Effort = Effort.FULL) -> Term:
    if term.op is Op.AND or term.op is Op.OR:
        return _simplify_parts(term, facts)
    found = ask(facts, term, effort=effort)
    if found is not None:
        return TRUE if found else FALSE
    short = _simplify_integer(term.args[0], facts)
    rebuilt = fold.rebuild(term, [short])
    component = facts.component(rebuilt)
    again = rewritten(component, rebuilt)
    return again if _size(again) <= _size(rebuilt) else rebuilt


def _simplify_parts(term: Term, facts: Facts) -> Term:
    """Return an ``and`` or ``or`` whose parts are each simplified where the others leave them open.

    Of more than :data:`MANY` parts each is seen beside its nearest :data:`NEAREST` ones, with cheap
    effort, once: the work grows with the number of parts and not with its square.
    """
    conjunction = term.op is Op.AND
    stop, skip = (FALSE, TRUE) if conjunction else (TRUE, FALSE)
    kept: list[Term] = list(term.args)
    many = len(kept) > MANY
    nearest = _nearest(kept) if many else [range(len(kept))] * len(kept)
    order = range(len(kept)) if many else (*range(len(kept)), *reversed(range(len(kept))))
    for index in order:
        within = facts
        for other in nearest[index]:
            part = kept[other]
            if other != index and part is not skip:
                within = within.assume(part if conjunction else boolean.not_(guarded(part, within)))
        if within.contradictory:
            return stop
        effort = Effort.CHEAP if many else Effort.THOROUGH
        short = _simplify_condition(kept[index], within, effort)
        if conjunction and short is not kept[index]:
            short = _with_domain(short, kept[index], within, effort)
        if short is stop:
            return stop
        if short is skip or _size(short) < _size(kept[index]):
            kept[index] = short
    return (boolean.and_ if conjunction else boolean.or_)(*kept)


def _with_domain(short: Term, part: Term, within: Facts, effort: Effort) -> Term:
    """Return a simplified part of an ``and``, and where the part is defined: other parts may have
    gone for that.

    ``q != 0`` goes from ``q != 0 and p % q >= 0``, as the other part divides by ``q``. It may not
    become TRUE then.
    """
    if not partial(part) or short is FALSE:
        return short
    shown = conjuncts(defined(short))
    hidden = [each for each in conjuncts(defined(part)) if not among(each, shown)]
    return boolean.and_(
        short, *[each for each in hidden if ask(within, each, effort=effort, only=True) is not True]
    )


MANY = 24
"""The number of parts beyond which they are not all simplified under each other."""
NEAREST = 10
"""The number of parts that are used to simplify one of many parts: those that share most symbols
with it.
"""
_SHARING = 4 * NEAREST  # parts looked at for each symbol to find them


def _nearest(parts: list[Term]) -> list[list[int]]:
    """Return for each part the indices of those that share most symbols with it, in order."""
    mentions: dict[Term, list[int]] = {}
    for index, part in enumerate(parts):
        for symbol in part.symbols:
            mentions.setdefault(symbol, []).append(index)
    found: list[list[int]] = []
    for index, part in enumerate(parts):
        shared: dict[int, int] = {}
        for symbol in part.symbols:
            where = mentions[symbol]
            middle = bisect_left(where, index)
            for other in where[max(0, middle - _SHARING // 2) : middle + _SHARING // 2]:
                shared[other] = shared.get(other, 0) + 1
        shared.pop(index, None)
        best = sorted(shared, key=lambda other: (-shared[other], abs(other - index)))
        found.append(sorted(best[:NEAREST]))
    return found


def restore(component: Component, term: Term) -> Term | None:
    """``term`` without the new symbols that the component's rewrites made; None where that
    fails.
    """
    for fresh in reversed(list(component.fresh)):
        if fresh not in term.symbols:
            continue
        factor, atom, value = component.fresh[fresh]
        term = _without(term, fresh, factor, arithmetic.sub(atom, value))
    return term if term.symbols <= component.symbols else None


def _without(term: Term, fresh: Term, factor: Term, product: Term) -> Term:
    """``term`` with ``factor * fresh`` written as ``product``, and ``fresh`` alone as a
    quotient.
    """

    def step(part: Term, operands: list[Term]) -> Term:
        if part is fresh:
            return fresh
        changed = any(
            child is not operand for child, operand in zip(children(part), operands, strict=True)
        )
        made = fold.rebuild(part, operands) if changed else part
        if made.is_bool or fresh not in made.symbols:
            return made
        quotient, rest = (
            divide(made, arithmetic.mul(factor, fresh))
            if factor.op is not Op.CONST
            else (arithmetic.ZERO, made)
        )
        if factor.op is Op.CONST:
            number = factor.args[0]
            constant, items = arithmetic.split(made)
            whole = {
                m: c // number
                for m, c in items
                if c % number == 0 and among(fresh, arithmetic.factors(m))
            }
            rest = arithmetic.linear(constant, {m: c for m, c in items if m not in whole})
            quotient = arithmetic.linear(0, {_drop(m, fresh): 0 for m in whole})
            for m, c in whole.items():
                quotient = arithmetic.add(quotient, arithmetic.scale(_drop(m, fresh), c))
        return (
            arithmetic.add(arithmetic.mul(quotient, product), rest)
            if quotient is not arithmetic.ZERO
            else made
        )

    made = fold.fold(term, step)
    return (
        fold.substitute(made, {fresh: division.floordiv(product, factor)})
        if fresh in made.symbols
        else made
    )


def _drop(monomial: Term, atom: Term) -> Term:
    rest = list(arithmetic.factors(monomial))
    drop(rest, atom)
    return arithmetic.monomial(rest)


# -- bounds ----------------------------------------------------------------------------------------


@whole_question()
def bounds(
    term: Term | str,
    *,
    ranges: Mapping[str, Pair] | None = None,
    assume: Iterable[str | Term] = (),
    facts: Facts | None = None,
) -> tuple[Term | None, Term | None]:
    """The least and the greatest value of a term that could be proven, as terms; None where there
    is no bound.

    A bound is a number where there is one, and otherwise a term in other symbols that an assumption
    gives.

    Raises:
        ParseError: a text cannot be read, or ``term`` is the text of a condition.

    >>> (
    ...     bounds("s0 - s0 // 8 * 8"),
    ...     bounds("u0", assume=["u0 <= s0 * s1"]),
    ...     bounds("a", assume=["a >= b + 8"]),
    ... )
    ((<0>, <7>), (<0>, <s0*s1>), (<8>, None))
    """
    term = arithmetic.integer(integer_of(term) if isinstance(term, str) else term)
    assume = (assume,) if isinstance(assume, (str, Term)) else tuple(assume)
    if ranges:
        check_names(ranges, (boolean.eq(term, 0), *assume))
    known = facts_from(ranges, assume) if facts is None else facts
    component = known.component(term)
    short = rewritten(component, component.canonical(term))
    lo, hi = component.bounds(short)
    values = [
        value for value in (_value(term, point) for point in points(component)) if value is not None
    ]

    def at_least(bound: int) -> bool:
        return linear_refutation.refutes(component, boolean.lt(short, bound))

    def at_most(bound: int) -> bool:
        return linear_refutation.refutes(component, boolean.gt(short, bound))

    if values:
        lo = _tighten(lo, min(values), at_least, -1)
        hi = _tighten(hi, max(values), at_most, 1)
    low = _symbolic(component, term, False) if lo is None else arithmetic.const(lo)
    high = _symbolic(component, term, True) if hi is None else arithmetic.const(hi)
    return low, high


def integer_of(text: str) -> Term:
    """Return the term of a text that writes an integer.

    Raises:
        ParseError: the text cannot be read, or is a condition.
    """
    term = parse(text)
    if term.is_bool:
        raise ParseError(f"an integer is needed, not the condition {term}")
    return term


def _value(term: Term, point: Mapping[str, int]) -> int | None:
    try:
        return int(fold.evaluate(term, point))
    except (ZeroDivisionError, KeyError):
        return None


def _tighten(bound: int | None, seen: int, holds: Callable[[int], bool], side: int) -> int | None:
    """The tightest bound that ``holds`` confirms between a known bound and a value that was seen
    (side 1: upper).
    """
    if bound is None:
        step = 1 << (_GALLOP - 1)
        if not holds(seen + side * (step - 1)):  # then nothing nearer holds either
            return None
        step = 1
        for _ in range(_GALLOP):
            if holds(seen + side * (step - 1)):
                bound = seen + side * (step - 1)
                break
            step *= 2
        else:
            return None
    if abs(bound - seen) > _ROOM:
        return bound
    while bound != seen:  # `bound` is confirmed, `seen` is attained
        middle = seen + (bound - seen) // 2 if (bound - seen) // 2 != (bound - seen) else seen
        if holds(middle):
            bound = middle
        else:
            seen = middle + side
    return bound


def _symbolic(component: Component, term: Term, upper: bool) -> Term | None:
    """A bound in other symbols, from a row of the component that has ``term`` as one of its
    parts.
    """
    constant, items = arithmetic.split(term)
    if len(items) != 1 or items[0][1] != 1:
        return None
    monomial = items[0][0]
    for form, (lo, hi) in component.rows.items():
        for m, c in form:
            if m is not monomial or c not in (1, -1):
                continue
            rest = arithmetic.linear(0, {n: d for n, d in form if n is not m})
            limit = hi if (c == 1) is upper else lo
            if limit is None or contains(rest, monomial) or not rest.symbols <= component.symbols:
                continue
            return arithmetic.add(arithmetic.scale(arithmetic.sub(limit, rest), c), constant)
    return None
