"""Conditions as total predicates: what divides by zero at some point does not hold there.

A term with a symbolic divisor speaks only about values at which the divisor is not 0. A set of
guards is asked about any values, so each of its conditions is read together with the condition that
it is defined.
"""

from __future__ import annotations

from collections.abc import Mapping

from guards.facts.facts import Facts
from guards.terms import boolean, division
from guards.terms.fold import evaluate, fold, rebuild
from guards.terms.term import SYMBOLIC_DIVISION, Op, Term, postorder


def partial(term: Term) -> bool:
    """Return whether a term divides by something that is not a constant, and so may be undefined.

    >>> from guards.terms.arithmetic import symbol
    >>> partial(symbol("a") // 2), partial(2 * (symbol("a") % symbol("b")))
    (False, True)
    """
    return bool(term.kinds & SYMBOLIC_DIVISION)


def satisfied(condition: Term, values: Mapping[str, int]) -> bool:
    """Return whether a condition is defined and true at ``values``.

    A relation in which something is divided by zero does not hold; ``and`` and ``or`` have their
    usual meaning on top.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, or_
    >>> n, d = symbol("n"), symbol("d")
    >>> satisfied(eq(n % d, 0), {"n": 4, "d": 2}), satisfied(eq(n % d, 0), {"n": 4, "d": 0})
    (True, False)
    >>> satisfied(or_(eq(d, 0), eq(n % d, 0)), {"n": 4, "d": 0})
    True
    """
    if condition.op is Op.AND:
        return all(satisfied(part, values) for part in condition.args)
    if condition.op is Op.OR:
        return any(satisfied(part, values) for part in condition.args)
    try:
        return bool(evaluate(condition, values))
    except ZeroDivisionError:
        return False


def total(condition: Term, facts: Facts | None = None) -> Term:
    """The condition, and that it is defined: what to assume.

    A divisor that ``facts`` keep away from 0 needs nothing.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ge
    >>> n, d = symbol("n"), symbol("d")
    >>> str(total(eq(n % d, 0))), str(total(ge(n // 2, 1)))
    ('n % d == 0 and d != 0', 'n//2 >= 1')
    """
    if condition.op is Op.AND:
        return boolean.and_(*(total(part, facts) for part in condition.args))
    if condition.op is Op.OR or not partial(condition):
        return guarded(condition, facts)
    return boolean.and_(condition, _Divisors(facts).defined(condition))


def guarded(condition: Term, facts: Facts | None = None) -> Term:
    """The condition, and that it is defined, as a term that is defined everywhere: what to negate,
    and to ask.

    To divide by zero is read as to divide by one, beside the condition that this does not happen:
    so the term may stand below ``or`` and ``not``, whereas a partial one there would silently
    narrow what the whole speaks about.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq
    >>> str(guarded(eq(symbol("n") % symbol("d"), 0)))
    'n % (1 if d == 0 else d) == 0 and d != 0'
    """
    if not partial(condition):
        return condition
    if condition.op is Op.AND or condition.op is Op.OR:
        connect = boolean.and_ if condition.op is Op.AND else boolean.or_
        return connect(*(guarded(part, facts) for part in condition.args))
    divisors = _Divisors(facts)
    return boolean.and_(fold(condition, divisors.replace), divisors.defined(condition))


def defined(term: Term) -> Term:
    """Return the condition under which a term is defined, as a term that is defined everywhere.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ite, lt
    >>> n, d = symbol("n"), symbol("d")
    >>> defined(n % d), defined(ite(lt(n, 2), n, n // d))
    (<d != 0>, <d != 0 or n <= 1>)
    """
    return _Divisors(None).defined(term) if partial(term) else boolean.TRUE


def conjuncts(term: Term) -> tuple[Term, ...]:
    """Return the parts of an ``and``; of any other condition, the condition alone."""
    return term.args if term.op is Op.AND else () if term is boolean.TRUE else (term,)


def chooses_by_partial(term: Term) -> bool:
    """Return whether some choice inside a relation depends on an ``and`` or ``or`` that may divide
    by zero.

    Python evaluates the parts of such a condition in their written order and may raise where
    another part decides. Code for the term must be written for :func:`guarded` of the term instead.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ite, lt, or_
    >>> a, b = symbol("a"), symbol("b")
    >>> test = or_(lt(a, 2), eq(b % a, 0))
    >>> chooses_by_partial(eq(ite(test, a, 2), b)), chooses_by_partial(test)
    (True, False)
    """
    if not partial(term):
        return False
    conditions = [
        part.args[0] for part in postorder(term) if part.op is Op.ITE and partial(part.args[0])
    ]
    return any(
        part.op in (Op.AND, Op.OR) and partial(part)
        for asked in conditions
        for part in postorder(asked)
    )


class _Divisors:
    """The two readings of a term whose divisors may be 0."""

    def __init__(self, facts: Facts | None) -> None:
        self.facts = facts

    def may_be_zero(self, divisor: Term) -> bool:
        if divisor.op is Op.CONST:
            return False
        return self.facts is None or 0 in self.facts.interval(divisor)

    def replace(self, term: Term, operands: list[Term]) -> Term:
        if term.op in (Op.FLOORDIV, Op.MOD) and self.may_be_zero(term.args[1]):
            divisor = boolean.ite(boolean.eq(operands[1], 0), 1, operands[1])
            return (division.floordiv if term.op is Op.FLOORDIV else division.mod)(
                operands[0], divisor
            )
        return rebuild(term, operands)

    def defined(self, term: Term) -> Term:
        parts: dict[Term, Term] = {}  # with safe divisors: a divisor may itself divide
        fold(term, self.replace, parts)
        return fold(term, lambda part, operands: self._defined(part, operands, parts))

    def _defined(self, term: Term, operands: list[Term], safe: dict[Term, Term]) -> Term:
        if term.op is Op.ITE:
            asked, then, otherwise = operands
            condition = safe[term.args[0]]
            return boolean.and_(
                asked, boolean.or_(boolean.not_(condition), then), boolean.or_(condition, otherwise)
            )
        if term.op in (Op.FLOORDIV, Op.MOD) and self.may_be_zero(term.args[1]):
            return boolean.and_(*operands, boolean.ne(safe[term.args[1]], 0))
        everything = boolean.and_(*operands)
        if everything is boolean.TRUE or term.op not in (Op.AND, Op.OR):
            return everything
        # one part that decides a connective does so whatever the others are
        partial_parts = sum(operand is not boolean.TRUE for operand in operands)
        deciding = [
            boolean.and_(operand, safe[part] if term.op is Op.OR else boolean.not_(safe[part]))
            for part, operand in zip(term.args, operands, strict=True)
            if operand is boolean.TRUE
            or partial_parts > 1  # else the part is defined only where everything is
        ]
        return boolean.or_(everything, *deciding)
