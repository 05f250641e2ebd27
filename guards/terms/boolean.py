"""Conditions: the relations ``== 0``, ``!= 0``, ``<= 0``, their connectives, and the choice that
depends on one.

Negation is pushed inwards and never appears as a term.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from guards.errors import ArgumentError
from guards.terms.arithmetic import ONE, integer, linear, plus, split, sub
from guards.terms.term import (
    DEEP,
    BoolLike,
    IntLike,
    Op,
    Term,
    by_order,
    intern,
    postorder,
    sweep_terms,
)

# The members used on hot paths, looked up once.
_AND, _EQ, _LE, _NE, _OR, _TRUE = Op.AND, Op.EQ, Op.LE, Op.NE, Op.OR, Op.TRUE


TRUE = intern(Op.TRUE, ())


FALSE = intern(Op.FALSE, ())


def boolean(value: BoolLike) -> Term:
    """``value`` as a boolean term."""
    if type(value) is Term:
        if value.op < Op.TRUE:
            raise ArgumentError(f"a condition is needed here, not the integer {value}")
        return value
    if isinstance(value, bool):
        return TRUE if value else FALSE
    raise ArgumentError(f"a condition is needed here, not {type(value).__name__}")


def is_zero(term: Term) -> Term:
    """The relation ``term == 0``."""
    constant, items = split(term)
    if not items:
        return TRUE if constant == 0 else FALSE
    shared = gcd(*[c for _, c in items])
    if constant % shared:
        return FALSE
    if items[0][1] < 0:
        shared = -shared
    if shared != 1:
        term = linear(constant // shared, {m: c // shared for m, c in items})
    return intern(Op.EQ, (term,))


def not_positive(term: Term) -> Term:
    """The relation ``term <= 0``."""
    constant, items = split(term)
    if not items:
        return TRUE if constant <= 0 else FALSE
    shared = gcd(*[c for _, c in items])
    if shared != 1:  # the constant is rounded towards the integers that can occur
        term = linear(-(-constant // shared), {m: c // shared for m, c in items})
    return intern(Op.LE, (term,))


def eq(a: IntLike, b: IntLike) -> Term:
    """``a == b``"""
    return is_zero(sub(a, b))


def ne(a: IntLike, b: IntLike) -> Term:
    """``a != b``"""
    return not_(is_zero(sub(a, b)))


def le(a: IntLike, b: IntLike) -> Term:
    """``a <= b``"""
    return _at_most(integer(a), integer(b), 0)


def lt(a: IntLike, b: IntLike) -> Term:
    """``a < b``"""
    return _at_most(integer(a), integer(b), 1)


def ge(a: IntLike, b: IntLike) -> Term:
    """``a >= b``"""
    return _at_most(integer(b), integer(a), 0)


def gt(a: IntLike, b: IntLike) -> Term:
    """``a > b``"""
    return _at_most(integer(b), integer(a), 1)


def _at_most(a: Term, b: Term, margin: int) -> Term:
    """``a + margin <= b``"""
    shift, others = split(b)
    constant, items = split(a)
    constant += margin - shift
    merged = dict(items)
    for m, c in others:
        merged[m] = merged.get(m, 0) - c
    parts = [(m, c) for m, c in merged.items() if c]
    if not parts:
        return TRUE if constant <= 0 else FALSE
    shared = gcd(*[c for _, c in parts])
    if shared != 1:  # the constant is rounded towards the integers that can occur
        constant = -(-constant // shared)
        parts = [(m, c // shared) for m, c in parts]
    return intern(_LE, (linear(constant, dict(parts)),))


_NEGATIONS = 16384


_negations: dict[Term, Term] = {}


def not_(condition: BoolLike) -> Term:
    """The negation of a condition, pushed inwards."""
    condition = boolean(condition)
    found = _negations.get(condition)
    if found is not None:
        return found
    if condition.depth > DEEP:
        for part in postorder(condition, lambda part: part.op < _TRUE or part in _negations):
            _negate(part)
    return _negate(condition)


def _negate(condition: Term) -> Term:
    op = condition.op
    if op is _LE:
        result = not_positive(plus(ONE, condition.args[0], -1))
    elif op is _EQ:
        result = intern(_NE, condition.args)
    elif op is _NE:
        result = intern(_EQ, condition.args)
    elif op is _AND or op is _OR:
        result = (or_ if op is _AND else and_)(*[not_(part) for part in condition.args])
    else:
        result = FALSE if op is _TRUE else TRUE
    if len(_negations) >= _NEGATIONS:
        _negations.clear()
    _negations[condition] = result
    return result


def _connect(op: Op, unit: Term, zero: Term, conditions: Iterable[BoolLike]) -> Term:
    parts: dict[Term, None] = {}
    for item in conditions:
        condition = boolean(item)
        within: tuple[Term, ...] = condition.args if condition.op is op else (condition,)
        for part in within:
            if part is zero:
                return zero
            if part is not unit:
                parts[part] = None
    if not parts:
        return unit
    if len(parts) == 1:
        return next(iter(parts))
    if any(not_(part) in parts for part in parts if part.op < Op.AND):
        return zero
    return intern(op, tuple(sorted(parts, key=by_order)))


def and_(*conditions: BoolLike) -> Term:
    """The conjunction of the conditions."""
    return _connect(Op.AND, TRUE, FALSE, conditions)


def or_(*conditions: BoolLike) -> Term:
    """The disjunction of the conditions."""
    return _connect(Op.OR, FALSE, TRUE, conditions)


def ite(condition: BoolLike, then: IntLike, otherwise: IntLike) -> Term:
    """``then if condition else otherwise``"""
    condition, then, otherwise = boolean(condition), integer(then), integer(otherwise)
    if condition is TRUE or then is otherwise:
        return then
    return otherwise if condition is FALSE else intern(Op.ITE, (condition, then, otherwise))


def release() -> None:
    """Release the terms that nobody uses, which otherwise happens when there are many."""
    _negations.clear()
    sweep_terms()
