"""Conversion of sizes in torch's own shape environment to terms.

Torch holds a symbolic size as an expression of another library. Its classes are identified by name,
so that the library need not be imported. (Names checked on torch 2.11 to 2.13.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from guards.terms import arithmetic, boolean, division, extremes
from guards.terms.term import Term
from symshape.errors import Reason, UnsupportedError


def _power(base: Term, exponent: Term) -> Term:
    return arithmetic.prod([base] * exponent.value)


_FUNCTIONS: Mapping[str, Callable[..., Term]] = {
    "Add": lambda *terms: arithmetic.total(terms),
    "Mul": lambda *terms: arithmetic.prod(terms),
    "FloorDiv": division.floordiv,
    "CleanDiv": division.floordiv,
    "Mod": division.mod,
    "PythonMod": division.mod,
    "ModularIndexing": lambda base, divisor, modulus: division.mod(
        division.floordiv(base, divisor), modulus
    ),
    "Max": extremes.maximum,
    "Min": extremes.minimum,
    "Identity": lambda term: term,
    "Where": boolean.ite,
    "Equality": boolean.eq,
    "Unequality": boolean.ne,
    "LessThan": boolean.le,
    "StrictLessThan": boolean.lt,
    "GreaterThan": boolean.ge,
    "StrictGreaterThan": boolean.gt,
    "And": lambda *terms: reduce(boolean.and_, terms),
    "Or": lambda *terms: reduce(boolean.or_, terms),
    "Not": boolean.not_,
}
"""The functions on terms for the classes of torch's expressions, by class name."""
_ROUNDED: Mapping[str, Callable[[Term, Term], Term]] = {
    "CeilToInt": lambda a, b: division.floordiv(
        arithmetic.add(a, arithmetic.sub(b, arithmetic.const(1))), b
    ),
    "FloorToInt": division.floordiv,
}
"""Quotients of integers that torch's Python code rounds, for divisors above 0, as exact integer
divisions.
"""
_CONSTANTS = {"BooleanTrue": boolean.TRUE, "BooleanFalse": boolean.FALSE}


def term_of(expression: Any, known: dict[Any, Term]) -> Term:
    """Return the term of an expression of torch's.

    Args:
        expression: an expression of integers, or a condition on them.
        known: terms by expression, at least those of symbols; new ones are added.

    Raises:
        UnsupportedError: a symbol is not known, or there is no term for a function.
    """
    found = known.get(expression)
    if found is None:
        found = known[expression] = _made(expression, known)
    return found


def _made(expression: Any, known: dict[Any, Term]) -> Term:
    kind = type(expression).__name__
    if expression.is_Integer:
        return arithmetic.const(int(expression))
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    if expression.is_Symbol:
        raise UnsupportedError(
            f"no argument of the graph has the size {expression}", reason=Reason.DYNAMO_GRAPH
        )
    if kind == "Piecewise":
        return _piecewise(expression.args, known)
    if kind in _ROUNDED and type(expression.args[0]).__name__ == "IntTrueDiv":
        number, divisor = expression.args[0].args
        if divisor.is_Integer and int(divisor) > 0:
            return _ROUNDED[kind](term_of(number, known), term_of(divisor, known))
    powers = (
        kind in ("Pow", "PowByNatural")
        and expression.args[1].is_Integer
        and int(expression.args[1]) >= 0
    )
    function = _power if powers else _FUNCTIONS.get(kind)
    if function is None:
        raise UnsupportedError(
            f"symshape has no formula for the size {expression} ({kind})",
            reason=Reason.DYNAMO_GRAPH,
        )
    return function(*[term_of(part, known) for part in expression.args])


def _piecewise(pairs: Sequence[Any], known: dict[Any, Term]) -> Term:
    """Return the term of a piecewise expression: the first piece whose condition holds; the last
    one's must be true.
    """
    *others, last = pairs
    if type(last.args[1]).__name__ != "BooleanTrue":
        raise UnsupportedError(
            "symshape has no formula for a size that is not defined for all values",
            reason=Reason.DYNAMO_GRAPH,
        )
    term = term_of(last.args[0], known)
    for expression, condition in (pair.args for pair in reversed(others)):
        term = boolean.ite(term_of(condition, known), term_of(expression, known), term)
    return term
