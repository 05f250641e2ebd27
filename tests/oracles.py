"""Oracles for integer questions that share no code with what they judge: Python's own arithmetic,
and Z3 from text.

Both read the *text* of a question, so a wrong constructor, a wrong rule and a wrong rung all show.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from types import CodeType
from typing import Any

import attrs
import z3

Range = tuple[int | None, int | None]
WINDOW = 9  # values tried above (or below) a bound where the range is infinite


@attrs.frozen
class Question:
    """A condition under ranges and assumptions, all as text."""

    query: str
    ranges: dict[str, Range] = attrs.field(factory=dict)
    assume: tuple[str, ...] = ()

    @classmethod
    def about(cls, query: str, ranges: Mapping[str, Range], assume: tuple[str, ...]) -> Question:
        """A question, with ranges of what it mentions only: others are refused as slips."""
        names = {name for text in (query, *assume) for name in code(text).co_names}
        return cls(query, {name: pair for name, pair in ranges.items() if name in names}, assume)

    def __str__(self) -> str:
        return f"prove({self.query!r}, ranges={self.ranges!r}, assume={list(self.assume)!r})"


def _where(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def _piecewise(*pairs: tuple[Any, Any]) -> Any:
    return next(value for value, condition in pairs if condition)


SPACE: dict[str, Any] = {
    "__builtins__": {},
    "min": min,
    "max": max,
    "abs": abs,
    "Min": min,
    "Max": max,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "ceildiv": lambda a, b: -(-a // b),
    "truncdiv": lambda a, b: a // b if (a >= 0) == (b > 0) else -(-a // b),
    "truncmod": lambda a, b: a - b * (a // b if (a >= 0) == (b > 0) else -(-a // b)),
    "clamp": lambda a, lo, hi: min(max(a, lo), hi),
    "ite": _where,
    "Piecewise": _piecewise,
    "Eq": lambda a, b: a == b,
    "Ne": lambda a, b: a != b,
    "Lt": lambda a, b: a < b,
    "Le": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "Ge": lambda a, b: a >= b,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": lambda a: not a,
    "implies": lambda a, b: not a or b,
}


def names_in(*texts: str) -> tuple[str, ...]:
    """The symbols in some texts."""
    found = {
        node.id
        for text in texts
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Name)
    }
    return tuple(sorted(found - set(SPACE)))


def _axis(pair: Range, window: int) -> Sequence[int]:
    lo, hi = pair
    if lo is None and hi is None:
        return range(-window // 2, window // 2 + 1)
    if lo is None:
        assert hi is not None
        return range(hi - window, hi + 1)
    if hi is None or hi - lo > window:
        return range(lo, lo + window + 1)
    return range(lo, hi + 1)


def complete(question: Question, window: int = WINDOW) -> bool:
    """Whether :func:`tried` tries all values that the ranges allow."""
    for name in names_in(question.query, *question.assume):
        lo, hi = question.ranges.get(name, (0, None))
        if lo is None or hi is None or hi - lo > window:
            return False
    return True


@lru_cache(1024)
def code(text: str) -> CodeType:
    """The text, compiled once."""
    return compile(text, "<question>", "eval")


def tried(
    question: Question, window: int = WINDOW
) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """Values at which the query holds and values at which it fails, found by trying a window of all
    values.

    Points at which anything divides by zero are left out: there the question says nothing.
    """
    names = names_in(question.query, *question.assume)
    query, assumed = code(question.query), [code(text) for text in question.assume]
    holds: dict[str, int] | None = None
    fails: dict[str, int] | None = None
    axes = [_axis(question.ranges.get(name, (0, None)), window) for name in names]
    for values in product(*axes):
        point = dict(zip(names, values, strict=True))
        try:
            if not all(eval(text, SPACE, point) for text in assumed):
                continue
            truth = bool(eval(query, SPACE, point))
        except ZeroDivisionError:
            continue
        if truth and holds is None:
            holds = point
        elif not truth and fails is None:
            fails = point
        if holds is not None and fails is not None:
            break
    return holds, fails


# -- Z3 --------------------------------------------------------------------------------------------


def _number(node: ast.expr) -> int:
    """The value of an expression without names."""
    return int(eval(compile(ast.Expression(node), "<number>", "eval"), {"__builtins__": {}}))


class _ToZ3(ast.NodeVisitor):
    """Text to Z3 by its own walk; every divisor is required not to be zero."""

    def __init__(self) -> None:
        self.defined: list[Any] = []

    def read(self, text: str) -> Any:
        return self.visit(ast.parse(text, mode="eval").body)

    def generic_visit(self, node: ast.AST) -> Any:
        raise NotImplementedError(ast.dump(node))

    def visit_Name(self, node: ast.Name) -> Any:
        return z3.Int(node.id)

    def visit_Constant(self, node: ast.Constant) -> Any:
        return z3.BoolVal(node.value) if isinstance(node.value, bool) else z3.IntVal(node.value)

    def quotient(self, a: Any, b: Any) -> Any:
        self.defined.append(b != 0)
        return z3.If(b > 0, a / b, (-a) / (-b))

    def remainder(self, a: Any, b: Any) -> Any:
        return a - b * self.quotient(a, b)

    def truncated(self, a: Any, b: Any) -> Any:
        return z3.If((a >= 0) == (b > 0), self.quotient(a, b), -self.quotient(-a, b))

    def masked(self, a: Any, mask: int) -> Any:
        """``a & mask``, bit by bit; above its highest bit a negative mask lets everything
        through.
        """
        width = mask.bit_length()
        bits = [2**i * (a / 2**i % 2) for i in range(width) if mask >> i & 1]
        return z3.Sum([z3.IntVal(0), *bits]) + (2**width * (a / 2**width) if mask < 0 else 0)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        a = self.visit(node.left)
        if isinstance(node.op, ast.Pow):
            assert isinstance(node.right, ast.Constant)
            result = z3.IntVal(1)
            for _ in range(int(node.right.value)):  # type: ignore[arg-type]
                result = result * a
            return result
        b = self.visit(node.right)
        if isinstance(node.op, ast.LShift | ast.RShift):
            number = _number(node.right)
            return a * 2**number if isinstance(node.op, ast.LShift) else a / 2**number
        if isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
            shared = self.masked(a, _number(node.right))
            return (
                shared
                if isinstance(node.op, ast.BitAnd)
                else a + b - shared * (1 + isinstance(node.op, ast.BitXor))
            )
        if isinstance(node.op, ast.FloorDiv):
            return self.quotient(a, b)
        if isinstance(node.op, ast.Mod):
            return self.remainder(a, b)
        return {ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b}[
            type(node.op)
        ]()

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return z3.Not(operand)
        if isinstance(node.op, ast.Invert):
            return -1 - operand
        return -operand if isinstance(node.op, ast.USub) else operand

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return (z3.And if isinstance(node.op, ast.And) else z3.Or)(
            *[self.visit(part) for part in node.values]
        )

    def visit_Compare(self, node: ast.Compare) -> Any:
        items = [self.visit(node.left), *[self.visit(part) for part in node.comparators]]
        parts = []
        for operator, a, b in zip(node.ops, items, items[1:], strict=False):
            parts.append(
                {
                    ast.Eq: lambda a=a, b=b: a == b,
                    ast.NotEq: lambda a=a, b=b: a != b,
                    ast.Lt: lambda a=a, b=b: a < b,
                    ast.LtE: lambda a=a, b=b: a <= b,
                    ast.Gt: lambda a=a, b=b: a > b,
                    ast.GtE: lambda a=a, b=b: a >= b,
                }[type(operator)]()  # type: ignore[index]
            )
        return z3.And(*parts) if len(parts) > 1 else parts[0]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return z3.If(self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def piecewise(self, parts: list[ast.Tuple]) -> Any:
        pairs = [(self.visit(part.elts[0]), self.visit(part.elts[1])) for part in parts]
        result = pairs.pop()[0]
        for value, condition in reversed(pairs):
            result = z3.If(condition, value, result)
        return result

    def visit_Call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "Piecewise":
            return self.piecewise([part for part in node.args if isinstance(part, ast.Tuple)])
        args = [self.visit(part) for part in node.args]
        if name in ("min", "max", "Min", "Max"):
            result = args[0]
            for other in args[1:]:
                result = z3.If(
                    result <= other if name.lower() == "min" else result >= other, result, other
                )
            return result
        makers = {
            "abs": lambda a: z3.If(a >= 0, a, -a),
            "FloorDiv": self.quotient,
            "Mod": self.remainder,
            "ceildiv": lambda a, b: -self.quotient(-a, b),
            "truncdiv": self.truncated,
            "truncmod": lambda a, b: a - b * self.truncated(a, b),
            "clamp": lambda a, lo, hi: (lambda m: z3.If(m <= hi, m, hi))(z3.If(a >= lo, a, lo)),
            "ite": z3.If,
            "Eq": lambda a, b: a == b,
            "Ne": lambda a, b: a != b,
            "Lt": lambda a, b: a < b,
            "Le": lambda a, b: a <= b,
            "Gt": lambda a, b: a > b,
            "Ge": lambda a, b: a >= b,
            "And": z3.And,
            "Or": z3.Or,
            "Not": z3.Not,
            "implies": z3.Implies,
        }
        return makers[name](*args)


def by_z3(question: Question, limit: int = 3_000_000) -> bool | None:
    """What Z3 says of a question, a fresh solver for each direction: True, False (holds nowhere) or
    None.

    True where nothing satisfies the assumptions.
    """
    reader = _ToZ3()
    query = reader.read(question.query)
    facts = [reader.read(text) for text in question.assume]
    for name in names_in(question.query, *question.assume):
        lo, hi = question.ranges.get(name, (0, None))
        facts += [] if lo is None else [z3.Int(name) >= lo]
        facts += [] if hi is None else [z3.Int(name) <= hi]
    for value, goal in ((True, z3.Not(query)), (False, query)):
        if _impossible([*facts, *reader.defined, goal], limit):
            return value
    return None


def _impossible(conditions: list[Any], limit: int) -> bool:
    solver = z3.Solver()
    solver.set("rlimit", limit)
    solver.add(*conditions)
    return solver.check() == z3.unsat  # type: ignore[no-any-return]


def vacuous(question: Question, limit: int = 3_000_000) -> bool:
    """Whether Z3 shows that nothing satisfies the assumptions and lets every division of the
    question be defined.
    """
    return (
        by_z3(attrs.evolve(question, query=f"not ({question.query})"), limit) is True
        and by_z3(question, limit) is True
    )


def contradicted(
    question: Question, verdict: bool | None, *, window: int = WINDOW, ask_z3: bool = False
) -> str | None:
    """A sentence that shows the verdict to be wrong; None where no oracle objects."""
    if verdict is None:
        return None
    holds, fails = tried(question, window)
    against = fails if verdict else holds
    if against is not None:
        return f"{question} is {verdict}, but at {against} the query is {not verdict}"
    if ask_z3:
        try:
            other = by_z3(question)
        except (TypeError, z3.Z3Exception):  # arithmetic on conditions: Python has it, Z3 has not
            return None
        if other is not None and other is not verdict and not vacuous(question):
            return f"{question} is {verdict}, but Z3 says {other}"
    return None


def all_names(texts: Iterable[str], ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """The names in texts and ranges."""
    return tuple(sorted({*names_in(*texts), *ranges}))
