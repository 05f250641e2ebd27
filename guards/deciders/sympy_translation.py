"""Terms as SymPy expressions and back; imports nothing of SymPy itself.

Going there, ``a // b`` is ``floor(a / b)`` and ``a % b`` is ``Mod(a, b)``, which have Python's
meaning in SymPy. Coming back, every symbol is an integer, and a fraction is carried as numerator
and denominator until it is rounded or cancels. What is neither an integer nor a condition then is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guards.errors import ParseError
from guards.terms import arithmetic, boolean, division, extremes, fold
from guards.terms.arithmetic import ONE
from guards.terms.comparison import iff
from guards.terms.term import Op, Term
from guards.text.operators import ceildiv, chosen, implies

MOST_EXPONENT = 64


class ToSympy:
    """Makes expressions of terms; ``sympy`` is the package, ``symbols`` what symbols become by name
    (else integers).
    """

    def __init__(self, sympy: Any, symbols: Mapping[str, Any]) -> None:
        self.sympy = sympy
        self.symbols = symbols

    def made(self, term: Term) -> Any:
        """The expression of a term."""
        return fold.fold(term, self._node)

    def _node(self, term: Term, operands: list[Any]) -> Any:
        sympy, op = self.sympy, term.op
        if op is Op.SYMBOL:
            found = self.symbols.get(term.name)
            return sympy.Symbol(term.name, integer=True) if found is None else found
        if op is Op.CONST:
            return sympy.Integer(term.value)
        if op is Op.ADD:
            constant, items = term.args
            return sympy.Add(
                constant, *(c * part for (_, c), part in zip(items, operands, strict=True))
            )
        if op is Op.FLOORDIV:
            return sympy.floor(operands[0] / operands[1])
        if op is Op.ITE:
            return sympy.Piecewise((operands[1], operands[0]), (operands[2], True))
        if op is Op.EQ or op is Op.NE or op is Op.LE:
            make = {Op.EQ: sympy.Eq, Op.NE: sympy.Ne, Op.LE: sympy.Le}[op]
            return make(operands[0], 0, evaluate=False)
        plain = {Op.MUL: "Mul", Op.MOD: "Mod", Op.AND: "And", Op.OR: "Or"}
        if op in plain:
            return getattr(sympy, plain[op])(*operands)
        # evaluated, SymPy compares every two operands, and what they are made of
        if op is Op.MIN or op is Op.MAX:
            return (sympy.Min if op is Op.MIN else sympy.Max)(*operands, evaluate=False)
        return sympy.true if op is Op.TRUE else sympy.false


Fraction = tuple[Term, Term]
"""Numerator and denominator; conditions have the denominator 1."""


class FromSympy:
    """Makes terms of expressions, known by the names of their classes: torch's own functions are
    understood too.
    """

    def __init__(self) -> None:
        self.memo: dict[Any, Fraction] = {}

    def made(self, expression: Any) -> Term:
        """The term of an expression.

        Raises:
            ParseError: it is no integer and no condition, or holds something that has no
                counterpart.
        """
        try:
            return self._integer(expression)
        except RecursionError:
            raise ParseError("nested too deeply") from None
        except ZeroDivisionError:
            raise ParseError(f"division by zero: {str(expression)[:60]}") from None
        except TypeError as error:
            raise ParseError(f"{str(error)[:120]}: {str(expression)[:60]}") from None

    def _integer(self, expression: Any) -> Term:
        """Translate an expression that must be an integer or a condition."""
        top, bottom = self._read(expression)
        if bottom is ONE:
            return top
        if division.mod(top, bottom) is not arithmetic.ZERO:
            raise ParseError(f"a fraction that nothing rounds: {str(expression)[:80]}")
        return division.floordiv(top, bottom)

    def _read(self, expression: Any) -> Fraction:
        found = self.memo.get(expression)
        if found is None:
            found = self.memo[expression] = self._made(expression)
        return found

    def _made(self, expression: Any) -> Fraction:
        name = type(expression).__name__
        if isinstance(expression, (bool, int)):
            return (
                boolean.boolean(expression)
                if isinstance(expression, bool)
                else arithmetic.const(expression)
            ), ONE
        if getattr(expression, "is_Symbol", False):
            if expression.is_integer is False:
                raise ParseError(f"the symbol {expression} is no integer")
            return arithmetic.symbol(expression.name), ONE
        if getattr(expression, "is_Rational", False):
            return arithmetic.const(int(expression.p)), arithmetic.const(int(expression.q))
        special = _FRACTIONS.get(name)
        if special is not None:
            return special(self, expression.args)
        plain = _PLAIN.get(name)
        if plain is None:
            raise ParseError(f"{name} has no counterpart among terms: {str(expression)[:80]}")
        return plain(*[self._integer(each) for each in expression.args]), ONE

    def total(self, args: tuple[Any, ...]) -> Fraction:
        """A sum."""
        top, bottom = arithmetic.ZERO, ONE
        for each in args:
            upper, lower = self._read(each)
            top, bottom = arithmetic.add(top * lower, upper * bottom), bottom * lower
        return _reduced(top, bottom)

    def product(self, args: tuple[Any, ...]) -> Fraction:
        """A product."""
        top, bottom = ONE, ONE
        for each in args:
            upper, lower = self._read(each)
            top, bottom = top * upper, bottom * lower
        return _reduced(top, bottom)

    def power(self, args: tuple[Any, ...]) -> Fraction:
        """A power by a number; a negative one is a denominator."""
        base, exponent = self._read(args[0]), self._integer(args[1])
        if exponent.op is not Op.CONST or abs(exponent.value) > MOST_EXPONENT:
            raise ParseError(
                f"an exponent must be a constant of at most {MOST_EXPONENT}, not {exponent}"
            )
        top, bottom = base if exponent.value >= 0 else (base[1], base[0])
        number = abs(exponent.value)
        return arithmetic.prod([top] * number), arithmetic.prod([bottom] * number)

    def rounded(self, args: tuple[Any, ...], sign: int) -> Fraction:
        """``floor``, or ``ceiling`` for -1."""
        top, bottom = self._read(args[0])
        return sign * division.floordiv(sign * top, bottom), ONE

    def piecewise(self, args: tuple[Any, ...]) -> Fraction:
        """A choice, whose last condition must be True."""
        *rest, last = args
        if self._integer(last[1]) is not boolean.TRUE:
            raise ParseError("the last condition of a Piecewise must be True")
        result = self._integer(last[0])
        for value, condition in reversed(rest):
            result = chosen(self._integer(condition), self._integer(value), result)
        return result, ONE

    def relation(self, args: tuple[Any, ...], make: Callable[..., Term]) -> Fraction:
        """A relation; a denominator must be a number, whose sign is known."""
        sides = [self._read(each) for each in args]
        if all(top.is_bool for top, _ in sides):
            same = iff(sides[0][0], sides[1][0])
            return (same if make is boolean.eq else boolean.not_(same)), ONE
        (a, b), (c, d) = sides
        if b.op is not Op.CONST or d.op is not Op.CONST:
            raise ParseError("a fraction with symbols below is compared: its sign is not known")
        return make(a * d, c * b), ONE


def _reduced(top: Term, bottom: Term) -> Fraction:
    """A fraction without what both sides share; a constant denominator is positive."""
    if bottom.op is Op.CONST and bottom.value == 0:
        raise ZeroDivisionError
    top, bottom, _, _ = arithmetic.cancel(top, bottom)
    return (-top, -bottom) if bottom.op is Op.CONST and bottom.value < 0 else (top, bottom)


_FRACTIONS: dict[str, Callable[[FromSympy, tuple[Any, ...]], Fraction]] = {
    "Add": FromSympy.total,
    "Mul": FromSympy.product,
    "Pow": FromSympy.power,
    "floor": lambda read, args: read.rounded(args, 1),
    "FloorToInt": lambda read, args: read.rounded(args, 1),
    "ceiling": lambda read, args: read.rounded(args, -1),
    "CeilToInt": lambda read, args: read.rounded(args, -1),
    "Piecewise": FromSympy.piecewise,
    "Equality": lambda read, args: read.relation(args, boolean.eq),
    "Unequality": lambda read, args: read.relation(args, boolean.ne),
    "LessThan": lambda read, args: read.relation(args, boolean.le),
    "StrictLessThan": lambda read, args: read.relation(args, boolean.lt),
    "GreaterThan": lambda read, args: read.relation(args, boolean.ge),
    "StrictGreaterThan": lambda read, args: read.relation(args, boolean.gt),
}


_PLAIN: dict[str, Callable[..., Term]] = {
    "Mod": division.mod,
    "PythonMod": division.mod,
    "FloorDiv": division.floordiv,
    "CleanDiv": division.floordiv,
    "CeilDiv": ceildiv,
    "ModularIndexing": lambda a, b, c: division.mod(division.floordiv(a, b), c),
    "Abs": lambda a: extremes.maximum(a, -a),
    "Min": extremes.minimum,
    "Max": extremes.maximum,
    "And": boolean.and_,
    "Or": boolean.or_,
    "Not": boolean.not_,
    "Xor": lambda a, b: boolean.not_(iff(a, b)),
    "Implies": implies,
    "Equivalent": iff,
    "Where": chosen,
    "ITE": chosen,
    "BooleanTrue": lambda: boolean.TRUE,
    "BooleanFalse": lambda: boolean.FALSE,
}
