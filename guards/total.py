"""Conditions as total predicates: what divides by zero at some point does not hold there.

A term with a symbolic divisor speaks only about values at which the divisor is not 0.  A set of guards is asked about
any values, so each of its conditions is read together with the condition that it is defined.
"""

from __future__ import annotations

from collections.abc import Mapping

from guards import exprs
from guards.exprs import TRUE, Op, Term, children
from guards.fold import evaluate, fold


def partial(term: Term) -> bool:
    """Whether a term divides by something that is not a constant, and so may be undefined.

    >>> from guards.exprs import symbol
    >>> partial(symbol("a") // 2), partial(2 * (symbol("a") % symbol("b")))
    (False, True)
    """
    return any(part.op in (Op.FLOORDIV, Op.MOD) and part.args[1].op is not Op.CONST for part in exprs.postorder(term))


def satisfied(condition: Term, values: Mapping[str, int]) -> bool:
    """Whether a condition is defined and true at ``values``.

    A relation in which something is divided by zero does not hold; ``and`` and ``or`` have their usual meaning on top.

    >>> from guards.exprs import eq, or_, symbol
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


def total(condition: Term) -> Term:
    """The condition, and that it is defined.

    >>> from guards.exprs import ge, eq, symbol
    >>> n, d = symbol("n"), symbol("d")
    >>> str(total(eq(n % d, 0))), str(total(ge(n // 2, 1)))
    ('n % d == 0 and d != 0', 'n//2 >= 1')
    """
    if condition.op is Op.AND or condition.op is Op.OR:
        return (exprs.and_ if condition.op is Op.AND else exprs.or_)(*map(total, condition.args))
    return exprs.and_(condition, fold(condition, _defined)) if partial(condition) else condition


def _defined(term: Term, operands: list[Term]) -> Term:
    if term.op is Op.ITE:
        asked, then, otherwise = operands
        condition = term.args[0]
        return exprs.and_(asked, exprs.or_(exprs.not_(condition), then), exprs.or_(condition, otherwise))
    if term.op in (Op.FLOORDIV, Op.MOD) and term.args[1].op is not Op.CONST:
        return exprs.and_(*operands, exprs.ne(term.args[1], 0))
    return exprs.and_(*operands) if any(True for _ in children(term)) else TRUE
