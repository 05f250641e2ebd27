"""Terms for the operators of the language, within limits on their size."""

from __future__ import annotations

import ast
from collections.abc import Callable

from guards.terms import arithmetic, bitwise, boolean, division
from guards.terms.boolean import TRUE
from guards.terms.comparison import iff
from guards.terms.term import Op, Term
from guards.terms.truncation import Made
from guards.text.transcript import Transcript, described

MAX_BITS = 2048  # of a constant
MAX_EXPONENT = 64
MAX_MONOMIALS = 2_000  # of a sum


def checked(notes: Transcript, term: Term, node: ast.AST) -> Term:
    """The term, unless it has grown too large."""
    if term.op is Op.CONST:
        if term.args[0].bit_length() > MAX_BITS:
            notes.fail(f"a constant of more than {MAX_BITS} bits", node)
    elif term.op is Op.ADD:
        constant, items = term.args
        if len(items) > MAX_MONOMIALS:
            notes.fail(f"a sum of more than {MAX_MONOMIALS} parts when multiplied out", node)
        if constant.bit_length() > MAX_BITS or items[0][1].bit_length() > MAX_BITS:
            notes.fail(f"a constant of more than {MAX_BITS} bits", node)
    elif term.op is Op.MUL and len(term.args) > MAX_EXPONENT:
        notes.fail(f"a product of more than {MAX_EXPONENT} factors", node)
    return term


def number(term: Term) -> Term:
    """An integer; a condition counts as 1 or 0, as in Python."""
    return boolean.ite(term, 1, 0) if term.op >= Op.TRUE else term


def constant(notes: Transcript, term: Term, what: str, most: int, node: ast.AST) -> int:
    """The value of an operand that must be a number from 0 to ``most``."""
    if term.op is not Op.CONST or not 0 <= term.value <= most:
        notes.fail(f"{what} must be a constant from 0 to {most}", node)
    return term.value


def combined(
    notes: Transcript, operator: type[ast.operator], left: Term, right: Term, node: ast.BinOp
) -> Term:
    """``left operator right``, but for ``**``."""
    if operator in _LOGICAL and left.op >= Op.TRUE and right.op >= Op.TRUE:
        return _LOGICAL[operator](left, right)
    a, b = number(left), number(right)
    if operator is ast.Add:
        return checked(notes, arithmetic.add(a, b), node)
    if operator is ast.Sub:
        return checked(notes, arithmetic.sub(a, b), node)
    if operator is ast.Mult:
        return product(notes, a, b, node)
    if operator is ast.FloorDiv:
        return divided(notes, division.floordiv, a, b)
    if operator is ast.Mod:
        return divided(notes, division.mod, a, b)
    if operator is ast.LShift or operator is ast.RShift:
        return shifted(notes, a, b, operator is ast.LShift, node)
    if operator in _BITWISE:
        return bits(notes, operator, a, b, node)
    if operator is ast.Div:
        return even(notes, a, b, node)
    raise notes.error(f"the operator {described(node.op)} is not allowed here", node)


