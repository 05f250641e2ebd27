"""A safe reader of Python-syntax text into terms: through ``ast``, never ``eval``, with limits on everything.

Accepted are integers, names, ``+ - * // % **`` (constant exponents), ``& | ^ << >>`` where one side is a constant,
comparisons (chained too), ``and or not``, ``a if c else b``, and the functions in :data:`FUNCTIONS` under the names
that tensor compilers use for them. A fraction ``a / b`` is read where it is rounded or comes out even.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NoReturn

from guards.deciders.linear_refutation import refutes
from guards.domains.interval_arithmetic import EVERYTHING, Pair
from guards.errors import ParseError
from guards.facts.component import Component, divisors
from guards.terms import arithmetic, bitwise, boolean, division, extremes, truncation
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term

MAX_LENGTH = 50_000  # characters
MAX_BITS = 2048  # of a constant
MAX_EXPONENT = 64
MAX_MONOMIALS = 2_000  # of a sum
_NESTING = 150  # of parentheses, calls, conditions and signs; chains of operators do not count
_CACHE_LIMIT = 4096

_cache: dict[str, Term] = {}
_symbols: dict[str, Term] = {}
_lost: dict[str, tuple[Term, ...]] = {}


def parse(text: str) -> Term:
    """The term that ``text`` writes.

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> from guards.text.reader import parse
    >>> parse("s0 // 8 * 8 == s0"), parse("Eq(Mod(s0, 8), 0) and 1 <= s1 < 2**3")
    (<s0 == 8*(s0//8)>, <s0 % 8 == 0 and s1 >= 1 and s1 <= 7>)
    >>> parse("__import__('os')")
    Traceback (most recent call last):
        ...
    guards.errors.ParseError: the name '__import__' is not allowed at character 1: "__import__('os')"
    """
    found = _cache.get(text)
    if found is None:
        found = _read(text)
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
            _lost.clear()
        _cache[text] = found
    return found


def lost_divisors(text: str) -> tuple[Term, ...]:
    """Divisors that a comparison, as written, needs to be different from 0, and that its term does not show.

    >>> parse("s % (2*s) == 0"), lost_divisors("s % (2*s) == 0")
    (<s == 0>, (<2*s>,))
    """
    if text not in _cache:
        parse(text)
    return _lost.get(text, ())


def _read(text: str) -> Term:
    if not isinstance(text, str):
        raise ParseError(f"a text is needed, not {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise ParseError(f"the text has {len(text)} characters, more than {MAX_LENGTH}", text)
    given = text
    text = text.strip().replace("\n", " ")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        offset = error.offset - 1 if error.offset else None
        raise ParseError(f"not a Python expression ({str(error.msg)[:120]})", text, offset) from None
    except (RecursionError, MemoryError):
        raise ParseError("nested too deeply", text) from None
    except ValueError as error:  # null bytes, too many digits
        raise ParseError(f"not readable ({str(error)[:120]})", text) from None
    try:
        reader = _Reader(text)
        term = reader.read(tree)
        if reader.divisors and isinstance(tree, ast.Compare) and Op.EQ <= term.op <= Op.LE and not reader.choosing:
            shown = divisors(term)
            lost = tuple([divisor for divisor in reader.divisors if divisor not in shown])
            if lost:
                _lost[given] = lost
        return term
    except ZeroDivisionError as error:
        raise ParseError(f"division by zero ({str(error)[:60]})", text) from None
    except RecursionError:
        raise ParseError("nested too deeply", text) from None


class _Reader:
    """Turns one syntax tree into a term."""

    __slots__ = ("choosing", "depth", "divisors", "source", "truncated")

    def __init__(self, source: str) -> None:
        self.source = source
        self.depth = 0
        self.choosing = False  # whether a condition was read: then not all that is written need be defined
        self.divisors: dict[Term, None] = {}  # those that are not numbers
        self.truncated: truncation.Made = {}

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        raise ParseError(message, self.source, getattr(node, "col_offset", None))

    def read(self, node: ast.expr) -> Term:
        kind = type(node)
        if kind is ast.Name:
            return self._name(node)  # type: ignore[arg-type]
        if kind is ast.Constant:
            return self._constant(node)  # type: ignore[arg-type]
        reader = _READERS.get(kind)
        if reader is None:
            self.fail(f"{_describe(node)} is not allowed", node)
        self.depth += 1
        if self.depth > _NESTING:
            self.fail("nested too deeply", node)
        term = reader(self, node)
        self.depth -= 1
        return term

    def integer(self, node: ast.expr) -> Term:
        """An integer; a condition counts as 1 or 0, as in Python."""
        term = self.read(node)
        return boolean.ite(term, 1, 0) if term.op >= Op.TRUE else term

    def condition(self, node: ast.expr) -> Term:
        self.choosing = True
        term = self.read(node)
        if term.op < Op.TRUE:
            self.fail(f"a condition is needed here, not the integer {_shown(term)}", node)
        return term

    def number(self, node: ast.expr, what: str, most: int) -> int:
        term = self.integer(node)
        if term.op is not Op.CONST or not 0 <= term.value <= most:
            self.fail(f"{what} must be a constant from 0 to {most}", node)
        return term.value

    def _name(self, node: ast.Name) -> Term:
        name = node.id
        found = _symbols.get(name)
        if found is None:
            if name.startswith("__"):
                self.fail(f"the name {name[:40]!r} is not allowed", node)
            if len(_symbols) >= _CACHE_LIMIT:
                _symbols.clear()
            found = _symbols[name] = arithmetic.symbol(name)
        return found

    def _constant(self, node: ast.Constant) -> Term:
        value = node.value
        if value is True:
            return TRUE
        if value is False:
            return FALSE
        if type(value) is not int:
            self.fail(f"the constant {str(value)[:40]!r} is not an integer", node)
        return arithmetic.const(value) if value < 65536 else self.checked(arithmetic.const(value), node)

    def checked(self, term: Term, node: ast.AST) -> Term:
        """The term, unless it has grown too large."""
        if term.op is Op.CONST:
            if term.args[0].bit_length() > MAX_BITS:
                self.fail(f"a constant of more than {MAX_BITS} bits", node)
        elif term.op is Op.ADD:
            constant, items = term.args
            if len(items) > MAX_MONOMIALS:
                self.fail(f"a sum of more than {MAX_MONOMIALS} parts when multiplied out", node)
            if constant.bit_length() > MAX_BITS or items[0][1].bit_length() > MAX_BITS:
                self.fail(f"a constant of more than {MAX_BITS} bits", node)
        elif term.op is Op.MUL and len(term.args) > MAX_EXPONENT:
            self.fail(f"a product of more than {MAX_EXPONENT} factors", node)
        return term

    # -- operators ----------------------------------------------------------------------------------------------------

    def binary(self, node: ast.BinOp) -> Term:
        chain = []  # a long chain of operators leans to the left: walked without recursion
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):
            chain.append(inner)
            inner = inner.left
        left = self.read(inner)
        while chain:
            step = chain.pop()
            operator = type(step.op)
            if operator is ast.Add and chain and type(chain[-1].op) is ast.Add:
                parts = [left, self.read(step.right)]
                while chain and type(chain[-1].op) is ast.Add:  # a long sum is collected once
                    step = chain.pop()
                    parts.append(self.read(step.right))
                left = self.checked(arithmetic.total([_number(part) for part in parts]), step)
                continue
            left = self._combine(operator, left, step)
        return left

    def _combine(self, operator: type[ast.operator], left: Term, node: ast.BinOp) -> Term:
        if operator is ast.Pow:
            return self.power(_number(left), self.number(node.right, "an exponent", MAX_EXPONENT), node)
        right = self.read(node.right)
        if operator in _LOGICAL and left.op >= Op.TRUE and right.op >= Op.TRUE:
            return _LOGICAL[operator](left, right)
        a, b = _number(left), _number(right)
        if operator is ast.Add:
            return self.checked(arithmetic.add(a, b), node)
        if operator is ast.Sub:
            return self.checked(arithmetic.sub(a, b), node)
        if operator is ast.Mult:
            return self.product(a, b, node)
        if operator is ast.FloorDiv:
            return self.divided(division.floordiv, a, b)
        if operator is ast.Mod:
            return self.divided(division.mod, a, b)
        if operator is ast.LShift or operator is ast.RShift:
            return self.shifted(a, b, operator is ast.LShift, node)
        if operator in _BITWISE:
            return self.bitwise(operator, a, b, node)
        if operator is ast.Div:
            return self.even(a, b, node)
        raise ParseError(f"the operator {_describe(node.op)} is not allowed here", self.source, node.col_offset)

    def divided(self, divide: Callable[[Term, Term], Term], a: Term, b: Term) -> Term:
        """A quotient or remainder."""
        if b.op is not Op.CONST:
            self.divisors[b] = None
        return divide(a, b)

    def even(self, a: Term, b: Term, node: ast.AST) -> Term:
        """``a / b`` where that is an integer whatever the values are."""
        if division.mod(a, b) is not arithmetic.ZERO:
            self.fail("'/' gives a fraction here: write // for integer division", node)
        return division.floordiv(a, b)

    def shifted(self, a: Term, b: Term, left: bool, node: ast.AST) -> Term:
        """``a << b`` or ``a >> b``"""
        if b.op is not Op.CONST or not 0 <= b.value <= MAX_BITS // 2:
            self.fail(f"the number of bits to shift by must be a constant from 0 to {MAX_BITS // 2}", node)
        power = arithmetic.const(1 << b.value)
        return self.product(a, power, node) if left else division.floordiv(a, power)

    def bitwise(self, operator: type[ast.operator], a: Term, b: Term, node: ast.AST) -> Term:
        """``a & b``, ``a | b`` or ``a ^ b``"""
        made = _BITWISE[operator](a, b)
        if made is None:
            number = a.op is Op.CONST or b.op is Op.CONST
            why = (
                f"a constant with more than {bitwise.MOST_RUNS} runs of bits"
                if number
                else "neither side is a constant"
            )
            self.fail(f"{_SIGNS[operator]} of these is not a formula in + - * // %: {why}", node)
        return self.checked(made, node)

    def product(self, a: Term, b: Term, node: ast.AST) -> Term:
        """``a * b``, unless it grows too large when multiplied out."""
        if len(arithmetic.split(a)[1]) * len(arithmetic.split(b)[1]) > MAX_MONOMIALS:
            self.fail(f"a product of more than {MAX_MONOMIALS} parts when multiplied out", node)
        return self.checked(arithmetic.mul(a, b), node)

    def power(self, base: Term, exponent: int, node: ast.AST) -> Term:
        """``base ** exponent``"""
        result = arithmetic.ONE
        for _ in range(exponent):
            result = self.product(result, base, node)
        return result

    def unary(self, node: ast.UnaryOp) -> Term:
        operator = type(node.op)
        if operator is ast.Not:
            return boolean.not_(self.condition(node.operand))
        operand = self.read(node.operand)
        if operator is ast.Invert:
            return boolean.not_(operand) if operand.op >= Op.TRUE else arithmetic.sub(-1, operand)
        operand = _number(operand)
        return arithmetic.scale(operand, -1) if operator is ast.USub else operand

    def logical(self, node: ast.BoolOp) -> Term:
        join = boolean.and_ if isinstance(node.op, ast.And) else boolean.or_
        return join(*[self.condition(part) for part in node.values])

    def compare(self, node: ast.Compare) -> Term:
        left = self.read(node.left)
        if len(node.ops) == 1:
            return self.relation(type(node.ops[0]), left, self.read(node.comparators[0]), node)
        parts = []
        for operator, item in zip(node.ops, node.comparators, strict=True):
            right = self.read(item)
            parts.append(self.relation(type(operator), left, right, node))
            left = right
        return boolean.and_(*parts)

    def relation(self, operator: type[ast.cmpop], left: Term, right: Term, node: ast.AST) -> Term:
        make = _RELATIONS.get(operator)
        if make is None:
            self.fail("only == != < <= > >= compare", node)
        if left.op >= Op.TRUE and right.op >= Op.TRUE and operator in (ast.Eq, ast.NotEq):
            same = iff(left, right)
            return same if operator is ast.Eq else boolean.not_(same)
        return make(_number(left), _number(right))

    def conditional(self, node: ast.IfExp) -> Term:
        return self.choose(self.condition(node.test), self.read(node.body), self.read(node.orelse))

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """``then if condition else otherwise``, for two integers or two conditions."""
        if then.op >= Op.TRUE and otherwise.op >= Op.TRUE:
            return boolean.or_(boolean.and_(condition, then), boolean.and_(boolean.not_(condition), otherwise))
        return boolean.ite(condition, _number(then), _number(otherwise))

    def call(self, node: ast.Call) -> Term:
        function = node.func
        if isinstance(function, ast.Name):
            name = function.id
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            name = function.attr
            if name not in _MODULES.get(function.value.id, ()):
                self.fail(f"{_describe(function)} cannot be called", node)
        else:
            self.fail(f"{_describe(function)} cannot be called", node)
        if name.startswith("__"):
            self.fail(f"the name {name[:40]!r} is not allowed", node)
        found = FUNCTIONS.get(name)
        if found is None:
            self.fail(_AMBIGUOUS.get(name) or f"the function {name[:40]!r} is not known", node)
        args = node.args
        least, most, make = found
        if most is None and len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
            args = args[0].elts  # min([a, b]), all((a, b))
        if node.keywords or any(isinstance(part, ast.Starred) for part in args):
            self.fail(f"{name} takes plain operands only", node)
        if len(args) < least or (most is not None and len(args) > most):
            wanted = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            self.fail(f"{name} takes {wanted} operands, not {len(args)}", node)
        return make(self, args, node)


def _number(term: Term) -> Term:
    return boolean.ite(term, 1, 0) if term.op >= Op.TRUE else term


def _shown(term: Term) -> str:
    shown = str(term)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def iff(a: Term, b: Term) -> Term:
    """Whether two conditions agree.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ge, lt
    >>> x = symbol("x")
    >>> iff(lt(x, 3), ge(2, x))
    <True>
    """
    if a is b:
        return TRUE
    return boolean.and_(boolean.or_(boolean.not_(a), b), boolean.or_(a, boolean.not_(b)))


def implies(a: Term, b: Term) -> Term:
    """Whether ``b`` holds wherever ``a`` does.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import lt
    >>> implies(lt(symbol("x"), 3), lt(symbol("x"), 3))
    <True>
    """
    return TRUE if a is b else boolean.or_(boolean.not_(a), b)


def _describe(node: ast.AST) -> str:
    return f"a {type(node).__name__} expression" if isinstance(node, ast.expr) else type(node).__name__


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
_MODULES = {
    "math": ("floor", "ceil", "trunc", "prod"),
    "torch": ("sym_min", "sym_max", "sym_not", "sym_ite", "sym_int"),
}
_AMBIGUOUS = {
    "div": "div rounds down in some languages and towards zero in others: write floordiv or truncdiv",
    "cmod": "cmod is C's remainder to some and belongs to ceildiv to others: write truncmod, or a - b*ceildiv(a, b)",
}
_READERS: dict[type[ast.expr], Callable[[_Reader, ast.expr], Term]] = {
    ast.BinOp: _Reader.binary,  # type: ignore[dict-item]
    ast.UnaryOp: _Reader.unary,  # type: ignore[dict-item]
    ast.BoolOp: _Reader.logical,  # type: ignore[dict-item]
    ast.Compare: _Reader.compare,  # type: ignore[dict-item]
    ast.IfExp: _Reader.conditional,  # type: ignore[dict-item]
    ast.Call: _Reader.call,  # type: ignore[dict-item]
}

# -- functions --------------------------------------------------------------------------------------------------------

Maker = Callable[[_Reader, list[ast.expr], ast.Call], Term]


def _integers(make: Callable[..., Term]) -> Maker:
    return lambda reader, args, node: make(*[reader.integer(part) for part in args])


def _division(divide: Callable[[Term, Term], Term]) -> Maker:
    return lambda reader, args, node: reader.divided(divide, reader.integer(args[0]), reader.integer(args[1]))


def _conditions(make: Callable[..., Term]) -> Maker:
    return lambda reader, args, node: make(*[reader.condition(part) for part in args])


def _comparison(operator: type[ast.cmpop]) -> Maker:
    return lambda reader, args, node: reader.relation(operator, reader.read(args[0]), reader.read(args[1]), node)


def ceildiv(a: Term, b: Term) -> Term:
    """``a / b`` rounded up."""
    return arithmetic.scale(division.floordiv(arithmetic.scale(a, -1), b), -1)


def _truncdiv(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    return truncation.quotient(reader.integer(args[0]), reader.integer(args[1]), reader.truncated)


def _truncmod(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    return truncation.remainder(reader.integer(args[0]), reader.integer(args[1]), reader.truncated)


def _choice(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    return reader.choose(reader.condition(args[0]), reader.read(args[1]), reader.read(args[2]))


def _piecewise(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    pairs: list[tuple[Term, Term]] = []
    for part in args:
        if not isinstance(part, ast.Tuple) or len(part.elts) != 2:
            reader.fail("each part of Piecewise must be (value, condition)", part)
        pairs.append((reader.read(part.elts[0]), reader.condition(part.elts[1])))
    result, condition = pairs.pop()
    if condition is not TRUE and not _certain(boolean.or_(condition, *[other for _, other in pairs])):
        reader.fail("the conditions of Piecewise must cover everything: the last must be True", node)
    for value, condition in reversed(pairs):
        result = reader.choose(condition, value, result)
    return result


def _certain(condition: Term) -> bool:
    """Whether linear arithmetic shows that a condition holds for all integers."""
    ranges: dict[Term, Pair] = dict.fromkeys(condition.symbols, EVERYTHING)
    return refutes(Component(ranges), boolean.not_(condition))


def _fraction(reader: _Reader, part: ast.expr) -> tuple[Term, Term] | None:
    """Numerator and denominator, where a fraction is written."""
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
        return reader.integer(part.left), reader.integer(part.right)
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in _FRACTIONS:
        if len(part.args) != 2 or part.keywords or any(isinstance(inner, ast.Starred) for inner in part.args):
            reader.fail(f"{part.func.id} takes 2 operands", part)
        return reader.integer(part.args[0]), reader.integer(part.args[1])
    return None


def _rounded(divide: Callable[[Term, Term], Term]) -> Maker:
    def make(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
        found = _fraction(reader, args[0])
        return reader.integer(args[0]) if found is None else divide(*found)

    return make


def _cut(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    found = _fraction(reader, args[0])
    return reader.integer(args[0]) if found is None else truncation.quotient(*found, reader.truncated)


def _even(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    return reader.even(reader.integer(args[0]), reader.integer(args[1]), node)


def _truth(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    term = reader.read(args[0])
    return term if term.op >= Op.TRUE else boolean.ne(term, 0)


def _shift(left: bool) -> Maker:
    return lambda reader, args, node: reader.shifted(reader.integer(args[0]), reader.integer(args[1]), left, node)


def _bits(operator: type[ast.operator]) -> Maker:
    return lambda reader, args, node: reader.bitwise(operator, reader.integer(args[0]), reader.integer(args[1]), node)


def _absolute(a: Term) -> Term:
    return extremes.maximum(a, arithmetic.scale(a, -1))


def _clamp(a: Term, lo: Term, hi: Term) -> Term:
    return extremes.minimum(extremes.maximum(a, lo), hi)


def _power(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    return reader.power(reader.integer(args[0]), reader.number(args[1], "an exponent", MAX_EXPONENT), node)


def _multiply(reader: _Reader, args: list[ast.expr], node: ast.Call) -> Term:
    result = arithmetic.ONE
    for part in args:
        result = reader.product(result, reader.integer(part), node)
    return result


def _add(*parts: Term) -> Term:
    return arithmetic.total(parts)


_FRACTIONS = ("IntTrueDiv", "TrueDiv", "truediv")
_same: dict[tuple[str, ...], tuple[int, int | None, Maker]] = {
    ("min", "Min", "sym_min", "minimum", "min_dim"): (1, None, _integers(extremes.minimum)),
    ("max", "Max", "sym_max", "maximum", "max_dim"): (1, None, _integers(extremes.maximum)),
    ("abs", "Abs"): (1, 1, _integers(_absolute)),
    ("sign", "Sign"): (1, 1, _integers(lambda a: _clamp(a, arithmetic.const(-1), arithmetic.ONE))),
    ("non_negative", "relu", "Relu"): (1, 1, _integers(lambda a: extremes.maximum(a, 0))),
    ("clamp", "clip"): (3, 3, _integers(_clamp)),
    ("FloorDiv", "floordiv", "floorDiv", "floor_div", "floor_divide", "CleanDiv", "fld"): (
        2,
        2,
        _division(division.floordiv),
    ),
    ("Mod", "mod", "FloorMod", "floormod", "floorMod", "floor_mod", "flm", "PythonMod"): (
        2,
        2,
        _division(division.mod),
    ),
    ("ceildiv", "CeilDiv", "ceilDiv", "ceil_div", "cdiv"): (2, 2, _division(ceildiv)),
    ("truncdiv", "truncDiv", "TruncDiv", "tdiv", "trunc_div"): (2, 2, _truncdiv),
    ("truncmod", "truncMod", "TruncMod", "tmod", "trunc_mod", "rem"): (2, 2, _truncmod),
    ("ModularIndexing",): (3, 3, _integers(lambda a, b, c: division.mod(division.floordiv(a, b), c))),
    ("floor", "FloorToInt"): (1, 1, _rounded(division.floordiv)),
    ("ceil", "ceiling", "CeilToInt"): (1, 1, _rounded(ceildiv)),
    ("trunc", "TruncToInt", "int", "sym_int"): (1, 1, _cut),
    _FRACTIONS: (2, 2, _even),
    ("Identity",): (1, 1, _integers(lambda a: a)),
    ("bool",): (1, 1, _truth),
    ("pow", "Pow", "pow_by_natural", "PowByNatural"): (2, 2, _power),
    ("Add", "sum"): (1, None, _integers(_add)),
    ("Mul", "prod"): (1, None, _multiply),
    ("shift_left", "left_shift", "LShift"): (2, 2, _shift(True)),
    ("shift_right", "right_shift", "RShift"): (2, 2, _shift(False)),
    ("bitwise_and",): (2, 2, _bits(ast.BitAnd)),
    ("bitwise_or",): (2, 2, _bits(ast.BitOr)),
    ("bitwise_xor",): (2, 2, _bits(ast.BitXor)),
    ("bitwise_not",): (1, 1, _integers(lambda a: arithmetic.sub(-1, a))),
    ("ite", "Ite", "ITE", "If", "if_then_else", "where", "Where", "select", "Select", "sym_ite"): (3, 3, _choice),
    ("Piecewise",): (1, None, _piecewise),
    ("Eq", "eq", "Equality"): (2, 2, _comparison(ast.Eq)),
    ("Ne", "ne", "Unequality"): (2, 2, _comparison(ast.NotEq)),
    ("Lt", "lt", "StrictLessThan"): (2, 2, _comparison(ast.Lt)),
    ("Le", "le", "LessThan"): (2, 2, _comparison(ast.LtE)),
    ("Gt", "gt", "StrictGreaterThan"): (2, 2, _comparison(ast.Gt)),
    ("Ge", "ge", "GreaterThan"): (2, 2, _comparison(ast.GtE)),
    ("And", "and_", "all"): (1, None, _conditions(boolean.and_)),
    ("Or", "or_", "any"): (1, None, _conditions(boolean.or_)),
    ("Not", "not_", "sym_not"): (1, 1, _conditions(boolean.not_)),
    ("Implies", "implies"): (2, 2, _conditions(implies)),
    ("Iff", "iff", "Equivalent"): (2, 2, _conditions(iff)),
    ("Xor", "xor"): (2, 2, _conditions(lambda a, b: boolean.not_(iff(a, b)))),
}

FUNCTIONS: dict[str, tuple[int, int | None, Maker]] = {name: row for names, row in _same.items() for name in names}
"""The known functions: the least and the greatest number of operands, and the maker of the term."""
