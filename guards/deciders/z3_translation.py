"""Z3 expressions as terms, and terms as Z3 expressions that need no definitions beside them;
imports nothing of Z3.

Z3's ``div`` and ``mod`` leave a remainder from 0 up to the absolute value of the divisor; Python's
have the divisor's sign. They agree for positive divisors; for others, ``a div b`` is ``-(a // -b)``
and ``a mod b`` is ``a % -b``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from guards.deciders.z3_lowering import Lowering
from guards.errors import ParseError
from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.comparison import iff
from guards.terms.term import Op, Term
from guards.text.operators import chosen, implies

MOST_EXPONENT = 64


class Closed(Lowering):
    """Terms as expressions that stand alone: quotients by what may be negative are a choice of
    two.
    """

    def _divide(self, args: tuple[Term, Term], operands: list[Any]) -> tuple[Any, Any, list[Any]]:
        dividend, divisor = operands
        quotient = self.z3.If(divisor > 0, dividend / divisor, (-dividend) / (-divisor))
        return quotient, dividend - divisor * quotient, []


class FromZ3:
    """Makes terms of expressions; ``z3`` is the package."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3
        self.memo: dict[int, Term] = {}
        self.makers = {getattr(z3, f"Z3_OP_{name}"): make for name, make in _MAKERS.items()}

    def made(self, expression: Any) -> Term:
        """The term of an expression.

        Raises:
            ParseError: it is neither of integers nor of conditions, or holds something that has no
                counterpart.
        """
        if not self.z3.is_expr(expression):
            raise ParseError(f"an expression of Z3 is needed, not {type(expression).__name__}")
        try:
            return self._read(expression)
        except RecursionError:
            raise ParseError("nested too deeply") from None
        except ZeroDivisionError:
            raise ParseError(f"division by zero: {str(expression)[:60]}") from None
        except TypeError as error:
            raise ParseError(f"{str(error)[:120]}: {str(expression)[:60]}") from None

    def _read(self, expression: Any) -> Term:
        key = expression.get_id()
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._made(expression)
        return found

    def _made(self, expression: Any) -> Term:
        z3 = self.z3
        if z3.is_int_value(expression):
            return arithmetic.const(expression.as_long())
        if z3.is_const(expression) and expression.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            name = expression.decl().name()
            if z3.is_int(expression):
                return arithmetic.symbol(name)
            raise ParseError(f"the symbol {name} is no integer, but of sort {expression.sort()}")
        if z3.is_true(expression) or z3.is_false(expression):
            return boolean.boolean(z3.is_true(expression))
        make = self.makers.get(expression.decl().kind()) if z3.is_app(expression) else None
        if make is None:
            raise ParseError(f"this has no counterpart among terms: {str(expression)[:80]}")
        return make(*[self._read(each) for each in expression.children()])


def _quotient(a: Term, b: Term) -> Term:
    if b.op is Op.CONST:
        return division.floordiv(a, b) if b.value > 0 else -division.floordiv(a, -b)
    return boolean.ite(boolean.gt(b, 0), division.floordiv(a, b), -division.floordiv(a, -b))


def _rest(a: Term, b: Term) -> Term:
    if b.op is Op.CONST:
        return division.mod(a, abs(b.value))
    return boolean.ite(boolean.gt(b, 0), division.mod(a, b), division.mod(a, -b))


def _power(base: Term, exponent: Term) -> Term:
    if exponent.op is not Op.CONST or not 0 <= exponent.value <= MOST_EXPONENT:
        raise ParseError(
            f"an exponent must be a constant from 0 to {MOST_EXPONENT}, not {exponent}"
        )
    return arithmetic.prod([base] * exponent.value)


def _equal(a: Term, b: Term) -> Term:
    return iff(a, b) if a.is_bool and b.is_bool else boolean.eq(a, b)


def _distinct(*terms: Term) -> Term:
    pairs = [(a, b) for place, a in enumerate(terms) for b in terms[:place]]
    return boolean.and_(*[boolean.not_(_equal(a, b)) for a, b in pairs])


_MAKERS: dict[str, Callable[..., Term]] = {
    "ADD": lambda *parts: arithmetic.total(list(parts)),
    "SUB": lambda first, *others: reduce(arithmetic.sub, others, first),
    "MUL": lambda *parts: arithmetic.prod(parts),
    "UMINUS": lambda a: -a,
    "IDIV": _quotient,
    "MOD": _rest,
    "POWER": _power,
    "ABS": lambda a: extremes.maximum(a, -a),
    "LE": boolean.le,
    "LT": boolean.lt,
    "GE": boolean.ge,
    "GT": boolean.gt,
    "EQ": _equal,
    "IFF": iff,
    "DISTINCT": _distinct,
    "AND": boolean.and_,
    "OR": boolean.or_,
    "NOT": boolean.not_,
    "XOR": lambda a, b: boolean.not_(iff(a, b)),
    "IMPLIES": implies,
    "ITE": chosen,
}
