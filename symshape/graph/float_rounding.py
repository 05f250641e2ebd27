"""Exact integer facts about the floats of a program: the value of ``int(n * 0.3)``, and when
``n * 0.3 > 2`` holds.

A float constant is rarely the number that was written down, and every operation rounds; still much
can be told.

- *Rounded ratios.*  ``n * c`` and ``n / c``, where ``c`` is the float nearest to ``a / b``.
  Between integers the rounded product lies where ``n * a / b`` does, as long as the errors of both
  roundings are below ``1 / (2 * b)``. Where ``n * a / b`` is an integer or lies half way between
  two, the product is that very float if ``c`` is off by at most ``2**-54`` of itself: then the
  exact one is the float nearest to the product of ``n`` and ``c``.  Where ``c`` is farther off
  (0.7, 0.29) it may be the next one: ``90 * 0.7`` is 62.99999999999999.
- *Thresholds.*  Addition, multiplication, division and the square root are correctly rounded (IEEE
  754), so what is made of one integer and constants by them never falls where the exact value
  rises.  A comparison with a constant then changes its answer once, at an integer that a search
  finds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import TypeGuard

import attrs

from guards.terms import arithmetic
from guards.terms.term import Op, Term
from symshape.graph.float_terms import FUNCTIONS, FloatTerm, Operand

_MOST_DIGITS = 10**6
_TIGHT = Fraction(1, 2**54)
LARGEST = 2**52
"""The bound below which integers, and their halves, are exact floats."""


UNKNOWN = 2


@attrs.frozen
class RoundedRatio:
    """A float that equals ``numerator / denominator`` except for rounding.

    Floor, ceiling and rounding of the float are those of the quotient, unless the quotient is an
    integer or half way between two. Four times the numerator must be below 2**52.

    Attributes:
        numerator: an integer of sizes.
        denominator: is above 0.
        off: 0 where the float is the quotient wherever that is an integer or half way between two;
            1 where it may be above it there, if the numerator is above 0, and -1 where it may be
            below; ``UNKNOWN`` where it may be either, since it was rounded twice.
    """

    numerator: Term
    denominator: int
    off: int


def rounded_ratio(term: FloatTerm | float) -> RoundedRatio | None:
    """Return the ratio that a float equals except for rounding; None if no ratio is known.

    >>> from guards.terms.arithmetic import symbol
    >>> from symshape.graph.float_terms import float_term
    >>> n = float_term("from_int", symbol("n"))
    >>> print(*(rounded_ratio(float_term("mul", n, c)) for c in (0.3, 0.7)), sep=chr(10))
    RoundedRatio(numerator=<3*n>, denominator=10, off=0)
    RoundedRatio(numerator=<7*n>, denominator=10, off=-1)
    """
    if not isinstance(term, FloatTerm):
        return None
    exact = term.ratio()
    if exact is not None:
        return RoundedRatio(*exact, 0)
    if term.op not in ("mul", "truediv"):
        return None
    left, right = term.args
    if term.op == "mul" and isinstance(left, float):
        left, right = right, left
    if not isinstance(right, float) or not 2.0**-40 < right < 2.0**40:
        return None
    whole = _integer(left)
    inner = rounded_ratio(left) if whole is None and isinstance(left, FloatTerm) else None
    if inner is not None and math.frexp(right)[0] != 0.5 and inner.off == UNKNOWN:
        return None  # as often as that nobody has looked how far off it may be
    factor, written = Fraction(right), Fraction(right).limit_denominator(_MOST_DIGITS)
    if written.numerator > _MOST_DIGITS or written == 0 or float(written) != right:
        return None
    if term.op == "truediv":
        factor, written = 1 / factor, 1 / written
    if inner is not None:
        by_two = math.frexp(right)[0] == 0.5
        numerator = arithmetic.scale(inner.numerator, written.numerator)
        return RoundedRatio(
            numerator, inner.denominator * written.denominator, inner.off if by_two else UNKNOWN
        )
    if whole is None:
        return None
    error = factor / written - 1
    off = 0 if abs(error) <= _TIGHT else 1 if error > 0 else -1
    return RoundedRatio(arithmetic.scale(whole, written.numerator), written.denominator, off)


def _integer(arg: Operand) -> Term | None:
    """Return the integer of sizes that an operand is, as an integer or as a float; None for other
    operands.
    """
    if isinstance(arg, FloatTerm):
        found = arg.ratio()
        return None if found is None or found[1] != 1 else found[0]
    return arg if isinstance(arg, Term) and arg.op is not Op.CONST else None


@attrs.frozen
class Monotone:
    """A float that is monotone in one integer.

    Attributes:
        of: the integer.
        value: the float for an integer.
        rises: whether it rises or stays; else it falls or stays.
        least: the smallest integer of which it can be computed, where that is known; else None.
        most: the largest integer up to which this is known.
    """

    of: Term
    value: Callable[[int], float]
    rises: bool
    least: int | None = None
    most: int = LARGEST

    def where(self, relation: str, constant: float, least: int) -> tuple[int, int]:
        """Return the integers for which the float stands in a relation to a constant: first, and
        one past the last.

        Args:
            relation: ``lt``, ``le``, ``gt``, ``ge`` or ``eq``.
            constant: a finite float.
            least: the smallest integer that is looked at; the largest is ``most``.

        Raises:
            ArithmeticError, ValueError: the float cannot be computed for all of them; if so, then
                for one of these two.
        """
        self.value(least), self.value(self.most)
        strict, weak = (operator.gt, operator.ge) if self.rises else (operator.lt, operator.le)
        reached, passed = (self._first(each, constant, least) for each in (weak, strict))
        if relation == "eq":
            return reached, passed
        from_there = relation in ("gt", "ge") if self.rises else relation in ("lt", "le")
        turn = passed if (relation in ("gt", "lt")) == from_there else reached
        return (turn, self.most + 1) if from_there else (least, turn)

    def rounded(self, whole: Callable[[float], int]) -> Monotone:
        """Return the monotone integer that results from rounding in one direction, or to the
        nearest.
        """
        value = self.value
        return attrs.evolve(self, value=lambda n: whole(value(n)))

    def _first(self, holds: Callable[[float, float], bool], constant: float, least: int) -> int:
        """Return the smallest integer from ``least`` on at which a monotone condition holds."""
        # it does not hold below ``low``, and holds from ``high`` on
        low, high = (least, self.most + 1)
        while low < high:
            middle = (low + high) // 2
            if holds(self.value(middle), constant):
                high = middle
            else:
                low = middle + 1
        return high


def monotone(term: Operand) -> Monotone | None:
    """Return a float as a monotone function of its only integer; None if it is not known to be
    one.
    """
    if isinstance(term, Term):
        return None if term.op is Op.CONST else Monotone(term, float, True)
    if not isinstance(term, FloatTerm):
        return None
    if term.op in ("from_int", "as_float", "np_float"):
        return monotone(term.args[0])
    if term.op in LOGARITHMS:
        return _logarithm(term)
    if term.op not in ("neg", *_ROOTS, *_ROUNDED_ONCE):
        return None
    compute = FUNCTIONS[term.op.removeprefix("np_")][0]  # which raises where NumPy answers nan
    if term.op not in _ROUNDED_ONCE:
        inner = monotone(term.args[0])
        return None if inner is None else _after(inner, compute, term.op in _ROOTS)
    left, right = map(_as_float, term.args)
    if _is_number(right):
        inner = monotone(left)
        rises = right > 0 or term.op in ("add", "sub")
        return (
            None
            if inner is None or _annuls(term.op, right)
            else _after(inner, lambda x: compute(x, right), rises)
        )
    if _is_number(left) and term.op != "truediv":
        inner = monotone(right)
        rises = left > 0 if term.op == "mul" else term.op == "add"
        return (
            None
            if inner is None or _annuls(term.op, left)
            else _after(inner, lambda x: compute(left, x), rises)
        )
    return None


def _logarithm(term: FloatTerm) -> Monotone | None:
    """Return the logarithm of an integer, or of a quotient, as a monotone function.

    It is rounded nearly right: off by a unit or two of its last place (16 are allowed for). Up to
    2**40 the logarithms of two integers are farther apart than that. So are those of n / m and (n +
    1) / m, for an m of a few digits.
    """
    inner = term.args[0]
    ratio = inner.ratio() if isinstance(inner, FloatTerm) else None
    if ratio is None or ratio[1] >= _FEW:
        return None
    of, compute, bottom = ratio[0], FUNCTIONS[term.op][0], ratio[1]
    return Monotone(of, lambda n: compute(n / bottom), True, least=1, most=2**40)


_FEW = 2**10
LOGARITHMS = ("log", "log2", "log10", "np_log", "np_log2", "np_log10")
_ROOTS = ("sqrt", "np_sqrt")
_ROUNDED_ONCE = ("add", "sub", "mul", "truediv")


def _as_float(arg: Operand) -> Operand:
    """Return a constant integer or a NumPy float as a float; anything else unchanged."""
    if isinstance(arg, FloatTerm) and arg.op == "np_float" and isinstance(arg.args[0], float):
        return arg.args[0]
    constant = isinstance(arg, Term) and arg.op is Op.CONST and abs(arg.value) <= LARGEST
    return float(arg.value) if constant else arg  # type: ignore[union-attr]


def _is_number(arg: Operand) -> TypeGuard[float]:
    return isinstance(arg, float) and math.isfinite(arg)


def _annuls(op: str, number: float) -> bool:
    return number == 0 and op in ("mul", "truediv")


def _after(inner: Monotone, compute: Callable[[float], float], rises: bool) -> Monotone:
    value = inner.value
    return attrs.evolve(inner, value=lambda n: compute(value(n)), rises=inner.rises == rises)
