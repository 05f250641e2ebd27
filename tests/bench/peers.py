"""Other deciders of questions about sizes, asked in their own words: PyTorch, JAX, tinygrad, TVM,
SymPy, Z3.

A question is text; it is read once, outside of what is timed, into code that calls the operators of
a peer.  Each answer starts in a fresh environment of the peer: symbols with their ranges, then the
assumptions, then the question. What a peer cannot express, or refuses to decide, is no answer
(None).

JAX's dimensions are at least 1 and tinygrad's ranges are finite: other ranges are written as
`d - 1` and the like for JAX, and end at 2**40 for tinygrad.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import operator
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from types import CodeType
from typing import Any, TypeGuard

import attrs

from tests.oracles import Question, by_z3, names_in, tried

FAR = 2**40  # where a range has to end


class Unsupported(Exception):
    """A peer has no word for something in the question."""


# -- text to calls ---------------------------------------------------------------------------------


class _Calls(ast.NodeTransformer):
    """Rewrites what peers spell differently into calls of few functions:
    `floordiv, mod, minimum, maximum, ite`, ...
    """

    def call(self, name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def many(self, name: str, args: Sequence[ast.expr]) -> ast.expr:
        return reduce(lambda a, b: self.call(name, a, b), args)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.FloorDiv):
            return self.call("floordiv", left, right)
        if isinstance(node.op, ast.Mod):
            return self.call("mod", left, right)
        if isinstance(
            node.op, ast.Pow | ast.LShift | ast.RShift | ast.BitAnd | ast.BitOr | ast.BitXor
        ):
            number = _constant(node.right)
            if isinstance(node.op, ast.Pow):
                return reduce(lambda a, b: ast.BinOp(a, ast.Mult(), b), [left] * number)
            if isinstance(node.op, ast.BitAnd):
                return self.masked(left, number)
            # x | c == x + c - (x & c), x ^ c == x | c - (x & c)
            if isinstance(node.op, ast.BitOr | ast.BitXor):
                both = ast.BinOp(
                    ast.Constant(1 + isinstance(node.op, ast.BitXor)),
                    ast.Mult(),
                    self.masked(left, number),
                )
                return ast.BinOp(ast.BinOp(left, ast.Add(), ast.Constant(number)), ast.Sub(), both)
            if isinstance(node.op, ast.RShift):
                return self.call("floordiv", left, ast.Constant(2**number))
            return ast.BinOp(left, ast.Mult(), ast.Constant(2**number))
        return ast.BinOp(left, node.op, right)

    def masked(self, a: ast.expr, mask: int) -> ast.expr:
        """``a & mask``: each run of bits in the mask is a remainder of a quotient."""
        if mask < 0:
            return ast.BinOp(a, ast.Sub(), self.masked(a, ~mask))
        parts: list[ast.expr] = []
        for run in re.finditer("1+", f"{mask:b}"[::-1]):
            low, high = (ast.Constant(2**bit) for bit in run.span())
            inner = a if low.value == 1 else self.call("floordiv", a, low)
            part: ast.expr = self.call("mod", inner, ast.Constant(high.value // low.value))
            parts.append(part if low.value == 1 else ast.BinOp(part, ast.Mult(), low))
        return reduce(lambda x, y: ast.BinOp(x, ast.Add(), y), parts) if parts else ast.Constant(0)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        return (
            self.call("not_", operand)
            if isinstance(node.op, ast.Not)
            else ast.UnaryOp(node.op, operand)
        )

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return self.many(
            "and_" if isinstance(node.op, ast.And) else "or_",
            [self.visit(part) for part in node.values],
        )

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        items = [self.visit(node.left), *map(self.visit, node.comparators)]
        names = [type(op).__name__.lower() for op in node.ops]
        return self.many(
            "and_", [self.call(n, a, b) for n, a, b in zip(names, items, items[1:], strict=False)]
        )

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return self.call(
            "ite", self.visit(node.test), self.visit(node.body), self.visit(node.orelse)
        )

    def truncated(self, a: ast.expr, b: ast.expr) -> ast.expr:
        zero = ast.Constant(0)
        same = self.call(
            "or_",
            self.call("and_", self.call("gte", a, zero), self.call("gt", b, zero)),
            self.call("and_", self.call("lt", a, zero), self.call("lte", b, zero)),
        )
        against = ast.UnaryOp(ast.USub(), self.call("floordiv", ast.UnaryOp(ast.USub(), a), b))
        return self.call("ite", same, self.call("floordiv", a, b), against)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "Piecewise":
            pairs = [part.elts for part in node.args if isinstance(part, ast.Tuple)]
            result = self.visit(pairs.pop()[0])
            for value, condition in reversed(pairs):
                result = self.call("ite", self.visit(condition), self.visit(value), result)
            return result  # type: ignore[no-any-return]
        args = [self.visit(part) for part in node.args]
        if name in ("min", "max", "Min", "Max"):
            return self.many({"min": "minimum", "max": "maximum"}[name.lower()], args)
        if name in ("And", "Or"):
            return self.many(name.lower() + "_", args)
        makers: dict[str, Callable[..., ast.expr]] = {
            "abs": lambda a: self.call("maximum", a, ast.UnaryOp(ast.USub(), a)),
            "ceildiv": lambda a, b: ast.UnaryOp(
                ast.USub(), self.call("floordiv", ast.UnaryOp(ast.USub(), a), b)
            ),
            "truncdiv": self.truncated,
            "truncmod": lambda a, b: ast.BinOp(
                a, ast.Sub(), ast.BinOp(b, ast.Mult(), self.truncated(a, b))
            ),
            "clamp": lambda a, lo, hi: self.call("minimum", self.call("maximum", a, lo), hi),
            "implies": lambda a, b: self.call("or_", self.call("not_", a), b),
        }
        if name in makers:
            return makers[name](*args)
        renamed = {
            "FloorDiv": "floordiv",
            "Mod": "mod",
            "Ne": "noteq",
            "Le": "lte",
            "Ge": "gte",
            "Not": "not_",
        }
        return self.call(renamed.get(name, name.lower()), *args)


def _constant(node: ast.expr) -> int:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_constant(node.operand)
    found = ast.literal_eval(node)
    assert type(found) is int
    return found


def calls(text: str) -> str:
    """The text with the calls of :class:`_Calls`.

    >>> calls("(s0 + 7) // 8 * 8 >= s0 and s0 % 2 == 1")
    'and_(gte(floordiv(s0 + 7, 8) * 8, s0), eq(mod(s0, 2), 1))'
    """
    return ast.unparse(ast.fix_missing_locations(_Calls().visit(ast.parse(text, mode="eval"))))


@attrs.frozen
class Prepared:
    """A question, read: code that calls the operators of a peer.

    Attributes:
        question: the question.
        names: its symbols.
        query: code of the query.
        assume: code of each assumption.
        texts: the same as text, the query first.
        hints: a point at which the assumptions hold, for peers that work with example values; None:
            none was found.
    """

    question: Question
    names: tuple[str, ...]
    query: CodeType
    assume: tuple[CodeType, ...]
    texts: tuple[str, ...]
    hints: Mapping[str, int] | None

    @classmethod
    def of(cls, question: Question, hints: Mapping[str, int] | None = None) -> Prepared:
        """Reads a question."""
        texts = tuple(calls(text) for text in (question.query, *question.assume))
        query, *assume = [compile(text, "<question>", "eval") for text in texts]
        names = names_in(question.query, *question.assume)
        if hints is None:
            together = " and ".join(f"({text})" for text in question.assume) or "True"
            hints, _ = tried(
                attrs.evolve(question, query=together, assume=()), 12 if len(names) < 4 else 5
            )
            hints = (
                {**{name: _start(question, name) for name in names}, **hints}
                if hints is not None
                else None
            )
        return cls(question, names, query, tuple(assume), texts, hints)

    def range(self, name: str) -> tuple[int | None, int | None]:
        """The range of a symbol: a size where the question says nothing."""
        return self.question.ranges.get(name, (0, None))


def _start(question: Question, name: str) -> int:
    lo, hi = question.ranges.get(name, (0, None))
    return (
        lo + 3
        if lo is not None and (hi is None or hi - lo >= 3)
        else lo
        if lo is not None
        else hi or 0
    )


# -- peers -----------------------------------------------------------------------------------------


class Peer:
    """One decider.  Subclasses give the operators (``space``) and what an answer takes."""

    name: str
    version = ""

    def space(self) -> dict[str, Any]:
        """The operators by the names that :func:`calls` uses; by default what Python's operators
        do.
        """
        return {
            "__builtins__": {},
            "eq": operator.eq,
            "noteq": operator.ne,
            "lt": operator.lt,
            "lte": operator.le,
            "gt": operator.gt,
            "gte": operator.ge,
            "floordiv": operator.floordiv,
            "mod": operator.mod,
        }

    def answer(self, asked: Prepared) -> bool | None:
        """True: the query holds for all values; False: for none; None: neither was found."""
        raise NotImplementedError


def _unsupported(*_: Any) -> Any:
    raise Unsupported


def _kleene_and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _kleene_or(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


class Torch(Peer):
    """PyTorch's ShapeEnv, asked with `statically_known_true`."""

    def __init__(self, *, backed: bool) -> None:
        import torch
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental import symbolic_shapes
        from torch.utils._sympy.numbers import int_oo

        self.torch, self.shapes, self.source = torch, symbolic_shapes, ConstantSource
        self.backed, self.far = backed, int_oo
        self.name = f"torch ShapeEnv ({'backed' if backed else 'unbacked'})"
        self.version = torch.__version__
        self.operators = super().space() | {
            "minimum": torch.sym_min,
            "maximum": torch.sym_max,
            "ite": torch.sym_ite,
            "and_": torch.sym_and if hasattr(torch, "sym_and") else symbolic_shapes.sym_and,
            "or_": torch.sym_or if hasattr(torch, "sym_or") else symbolic_shapes.sym_or,
            "not_": torch.sym_not,
        }

    def space(self) -> dict[str, Any]:
        return self.operators

    def environment(self) -> Any:
        """A ShapeEnv that specialises nothing."""
        return self.shapes.ShapeEnv(specialize_zero_one=False, duck_shape=False)

    def symbol(self, env: Any, name: str, hint: int, *, size: bool = True) -> Any:
        """A SymInt with an example value: a size, which for PyTorch is at least 1 then, or any
        integer.
        """
        source, dynamic = self.source(name), self.shapes.DimDynamic.DYNAMIC
        if size:
            made = env.create_symbol(hint, source, dynamic)
        else:
            made = env.create_unspecified_symbol(hint, source, dynamic)
        return env.create_symintnode(made, hint=hint, source=source)

    def unbacked(self, env: Any, low: int | None, high: int | None) -> Any:
        """A SymInt without an example value."""
        made = env.create_unbacked_symint()
        least = -self.far if low is None else low
        most = self.far if high is None else high
        env.constrain_symbol_range(made.node.expr, compiler_min=least, compiler_max=most)
        return made

    def answer(self, asked: Prepared) -> bool | None:
        env = self.environment()
        known: dict[str, Any] = {}
        if self.backed and asked.hints is None:
            return None
        for name in asked.names:
            low, high = asked.range(name)
            if self.backed:
                assert asked.hints is not None
                known[name] = self.symbol(
                    env, name, asked.hints[name], size=low is not None and low >= 1
                )
                within = (low is None or bool(known[name] >= low)) and (
                    high is None or bool(known[name] <= high)
                )
                assert within  # asked as guards: from here on the range is known
            else:
                known[name] = self.unbacked(env, low, high)
        for assumption in asked.assume:
            condition = eval(assumption, self.operators, known)
            if self.backed:
                assert condition, "the assumptions hold at the example values"
            else:
                self.torch._check(condition)
        query = eval(asked.query, self.operators, known)
        if self.shapes.statically_known_true(query):
            return True
        return False if self.shapes.statically_known_true(self.torch.sym_not(query)) else None


