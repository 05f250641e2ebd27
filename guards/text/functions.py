"""The functions that a text may call, under the names that tensor compilers and people use for
them.

One row a function; its maker gets the operands as terms. What looks at operands as they are written
(``floor(a / b)``, ``Piecewise``) is grammar and stands there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from guards.terms import arithmetic, boolean, division, extremes, truncation
from guards.terms.comparison import iff
from guards.terms.term import Op, Term
from guards.text import operators
from guards.text.operators import MAX_EXPONENT, ceildiv, implies
from guards.text.transcript import Transcript

Maker = Callable[[Transcript, list[Term], ast.Call], Term]
INTEGER, CONDITION, EITHER = range(3)
"""The kinds of operands: where an integer is read, a condition counts as 1 or 0."""


class Function:
    """A function of the language: how many operands it takes, how each is read, and the term that
    it makes.

    ``most`` is None for any number of operands. The last of ``operands`` stands for all that
    follow.
    """

    __slots__ = ("least", "make", "most", "operands")

    def __init__(
        self, least: int, most: int | None, operands: tuple[int, ...], make: Maker
    ) -> None:
        self.least = least
        self.most = most
        self.operands = operands
        self.make = make


def _integers(least: int, most: int | None, make: Callable[..., Term]) -> Function:
    return Function(least, most, (INTEGER,), lambda notes, args, node: make(*args))


def _conditions(least: int, most: int | None, make: Callable[..., Term]) -> Function:
    return Function(least, most, (CONDITION,), lambda notes, args, node: make(*args))


def _division(divide: Callable[[Term, Term], Term]) -> Function:
    return Function(
        2,
        2,
        (INTEGER,),
        lambda notes, args, node: operators.divided(notes, divide, args[0], args[1]),
    )


def _truncation(divide: Callable[[Term, Term, truncation.Made], Term]) -> Function:
    return Function(
        2,
        2,
        (INTEGER,),
        lambda notes, args, node: operators.truncated(notes, divide, args[0], args[1]),
    )


def _comparison(operator: type[ast.cmpop]) -> Function:
    return Function(
        2,
        2,
        (EITHER,),
        lambda notes, args, node: operators.relation(notes, operator, args[0], args[1], node),
    )


def _shift(left: bool) -> Function:
    return Function(
        2,
        2,
        (INTEGER,),
        lambda notes, args, node: operators.shifted(notes, args[0], args[1], left, node),
    )


def _bits(operator: type[ast.operator]) -> Function:
    return Function(
        2,
        2,
        (INTEGER,),
        lambda notes, args, node: operators.bits(notes, operator, args[0], args[1], node),
    )


def _even(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    return operators.even(notes, args[0], args[1], node)


def _indexed(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    quotient = operators.divided(notes, division.floordiv, args[0], args[1])
    return operators.divided(notes, division.mod, quotient, args[2])


def _truth(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    term = args[0]
    return term if term.op >= Op.TRUE else boolean.ne(term, 0)


def _choice(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    return operators.chosen(args[0], args[1], args[2])


def _power(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    exponent = operators.constant(notes, args[1], "an exponent", MAX_EXPONENT, node.args[1])
    return operators.power(notes, args[0], exponent, node)


def _product(notes: Transcript, args: list[Term], node: ast.Call) -> Term:
    result = arithmetic.ONE
    for part in args:
        result = operators.product(notes, result, part, node)
    return result


def _total(*parts: Term) -> Term:
    return arithmetic.total(parts)


def _absolute(a: Term) -> Term:
    return extremes.maximum(a, arithmetic.scale(a, -1))


def _clamped(a: Term, lo: Term, hi: Term) -> Term:
    return extremes.minimum(extremes.maximum(a, lo), hi)


FRACTIONS = ("IntTrueDiv", "TrueDiv", "truediv")
_same: dict[tuple[str, ...], Function] = {
    ("min", "Min", "sym_min", "minimum", "min_dim"): _integers(1, None, extremes.minimum),
    ("max", "Max", "sym_max", "maximum", "max_dim"): _integers(1, None, extremes.maximum),
    ("abs", "Abs"): _integers(1, 1, _absolute),
    ("sign", "Sign"): _integers(1, 1, lambda a: _clamped(a, arithmetic.const(-1), arithmetic.ONE)),
    ("non_negative", "relu", "Relu"): _integers(1, 1, lambda a: extremes.maximum(a, 0)),
    ("clamp", "clip"): _integers(3, 3, _clamped),
    ("FloorDiv", "floordiv", "floorDiv", "floor_div", "floor_divide", "CleanDiv", "fld"): _division(
        division.floordiv
    ),
    ("Mod", "mod", "FloorMod", "floormod", "floorMod", "floor_mod", "flm", "PythonMod"): _division(
        division.mod
    ),
    ("ceildiv", "CeilDiv", "ceilDiv", "ceil_div", "cdiv"): _division(ceildiv),
    ("truncdiv", "truncDiv", "TruncDiv", "tdiv", "trunc_div"): _truncation(truncation.quotient),
    ("truncmod", "truncMod", "TruncMod", "tmod", "trunc_mod", "rem"): _truncation(
        truncation.remainder
    ),
    ("ModularIndexing",): Function(3, 3, (INTEGER,), _indexed),
    FRACTIONS: Function(2, 2, (INTEGER,), _even),
    ("Identity",): _integers(1, 1, lambda a: a),
    ("bool",): Function(1, 1, (EITHER,), _truth),
    ("pow", "Pow", "pow_by_natural", "PowByNatural"): Function(2, 2, (INTEGER,), _power),
    ("Add", "sum"): _integers(1, None, _total),
    ("Mul", "prod"): Function(1, None, (INTEGER,), _product),
    ("shift_left", "left_shift", "LShift"): _shift(True),
    ("shift_right", "right_shift", "RShift"): _shift(False),
    ("bitwise_and",): _bits(ast.BitAnd),
    ("bitwise_or",): _bits(ast.BitOr),
    ("bitwise_xor",): _bits(ast.BitXor),
    ("bitwise_not",): _integers(1, 1, lambda a: arithmetic.sub(-1, a)),
    (
        "ite",
        "Ite",
        "ITE",
        "If",
        "if_then_else",
        "where",
        "Where",
        "select",
        "Select",
        "sym_ite",
    ): Function(3, 3, (CONDITION, EITHER), _choice),
    ("Eq", "eq", "Equality"): _comparison(ast.Eq),
    ("Ne", "ne", "Unequality"): _comparison(ast.NotEq),
    ("Lt", "lt", "StrictLessThan"): _comparison(ast.Lt),
    ("Le", "le", "LessThan"): _comparison(ast.LtE),
    ("Gt", "gt", "StrictGreaterThan"): _comparison(ast.Gt),
    ("Ge", "ge", "GreaterThan"): _comparison(ast.GtE),
    ("And", "and_", "all"): _conditions(1, None, boolean.and_),
    ("Or", "or_", "any"): _conditions(1, None, boolean.or_),
    ("Not", "not_", "sym_not"): _conditions(1, 1, boolean.not_),
    ("Implies", "implies"): _conditions(2, 2, implies),
    ("Iff", "iff", "Equivalent"): _conditions(2, 2, iff),
    ("Xor", "xor"): _conditions(2, 2, lambda a, b: boolean.not_(iff(a, b))),
}

FUNCTIONS: dict[str, Function] = {name: row for names, row in _same.items() for name in names}
"""The known functions by name."""

AMBIGUOUS = {
    "div": (
        "div rounds down in some languages and towards zero in others: write floordiv or truncdiv"
    ),
    "cmod": (
        "cmod is C's remainder to some and belongs to ceildiv to others: write truncmod, or a "
        "- b*ceildiv(a, b)"
    ),
}
"""Names that mean different things to different people, and what to write instead."""
