"""Floating-point scalars that depend on sizes: kept as written, computed again at run time.

A condition on such a value can be decided only where the value is an exact ratio of integers
(``s0 / 2``): then it is a condition on integers.  Sizes are below 2**53, where the floor, the
ceiling and the order of a correctly rounded quotient agree with those of the exact one.  Everything
else specialises (see ``tracing/symbolic/nodes/float_node.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Union

import attrs

from guards.terms import arithmetic, fold, printing
from guards.terms.term import Op, Term
from symshape.graph import numpy_terms

_FEW_DIGITS = 2**10  # times a size below 2**43 stays exact

Operand = Union["FloatTerm", Term, float]


def _pow(a: float, b: float) -> float:
    return math.pow(a, b)


def _cpp_truediv(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _cpp_pow(a: float, b: float) -> float:
    odd = b % 2 == 1
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:
        if a != 0:
            return math.nan
        return math.copysign(math.inf, a) if odd else math.inf


CPP: Mapping[str, Callable[..., float]] = {"cpp_truediv": _cpp_truediv, "cpp_pow": _cpp_pow}
"""Operations as C++ has them, in formulas of torch's own code: where Python raises, the result is
infinite or NaN.
"""


OF_ONE = (
    *(
        "asin",
        "acos",
        "tan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "gamma",
        "lgamma",
    ),
    *("cbrt", "exp2", "degrees", "radians"),
)
OF_TWO = ("atan2", "hypot", "copysign", "fmod", "remainder")
"""Functions of ``math`` that are computed at run time and never decided: of one number, and of two.
"""

FUNCTIONS: dict[str, tuple[Callable[..., float], str]] = {
    "from_int": (float, "float({0})"),
    "as_float": (float, "float({0})"),
    "add": (lambda a, b: a + b, "({0} + {1})"),
    "sub": (lambda a, b: a - b, "({0} - {1})"),
    "mul": (lambda a, b: a * b, "({0} * {1})"),
    "truediv": (lambda a, b: a / b, "({0} / {1})"),
    "mod": (lambda a, b: a % b, "({0} % {1})"),
    "neg": (lambda a: -a, "(-{0})"),
    "abs": (abs, "abs({0})"),
    "pow": (_pow, "math.pow({0}, {1})"),
    "sqrt": (math.sqrt, "math.sqrt({0})"),
    "cos": (math.cos, "math.cos({0})"),
    "sin": (math.sin, "math.sin({0})"),
    "exp": (math.exp, "math.exp({0})"),
    "log": (math.log, "math.log({0})"),
    "log2": (math.log2, "math.log2({0})"),
    "log10": (math.log10, "math.log10({0})"),
    "log1p": (math.log1p, "math.log1p({0})"),
    "expm1": (math.expm1, "math.expm1({0})"),
    "tanh": (math.tanh, "math.tanh({0})"),
    "atan": (math.atan, "math.atan({0})"),
    "round": (lambda a, digits: round(a, int(digits)), "round({0}, int({1}))"),
    "max": (max, "max({0}, {1})"),
    "min": (min, "min({0}, {1})"),
    **{name: (getattr(math, name), f"math.{name}({{0}})") for name in OF_ONE},
    **{name: (getattr(math, name), f"math.{name}({{0}}, {{1}})") for name in OF_TWO},
    **numpy_terms.FUNCTIONS,
    **{name: (function, f"{name}({{0}}, {{1}})") for name, function in CPP.items()},
}
"""The implementation of each operation, and its Python source for generated code."""


def _known_by(args: tuple[Operand, ...]) -> tuple[object, ...]:
    """Return a key that the operands of equal expressions share: terms are compared by ``is``."""
    return tuple((Term, id(arg)) if isinstance(arg, Term) else arg for arg in args)


@attrs.frozen
class FloatTerm:
    """A float expression: ``op`` applied to integer terms, floats and float terms; ``symbol`` names
    an unbacked one.

    ``from_int`` is an integer operand among floats; Python compares it as an integer. ``as_float``
    is the result of ``float()`` on it.
    """

    op: str
    args: tuple[Operand, ...] = attrs.field(default=(), eq=_known_by)
    symbol: str = ""

    def evaluate(
        self, values: Mapping[str, int], floats: Mapping[str, float] | None = None
    ) -> float:
        """Return the value for these sizes. Raises KeyError for an unbacked float that ``floats``
        does not hold.
        """
        if self.op == "symbol":
            return (floats or {})[self.symbol]
        function = FUNCTIONS[self.op][0]
        return function(*(_evaluate(arg, values, floats) for arg in self.args))

    def source(self, names: Mapping[str, str]) -> str:
        """Return Python source that computes the value from variables named by ``names``."""
        if self.op == "symbol":
            return names[self.symbol]
        return FUNCTIONS[self.op][1].format(*(_source(arg, names) for arg in self.args))

    def ratio(self) -> tuple[Term, int] | None:
        """Return ``(numerator, denominator > 0)`` if the value is that quotient, correctly rounded;
        else None.
        """
        if self.op in ("from_int", "as_float", "np_float"):
            (arg,) = self.args
            return (arg, 1) if isinstance(arg, Term) else _ratio(arg)
        if self.op == "neg":
            inner = _ratio(self.args[0])
            return None if inner is None else (arithmetic.scale(inner[0], -1), inner[1])
        if self.op == "truediv":
            top, bottom = map(_plain, self.args)
            inner, number = _ratio(top), _positive_integer(bottom)
            exact = inner is not None and _are_binary(inner[1])  # so that it is rounded but once
            return (
                (inner[0], inner[1] * number)
                if exact and inner is not None and number is not None
                else None
            )
        if self.op == "mul":
            one, other = map(_plain, self.args)
            for left, right in ((one, other), (other, one)):
                if isinstance(right, float) and 2.0**-500 < right < 2.0**500:
                    inner = _ratio(left)
                    factor = Fraction(right)
                    power_of_two = math.frexp(right)[0] == 0.5
                    # Exact: times a power of two, or a number of halves times a factor of few
                    # digits (such as 2.5).
                    few = factor.numerator < _FEW_DIGITS
                    if inner is not None and (power_of_two or (_are_binary(inner[1]) and few)):
                        return arithmetic.scale(inner[0], factor.numerator), inner[
                            1
                        ] * factor.denominator
        return None

    def shifted_ratio(self) -> tuple[tuple[Term, ...], int] | None:
        """Return the intermediate numerators and the denominator of a sum of ratios, rounded after
        each addition.

        The last numerator is that of the value. Where the quotient is an integer every step is
        exact; elsewhere it is at least ``1 / denominator`` away from an integer. So, if all
        numerators are small, the quotient has the floor and the ceiling of the value. Sums of
        quotients by powers of two are exact. None if the value is no such sum.
        """
        found = self.ratio()
        if found is not None or self.op not in ("add", "sub"):
            return None if found is None else ((found[0],), found[1])
        one, other = map(_shifted_ratio, self.args)
        if (
            one is None
            or other is None
            or not (1 in (one[1], other[1]) or _are_binary(one[1], other[1]))
        ):
            return None
        left, right = (
            [arithmetic.scale(each, by) for each in tops]
            for tops, by in ((one[0], other[1]), (other[0], one[1]))
        )
        last = arithmetic.add(left[-1], arithmetic.scale(right[-1], 1 if self.op == "add" else -1))
        return (*left, *right, last), one[1] * other[1]

    def symbols(self) -> frozenset[Term]:
        """The integer symbols that the value depends on."""
        found: frozenset[Term] = frozenset()
        for arg in self.args:
            if isinstance(arg, Term):
                found |= arg.symbols
            elif isinstance(arg, FloatTerm):
                found |= arg.symbols()
        return found

    def unbacked(self) -> frozenset[str]:
        """The names of the unbacked floats that the value depends on."""
        if self.op == "symbol":
            return frozenset((self.symbol,))
        return frozenset().union(
            *(arg.unbacked() for arg in self.args if isinstance(arg, FloatTerm))
        )

    def of_numpy(self) -> bool:
        """Return whether the value is a NumPy float, computed as NumPy computes."""
        if self.op not in numpy_terms.KEEPING:
            return self.op in numpy_terms.FUNCTIONS
        return any(isinstance(arg, FloatTerm) and arg.of_numpy() for arg in self.args)

    def __str__(self) -> str:
        if self.op == "symbol":
            return self.symbol
        return FUNCTIONS[self.op][1].format(
            *(f"({arg})" if _is_sum(arg) else str(arg) for arg in self.args)
        )


def _is_sum(arg: Operand) -> bool:
    return isinstance(arg, Term) and arg.op not in (Op.SYMBOL, Op.CONST)


def _evaluate(arg: Operand, values: Mapping[str, int], floats: Mapping[str, float] | None) -> float:
    if isinstance(arg, FloatTerm):
        return arg.evaluate(values, floats)
    if isinstance(arg, Term):
        number: int = fold.evaluate(arg, values)
        return number
    return arg


def _source(arg: Operand, names: Mapping[str, str]) -> str:
    if isinstance(arg, FloatTerm):
        return arg.source(names)
    if isinstance(arg, Term):
        return f"({printing.python(arg, names)})"
    return repr(arg) if math.isfinite(arg) else f"float({str(arg)!r})"


def _plain(arg: Operand) -> Operand:
    """Return a NumPy constant as a Python float; anything else unchanged."""
    constant = (
        isinstance(arg, FloatTerm) and arg.op == "np_float" and isinstance(arg.args[0], float)
    )
    return arg.args[0] if constant else arg  # type: ignore[union-attr]


def _ratio(arg: Operand) -> tuple[Term, int] | None:
    if isinstance(arg, FloatTerm):
        return arg.ratio()
    whole = arg if isinstance(arg, Term) else _whole(arg)
    return None if whole is None else (whole, 1)


def _shifted_ratio(arg: Operand) -> tuple[tuple[Term, ...], int] | None:
    if isinstance(arg, FloatTerm):
        return arg.shifted_ratio()
    if isinstance(arg, float):
        top, bottom = arg.as_integer_ratio() if math.isfinite(arg) else (0, 0)
        return (
            ((arithmetic.const(top),), bottom)
            if 0 < bottom < _FEW_DIGITS and abs(top) < 2**53
            else None
        )
    found = _ratio(arg)
    return None if found is None else ((found[0],), found[1])


def _are_binary(*denominators: int) -> bool:
    """Return whether quotients by these denominators are exact floats, and their sums while they
    are small.

    The denominators are powers of two of few digits.
    """
    return all(each < _FEW_DIGITS and each & (each - 1) == 0 for each in denominators)


def _whole(arg: Operand) -> Term | None:
    """Return an integer-valued operand as an integer term; None for others."""
    if isinstance(arg, FloatTerm):
        if arg.op in ("as_float", "np_float"):
            return _whole(arg.args[0])
        return arg.args[0] if arg.op == "from_int" and isinstance(arg.args[0], Term) else None
    if isinstance(arg, Term):
        return arg
    return arithmetic.const(int(arg)) if arg.is_integer() and abs(arg) < 2**53 else None


def _positive_integer(arg: Operand) -> int | None:
    whole = _whole(arg)
    if whole is None or whole.op is not Op.CONST or whole.value <= 0:
        return None
    return whole.value


def float_term(op: str, *args: Operand | int) -> FloatTerm | float:
    """Apply ``op`` to floats, integers, terms and float terms; plain numbers are computed at
    once.
    """
    plain = [arg.value if isinstance(arg, Term) and arg.op is Op.CONST else arg for arg in args]
    term = FloatTerm(
        op, tuple(float(a) if isinstance(a, int) and op != "truediv" else a for a in plain)
    )
    if all(isinstance(arg, (int, float)) for arg in plain):
        return term.evaluate({})
    return FloatTerm(op, tuple(arithmetic.const(a) if isinstance(a, int) else a for a in plain))