class Jax(Peer):
    """JAX's symbolic dimensions, which answer comparisons or call them inconclusive."""

    name = "JAX symbolic dimensions"

    def __init__(self) -> None:
        import jax
        from jax import export
        from jax._src import core

        self.export, self.inconclusive, self.version = (
            export,
            core.InconclusiveDimensionOperation,
            jax.__version__,
        )
        self.operators = {
            "__builtins__": {},
            "eq": self.equal,
            "noteq": lambda a, b: self.inverted(self.equal(a, b)),
            "lt": lambda a, b: self.inverted(self.at_least(a, b)),
            "lte": lambda a, b: self.at_least(b, a),
            "gt": lambda a, b: self.inverted(self.at_least(b, a)),
            "gte": self.at_least,
            "floordiv": operator.floordiv,
            "mod": operator.mod,
            "minimum": core.min_dim,
            "maximum": core.max_dim,
            "and_": _kleene_and,
            "or_": _kleene_or,
            "not_": self.inverted,
            "ite": self.ite,
        }

    def at_least(self, a: Any, b: Any) -> bool | None:
        try:
            return bool(a >= b)
        except self.inconclusive:
            return None
        except (
            RecursionError
        ):  # JAX 0.10 loops where an assumed equation leads back to its own left side
            raise Unsupported from None

    def equal(self, a: Any, b: Any) -> bool | None:
        """Whether they are equal; JAX's own `==` calls False what it does not know."""
        if a is None or b is None or type(a) is bool or type(b) is bool:  # truths
            return None if a is None or b is None else bool(a == b)
        if a == b:
            return True
        return False if self.at_least(a, b + 1) or self.at_least(b, a + 1) else None

    @staticmethod
    def inverted(a: bool | None) -> bool | None:
        return None if a is None else not a

    @staticmethod
    def ite(condition: bool | None, then: Any, otherwise: Any) -> Any:
        if condition is None:
            raise Unsupported
        return then if condition else otherwise

    def space(self) -> dict[str, Any]:
        return self.operators

    def spelled(self, name: str, low: int | None, high: int | None) -> tuple[str, list[str]]:
        """The symbol in terms of dimensions, which are at least 1; and constraints on them."""
        if low is None and high is None:
            return f"({name}_p - {name}_n)", []
        if low is None:
            return f"({high + 1} - {name})", []  # type: ignore[operator]
        shift = low - 1
        text = (
            name if shift == 0 else f"({name} + {shift})" if shift > 0 else f"({name} - {-shift})"
        )
        return text, [] if high is None else [f"{name} <= {high - shift}"]

    def constraint(self, text: str, spelled: Mapping[str, str]) -> str | None:
        """An assumption as JAX writes constraints; None where it has no such form."""
        call = ast.parse(text, mode="eval").body
        names = {"eq": "==", "gte": ">=", "lte": "<=", "gt": ">", "lt": "<"}
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Name)
            or call.func.id not in names
        ):
            return None
        words = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - {call.func.id}
        if words & {*names, "noteq", "ite", "and_", "or_", "not_"}:
            return None
        left, right = (_renamed(part, spelled) for part in call.args)
        if call.func.id in ("gt", "lt"):
            left, right = (left, right) if call.func.id == "gt" else (right, left)
            return f"{left} >= {right} + 1"
        return f"{left} {names[call.func.id]} {right}"

    def environment(self, asked: Prepared) -> dict[str, Any]:
        """The symbols, in a scope that knows the assumptions as far as it can be told them."""
        spelled: dict[str, str] = {}
        constraints: list[str] = []
        for name in asked.names:
            spelled[name], bounds = self.spelled(name, *asked.range(name))
            constraints += bounds
        constraints += [
            found
            for text in asked.texts[1:]
            if (found := self.constraint(text, spelled)) is not None
        ]
        names = sorted(
            {
                node.id
                for text in spelled.values()
                for node in ast.walk(ast.parse(text))
                if _named(node)
            }
        )
        if not names:
            return {}
        made = self.export.symbolic_shape(", ".join(names), scope=self.scope(constraints))
        dimensions = dict(zip(names, made, strict=True))
        return {
            name: eval(text, {"__builtins__": {}}, dimensions) for name, text in spelled.items()
        }

    def scope(self, constraints: Sequence[str]) -> Any:
        """A scope with those constraints that JAX takes."""
        try:
            return self.export.SymbolicScope(constraints)
        except ValueError:
            taken: list[str] = []
            for constraint in constraints:
                with contextlib.suppress(ValueError):
                    self.export.SymbolicScope([*taken, constraint])
                    taken.append(constraint)
            return self.export.SymbolicScope(taken)

    def answer(self, asked: Prepared) -> bool | None:
        return eval(asked.query, self.operators, self.environment(asked))  # type: ignore[no-any-return]