def divided(notes: Transcript, divide: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
    """A quotient or remainder."""
    if b.op is not Op.CONST:
        notes.divisors[b] = None
    return divide(a, b)


def truncated(
    notes: Transcript, divide: Callable[[Term, Term, Made], Term], a: Term, b: Term
) -> Term:
    """Return a quotient that is rounded towards zero, or its remainder."""
    if b.op is not Op.CONST:
        notes.divisors[b] = None
    return divide(a, b, notes.truncated)


def even(notes: Transcript, a: Term, b: Term, node: ast.AST) -> Term:
    """``a / b`` where that is an integer whatever the values are."""
    if division.mod(a, b) is not arithmetic.ZERO:
        notes.fail("'/' gives a fraction here: write // for integer division", node)
    return divided(notes, division.floordiv, a, b)


def shifted(notes: Transcript, a: Term, b: Term, left: bool, node: ast.AST) -> Term:
    """``a << b`` or ``a >> b``"""
    if b.op is not Op.CONST or not 0 <= b.value <= MAX_BITS // 2:
        notes.fail(
            f"the number of bits to shift by must be a constant from 0 to {MAX_BITS // 2}", node
        )
    power = arithmetic.const(1 << b.value)
    return product(notes, a, power, node) if left else division.floordiv(a, power)


def bits(notes: Transcript, operator: type[ast.operator], a: Term, b: Term, node: ast.AST) -> Term:
    """``a & b``, ``a | b`` or ``a ^ b``"""
    made = _BITWISE[operator](a, b)
    if made is None:
        why = (
            f"a constant with more than {bitwise.MOST_RUNS} runs of bits"
            if a.op is Op.CONST or b.op is Op.CONST
            else "neither side is a constant"
        )
        notes.fail(f"{_SIGNS[operator]} of these is not a formula in + - * // %: {why}", node)
    return checked(notes, made, node)


def product(notes: Transcript, a: Term, b: Term, node: ast.AST) -> Term:
    """``a * b``, unless it grows too large when multiplied out."""
    if len(arithmetic.split(a)[1]) * len(arithmetic.split(b)[1]) > MAX_MONOMIALS:
        notes.fail(f"a product of more than {MAX_MONOMIALS} parts when multiplied out", node)
    return checked(notes, arithmetic.mul(a, b), node)


def power(notes: Transcript, base: Term, exponent: int, node: ast.AST) -> Term:
    """``base ** exponent``"""
    result = arithmetic.ONE
    for _ in range(exponent):
        result = product(notes, result, base, node)
    return result


def relation(
    notes: Transcript, operator: type[ast.cmpop], left: Term, right: Term, node: ast.AST
) -> Term:
    """``left operator right``, of integers; ``==`` and ``!=`` of conditions too."""
    make = _RELATIONS.get(operator)
    if make is None:
        notes.fail("only == != < <= > >= compare", node)
    if left.op >= Op.TRUE and right.op >= Op.TRUE and operator in (ast.Eq, ast.NotEq):
        same = iff(left, right)
        return same if operator is ast.Eq else boolean.not_(same)
    return make(number(left), number(right))


def chosen(condition: Term, then: Term, otherwise: Term) -> Term:
    """``then if condition else otherwise``, for two integers or two conditions."""
    if then.op >= Op.TRUE and otherwise.op >= Op.TRUE:
        return boolean.or_(
            boolean.and_(condition, then), boolean.and_(boolean.not_(condition), otherwise)
        )
    return boolean.ite(condition, number(then), number(otherwise))


def ceildiv(a: Term, b: Term) -> Term:
    """``a / b`` rounded up."""
    return arithmetic.scale(division.floordiv(arithmetic.scale(a, -1), b), -1)


def implies(a: Term, b: Term) -> Term:
    """Return the condition that ``b`` holds wherever ``a`` does.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> implies(lt(symbol("x"), 3), lt(symbol("x"), 3))
    <True>
    """
    return TRUE if a is b else boolean.or_(boolean.not_(a), b)


_RELATIONS: dict[type[ast.cmpop], Callable[[Term, Term], Term]] = {
    ast.Eq: boolean.eq,
    ast.NotEq: boolean.ne,
    ast.Lt: boolean.lt,
    ast.LtE: boolean.le,
    ast.Gt: boolean.gt,
    ast.GtE: boolean.ge,
}
_LOGICAL: dict[type[ast.operator], Callable[[Term, Term], Term]] = {
    ast.BitAnd: boolean.and_,
    ast.BitOr: boolean.or_,
    ast.BitXor: lambda a, b: boolean.not_(iff(a, b)),
    ast.RShift: implies,
}
_BITWISE: dict[type[ast.operator], Callable[[Term, Term], Term | None]] = {
    ast.BitAnd: bitwise.both,
    ast.BitOr: bitwise.either,
    ast.BitXor: bitwise.differing,
}
_SIGNS: dict[type[ast.operator], str] = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