def _named(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _renamed(node: ast.expr, spelled: Mapping[str, str]) -> str:
    class Rename(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.expr:
            assert isinstance(call.func, ast.Name)
            name = {"minimum": "min", "maximum": "max"}.get(call.func.id, call.func.id)
            return ast.Call(
                ast.Name(name, ast.Load()), [self.visit(part) for part in call.args], []
            )

        def visit_Name(self, name: ast.Name) -> ast.expr:
            return ast.parse(spelled[name.id], mode="eval").body

    return ast.unparse(
        ast.fix_missing_locations(Rename().visit(ast.parse(ast.unparse(node), mode="eval")))
    )


class Tinygrad(Peer):
    """tinygrad's symbolic simplifier."""

    name = "tinygrad"

    def __init__(self) -> None:
        from importlib.metadata import version

        from tinygrad.uop import symbolic
        from tinygrad.uop.ops import Ops, UOp

        self.uop, self.ops, self.given = UOp, Ops, symbolic.uop_given_valid
        self.version = version("tinygrad")
        self.operators = {
            "__builtins__": {},
            "eq": lambda a, b: self.lift(a).eq(b),
            "noteq": lambda a, b: self.lift(a).ne(b),
            "lt": lambda a, b: self.lift(a) < b,
            "lte": lambda a, b: self.lift(a) <= b,
            "gt": lambda a, b: self.lift(a) > b,
            "gte": lambda a, b: self.lift(a) >= b,
            "floordiv": lambda a, b: self.lift(a) // b,
            "mod": lambda a, b: self.lift(a) % b,
            "minimum": lambda a, b: self.lift(a).minimum(b),
            "maximum": lambda a, b: self.lift(a).maximum(b),
            "and_": operator.and_,
            "or_": operator.or_,
            "not_": lambda a: a.logical_not(),
            "ite": lambda condition, a, b: condition.where(a, b),
        }

    def lift(self, value: Any) -> Any:
        return (
            self.uop.const_like(self.uop.variable("c", 0, 1), value)
            if isinstance(value, int)
            else value
        )

    def space(self) -> dict[str, Any]:
        return self.operators

    def answer(self, asked: Prepared) -> bool | None:
        known = {}
        for name in asked.names:
            low, high = asked.range(name)
            known[name] = self.uop.variable(
                name, -FAR if low is None else low, FAR if high is None else high
            )
        query = eval(asked.query, self.operators, known)
        found = query.simplify()
        if asked.assume and found.vmin != found.vmax:
            valid = reduce(
                operator.and_, [eval(text, self.operators, known) for text in asked.assume]
            )
            given = self.given(valid, found)
            found = (found if given is None else given).simplify()
        return bool(found.vmin) if found.vmin == found.vmax else None


class Tvm(Peer):
    """TVM's arithmetic analyzer, alone or with the Z3 that it can be built with."""

    def __init__(self, *, z3: bool) -> None:
        import tvm

        try:
            tir, sym = importlib.import_module("tvm.tirx"), importlib.import_module("tvm.sym")
        except ModuleNotFoundError:
            tir, sym = importlib.import_module("tvm.tir"), importlib.import_module("tvm.arith")
        self.tir, self.sym, self.version = tir, sym, tvm.__version__
        self.name = "TVM analyzer and Z3" if z3 else "TVM analyzer"
        self.strength = sym.ProofStrength.SYMBOLIC_BOUND if z3 else sym.ProofStrength.DEFAULT
        if z3 and not sym.Analyzer().is_z3_enabled:
            raise ModuleNotFoundError("this TVM is built without Z3")

        def lifted(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
            return lambda a, b: make(self.lift(a), self.lift(b))

        self.operators = super().space() | {
            "eq": lifted(tir.EQ),
            "noteq": lifted(tir.NE),
            "lt": lifted(tir.LT),
            "lte": lifted(tir.LE),
            "gt": lifted(tir.GT),
            "gte": lifted(tir.GE),
            "floordiv": lifted(tir.floordiv),
            "mod": lifted(tir.floormod),
            "minimum": lifted(tir.min),
            "maximum": lifted(tir.max),
            "and_": tir.And,
            "or_": tir.Or,
            "not_": tir.Not,
            "ite": lambda condition, a, b: tir.Select(condition, self.lift(a), self.lift(b)),
        }

    def lift(self, value: Any) -> Any:
        return self.tir.IntImm("int64", value) if type(value) is int else value

    def space(self) -> dict[str, Any]:
        return self.operators

    def answer(self, asked: Prepared) -> bool | None:
        analyzer = self.sym.Analyzer()
        bound = self.sym.ConstIntBound
        known = {name: self.tir.Var(name, "int64") for name in asked.names}
        for name, variable in known.items():
            low, high = asked.range(name)
            limits = bound(
                bound.NEG_INF if low is None else low, bound.POS_INF if high is None else high
            )
            analyzer.update(variable, limits)
        query = eval(asked.query, self.operators, known)
        with contextlib.ExitStack() as scopes:
            for text in asked.assume:
                scopes.enter_context(analyzer.constraint_scope(eval(text, self.operators, known)))
            if analyzer.can_prove(query, self.strength):
                return True
            return False if analyzer.can_prove(self.tir.Not(query), self.strength) else None


class Sympy(Peer):
    """SymPy: relations of integer symbols (shifted to start at 0 or 1), simplified; assumed
    equations are solved.
    """

    name = "SymPy"

    def __init__(self) -> None:
        import sympy

        self.sympy, self.version = sympy, sympy.__version__
        self.operators = {
            "__builtins__": {},
            "eq": sympy.Eq,
            "noteq": sympy.Ne,
            "lt": sympy.Lt,
            "lte": sympy.Le,
            "gt": sympy.Gt,
            "gte": sympy.Ge,
            "floordiv": lambda a, b: sympy.floor(sympy.Rational(1) * a / b),
            "mod": lambda a, b: sympy.Mod(a, b),
            "minimum": sympy.Min,
            "maximum": sympy.Max,
            "and_": sympy.And,
            "or_": sympy.Or,
            "not_": sympy.Not,
            "ite": lambda condition, a, b: sympy.Piecewise((a, condition), (b, True)),
        }

    def space(self) -> dict[str, Any]:
        return self.operators

    def symbol(self, name: str, low: int | None, high: int | None) -> Any:
        if low is None and high is None:
            return self.sympy.Symbol(name, integer=True)
        positive = low is not None and low >= 1
        base = self.sympy.Symbol(
            name, integer=True, **({"positive": True} if positive else {"nonnegative": True})
        )
        return base + (low - positive) if low is not None else high - base

    def answer(self, asked: Prepared) -> bool | None:
        known = {name: self.symbol(name, *asked.range(name)) for name in asked.names}
        query = eval(asked.query, self.operators, known)
        for text in asked.assume:
            assumed = eval(text, self.operators, known)
            if isinstance(assumed, self.sympy.Eq) and isinstance(query, self.sympy.Basic):
                for symbol in sorted(assumed.free_symbols, key=str):
                    found = self.sympy.solve(assumed, symbol, dict=True)
                    if len(found) == 1:
                        query = query.subs(found[0])
                        break
        for step in (lambda q: q, self._difference, self.sympy.simplify):
            query = step(query)
            if query in (True, False, self.sympy.true, self.sympy.false):
                return bool(query)
        return None

    def _difference(self, query: Any) -> Any:
        """A relation with everything on one side, whose sign SymPy may know."""
        if not isinstance(query, self.sympy.core.relational.Relational):
            return query
        return query.func(self.sympy.simplify(query.lhs - query.rhs), 0)


class Z3(Peer):
    """Z3 alone, one fresh solver for each direction, with a deterministic limit (about 2 s)."""

    name = "Z3"

    def __init__(self) -> None:
        import z3

        self.version = z3.get_version_string()

    def answer(self, asked: Prepared) -> bool | None:
        return by_z3(asked.question, 6_000_000)


def all_peers() -> tuple[list[Peer], list[str]]:
    """The peers that can be imported, and a sentence for each that cannot."""
    made: list[Peer] = []
    absent: list[str] = []
    makers: list[tuple[str, Callable[[], Peer]]] = [
        ("Z3", Z3),
        ("TVM and Z3", lambda: Tvm(z3=True)),
        ("TVM", lambda: Tvm(z3=False)),
        ("JAX", Jax),
        ("tinygrad", Tinygrad),
        ("torch", lambda: Torch(backed=True)),
        ("torch", lambda: Torch(backed=False)),
        ("SymPy", Sympy),
    ]
    for name, make in makers:
        try:
            made.append(make())
        except ImportError as error:
            absent.append(f"{name} is not here: {error}")
    return made, absent


class OutOfTime(Exception):
    """A peer took longer than it was given."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends what runs inside after some seconds, where Python gets to look: main thread, no long
    call into C.
    """

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
