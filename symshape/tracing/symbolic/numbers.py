"""The nodes inside ``torch.SymInt``, ``SymBool`` and ``SymFloat``, and the same objects as duck-typed sizes.

An :class:`IntNode` plays two parts.  To torch it is a SymNode: C++ and ``torch.SymInt`` call ``add``, ``guard_bool`` …
(protocol checked on torch 2.11 to 2.13: ``torch/csrc/utils/python_symnode.h``, ``torch/fx/experimental/sym_node.py``).
To ``meta_fns`` it is a size: ``+ - * // % == <`` and the methods of ``meta_fns/core/sizes.py``.  In both parts it holds
a term and leaves every decision to its environment.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from guards.terms import arithmetic, boolean, division
from guards.terms.term import Op, Term
from meta_fns.core import layout
from symshape.graph.float_terms import FloatTerm
from symshape.tracing.symbolic.texts import wants_value

if TYPE_CHECKING:
    from symshape.tracing.symbolic.env import ShapeEnv

Message = str | Callable[[], str]


class Node:
    """What every node answers: its kind, its constant if it is one, and that no nested or dynamic ints are here."""

    __slots__ = ("env", "term")
    env: ShapeEnv
    term: Any

    constant = None

    def is_int(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def wrap_int(self, value: int) -> IntNode:
        return self.env.int_node(arithmetic.const(value))

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.env, boolean.boolean(value))

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(self.env, float(value))

    def clone(self) -> Any:
        return self

    def _text(self) -> builtins.str:
        return builtins.str(self.term)

    str = __str__ = __repr__ = _text

    def _graph_repr(self) -> builtins.str:
        """The text that ``torch.SymInt`` and its like give of themselves."""
        return repr(self._value()) if wants_value(depth=2) else self._text()

    def _value(self) -> Any:
        """The number that the program takes it for; guarded."""
        raise NotImplementedError

    @property
    def expr(self) -> Any:
        return self.term

    @property
    def shape_env(self) -> ShapeEnv:
        return self.env

    @property
    def _hint(self) -> Any:
        return None

    @property
    def hint(self) -> Any:
        return self.env.hint(self.term)

    def has_hint(self) -> bool:
        return self.env.hint(self.term) is not None

    def require_hint(self, fallback: Any = None) -> Any:
        hint = self.env.hint(self.term)
        return fallback if hint is None else hint

    maybe_get_hint = hint


def _lift(env: ShapeEnv, other: Any) -> Term | None:
    """Another operand as an integer term of ``env``, or None if it is none."""
    if type(other) is IntNode:
        return other.term
    if type(other) is int:
        return arithmetic.const(other)
    if isinstance(other, torch.SymInt):
        return other.node.term if type(other.node) is IntNode else arithmetic.const(int(other))
    if isinstance(other, bool):
        return arithmetic.const(int(other))
    if type(other) is BoolNode:
        return boolean.ite(other.term, 1, 0)
    return None


def _arithmetic(name: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    function = getattr(arithmetic, name)

    def node_method(self: IntNode, other: IntNode) -> IntNode:
        return self.env.int_node(self.env.combine(function, self.term, other.term))

    def size_operator(self: IntNode, other: Any) -> Any:
        term = _lift(self.env, other)
        return NotImplemented if term is None else self.env.size(self.env.combine(function, self.term, term))

    def reflected(self: IntNode, other: Any) -> Any:
        term = _lift(self.env, other)
        return NotImplemented if term is None else self.env.size(self.env.combine(function, term, self.term))

    return node_method, size_operator, reflected


def _relation(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = getattr(boolean, name)

    def node_method(self: IntNode, other: IntNode) -> BoolNode:
        return BoolNode(self.env, self.env.combine(function, self.term, other.term))

    def size_operator(self: IntNode, other: Any) -> Any:
        term = _lift(self.env, other)
        return NotImplemented if term is None else self.env.condition(self.env.combine(function, self.term, term))

    return node_method, size_operator


def _divisor_checked(name: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Like ``_arithmetic`` for ``//`` and ``%``: a divisor of 0 is an error in Python, so the program depends on it."""
    function = getattr(division, name)

    def divide(env: ShapeEnv, a: Term, b: Term) -> Term:
        if b.op is not Op.CONST and env.evaluate(boolean.is_zero(b)):
            raise ZeroDivisionError(f"integer division or modulo by zero: {a} by {b}")
        return env.combine(function, a, b)

    def node_method(self: IntNode, other: IntNode) -> IntNode:
        return self.env.int_node(divide(self.env, self.term, other.term))

    def size_operator(self: IntNode, other: Any) -> Any:
        term = _lift(self.env, other)
        return NotImplemented if term is None else self.env.size(divide(self.env, self.term, term))

    def reflected(self: IntNode, other: Any) -> Any:
        term = _lift(self.env, other)
        return NotImplemented if term is None else self.env.size(divide(self.env, term, self.term))

    return node_method, size_operator, reflected


class IntNode(Node):
    """An integer term of one environment; at most one node for each term, so ``is`` compares."""

    __slots__ = ("_at_least_one", "_symint")
    term: Term
    scalar_type = int

    def __init__(self, env: ShapeEnv, term: Term) -> None:
        self.env = env
        self.term = term
        self._symint: torch.SymInt | None = None
        self._at_least_one: Any = None

    __hash__ = object.__hash__

    # -- as a size
    add, __add__, __radd__ = _arithmetic("add")
    sub, __sub__, __rsub__ = _arithmetic("sub")
    mul, __mul__, __rmul__ = _arithmetic("mul")
    int_floordiv, __floordiv__, __rfloordiv__ = _divisor_checked("floordiv")
    floordiv = int_floordiv
    mod, __mod__, __rmod__ = _divisor_checked("mod")
    eq, __eq__ = _relation("eq")
    ne, __ne__ = _relation("ne")
    lt, __lt__ = _relation("lt")
    le, __le__ = _relation("le")
    gt, __gt__ = _relation("gt")
    ge, __ge__ = _relation("ge")

    def __neg__(self) -> Any:
        return self.env.size(arithmetic.scale(self.term, -1))

    def __pos__(self) -> IntNode:
        return self

    def __bool__(self) -> bool:
        return self.env.evaluate(boolean.not_(boolean.is_zero(self.term)))

    def __int__(self) -> int:
        return self.int_()

    __index__ = __int__

    def sym_max(self, other: Any) -> Any:
        """``max`` of this and another size, or (from torch) another node."""
        if type(other) is IntNode:
            return self.env.int_node(self.env.maximum(self.term, other.term))
        if type(other) is FloatNode:
            return FloatNode(self.env, _float_term("max", self._as_float(), other.term))
        term = _lift(self.env, other)
        assert term is not None, other
        return self.env.size(self.env.maximum(self.term, term))

    def sym_min(self, other: Any) -> Any:
        """``min`` of this and another size, or (from torch) another node."""
        if type(other) is IntNode:
            return self.env.int_node(self.env.minimum(self.term, other.term))
        if type(other) is FloatNode:
            return FloatNode(self.env, _float_term("min", self._as_float(), other.term))
        term = _lift(self.env, other)
        assert term is not None, other
        return self.env.size(self.env.minimum(self.term, term))

    def at_least_one(self) -> Any:
        """``max(self, 1)``: what a stride is multiplied with."""
        found = self._at_least_one
        if found is None:
            found = self._at_least_one = self.env.size(self.env.maximum(self.term, arithmetic.ONE))
        return found

    @property
    def symint(self) -> torch.SymInt:
        """This node inside a ``torch.SymInt``."""
        found = self._symint
        if found is None:
            found = self._symint = torch.SymInt(self)
        return found

    # -- as a SymNode
    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.term.op is Op.CONST

    def is_symbolic(self) -> bool:
        return self.term.op is not Op.CONST

    def maybe_as_int(self) -> int | None:
        return self.term.value if self.term.op is Op.CONST else None

    @property
    def pytype(self) -> type:
        return int

    def int_(self) -> int:
        return self.env.specialize(self.term)

    _value = int_

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.env.specialize(self.term)

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return float(self.env.specialize(self.term))

    def neg(self) -> IntNode:
        return self.env.int_node(arithmetic.scale(self.term, -1))

    def pos(self) -> IntNode:
        return self

    def abs(self) -> IntNode:
        return self.env.int_node(self.env.maximum(self.term, arithmetic.scale(self.term, -1)))

    def floor(self) -> IntNode:
        return self

    ceil = trunc = floor

    def round(self, ndigits: object = None) -> IntNode:
        return self

    def is_integer(self) -> BoolNode:
        return BoolNode(self.env, boolean.TRUE)

    def sym_sum(self, terms: Sequence[IntNode]) -> IntNode:
        return self.env.int_node(arithmetic.total(node.term for node in terms))

    def pow(self, other: IntNode) -> Any:
        return self.pow_by_natural(other)

    def pow_by_natural(self, other: IntNode) -> IntNode:
        exponent = self.env.specialize(other.term)
        if exponent < 0:
            raise ValueError(f"{self.term} ** {exponent}: a negative power of a size is no integer")
        return self.env.int_node(arithmetic.prod([self.term] * exponent))

    def _as_float(self) -> FloatTerm | float:
        return float(self.term.value) if self.term.op is Op.CONST else FloatTerm("from_int", (self.term,))

    def sym_float(self) -> FloatNode:
        return FloatNode(self.env, self._as_float())

    def int_truediv(self, other: IntNode) -> FloatNode:
        if other.term.op is not Op.CONST and self.env.evaluate(boolean.is_zero(other.term)):
            raise ZeroDivisionError(f"division by zero: {self.term} by {other.term}")
        return FloatNode(self.env, _float_term("truediv", self.term, other.term))

    truediv = int_truediv

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return BoolNode(self.env, boolean.not_(boolean.is_zero(self.term))).sym_ite(then, otherwise)

    def sym_and(self, other: Any) -> Any:
        return self.env.int_node(arithmetic.const(self.int_() & other.int_()))

    and_ = sym_and

    def sym_or(self, other: Any) -> Any:
        return self.env.int_node(arithmetic.const(self.int_() | other.int_()))

    or_ = sym_or

    def lshift(self, other: IntNode) -> IntNode:
        return self.env.int_node(arithmetic.scale(self.term, 1 << self.env.specialize(other.term)))

    def rshift(self, other: IntNode) -> IntNode:
        return self.env.int_node(division.floordiv(self.term, 1 << self.env.specialize(other.term)))

    def bitwise_and(self, other: IntNode) -> IntNode:
        return self.env.int_node(arithmetic.const(self.int_() & other.int_()))

    def bitwise_or(self, other: IntNode) -> IntNode:
        return self.env.int_node(arithmetic.const(self.int_() | other.int_()))

    def bitwise_xor(self, other: IntNode) -> IntNode:
        return self.env.int_node(arithmetic.const(self.int_() ^ other.int_()))

    def _contiguity(self, sizes: Any, strides: Any, order: Callable[[int], tuple[int, ...] | None]) -> BoolNode:
        dims = order(len(sizes))
        return BoolNode(self.env, boolean.FALSE if dims is None else self.env.contiguous(sizes, strides, dims))

    def is_contiguous(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: tuple(range(n)))

    def is_channels_last_contiguous_2d(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: (0, 2, 3, 1) if n == 4 else None)

    def is_channels_last_contiguous_3d(self, sizes: Any, strides: Any) -> BoolNode:
        return self._contiguity(sizes, strides, lambda n: (0, 2, 3, 4, 1) if n == 5 else None)

    def is_channels_last_strides_2d(self, sizes: Any, strides: Any) -> BoolNode:
        return self.wrap_bool(len(sizes) == 4 and layout.is_channels_last_strides(sizes, strides))

    def is_channels_last_strides_3d(self, sizes: Any, strides: Any) -> BoolNode:
        return self.wrap_bool(len(sizes) == 5 and layout.is_channels_last_strides(sizes, strides))

    def is_non_overlapping_and_dense(self, sizes: Any, strides: Any) -> BoolNode:
        return self.is_contiguous(sizes, strides)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


class BoolNode(Node):
    """A condition of one environment: ``bool()`` asks and guards, ``known()`` never guards, ``check()`` asserts."""

    __slots__ = ()
    term: Term
    scalar_type = bool

    def __init__(self, env: ShapeEnv, term: Term) -> None:
        self.env = env
        self.term = term

    # -- as a condition on sizes
    def __bool__(self) -> bool:
        return self.env.evaluate(self.term)

    def known(self) -> bool:
        """Whether the condition holds for certain; records nothing."""
        return self.env.known(self.term)

    def check(self, message: Message = "") -> None:
        """Like ``torch._check``: the program is wrong where this does not hold."""
        self.env.check(self.term, message)

    def __and__(self, other: Any) -> Any:
        return self.env.condition(boolean.and_(self.term, _condition(other)))

    def __or__(self, other: Any) -> Any:
        return self.env.condition(boolean.or_(self.term, _condition(other)))

    def __invert__(self) -> Any:
        return self.env.condition(boolean.not_(self.term))

    __rand__ = __and__
    __ror__ = __or__

    # -- as a SymNode
    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.term is boolean.TRUE or self.term is boolean.FALSE

    def maybe_as_bool(self) -> bool | None:
        return self.term is boolean.TRUE if self.is_constant() else None

    @property
    def pytype(self) -> type:
        return bool

    def bool_(self) -> bool:
        return self.env.evaluate(self.term)

    _value = bool_

    def int_(self) -> int:
        return int(self.env.evaluate(self.term))

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.env.evaluate(self.term)

    guard_size_oblivious = guard_bool

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        """``torch._check``, whose message and kind of error only its own frame knows."""
        message, kind = _check_in_progress()
        if kind is not RuntimeError:
            return self.env.expect_true(self.term, message)
        self.env.check(self.term, message)
        return True

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        return self.env.guard_or(self.term, False)

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.guard_or(self.term, True)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.known(self.term)

    def sym_and(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, boolean.and_(self.term, other.term))

    and_ = sym_and

    def sym_or(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, boolean.or_(self.term, other.term))

    or_ = sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.env, boolean.not_(self.term))

    def eq(self, other: Any) -> BoolNode:
        a, b = self.term, _condition(other)
        both = boolean.or_(boolean.and_(a, b), boolean.and_(boolean.not_(a), boolean.not_(b)))
        return BoolNode(self.env, both)

    def ne(self, other: Any) -> BoolNode:
        return self.eq(other).sym_not()

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        if isinstance(then, BoolNode):
            term = boolean.or_(
                boolean.and_(self.term, then.term), boolean.and_(boolean.not_(self.term), otherwise.term)
            )
            return BoolNode(self.env, term)
        if isinstance(then, IntNode) and isinstance(otherwise, IntNode):
            return self.env.int_node(self.env.ite(self.term, then.term, otherwise.term))
        return then if self.env.evaluate(self.term) else otherwise

    def sym_float(self) -> FloatNode:
        return IntNode(self.env, boolean.ite(self.term, 1, 0)).sym_float()


def _check_in_progress() -> tuple[Message, type | None]:
    """The message and the error of the ``torch._check`` that is asking, which torch does not hand on (2.11 to 2.13)."""
    frame = sys._getframe(2)
    for _ in range(4):
        if frame.f_code is torch._check_with.__code__:
            return frame.f_locals.get("message") or "", frame.f_locals.get("error_type")
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "", None


def _condition(value: Any) -> Term:
    if isinstance(value, BoolNode):
        return value.term
    if isinstance(value, torch.SymBool):
        return _condition(value.node)
    if isinstance(value, IntNode):
        return boolean.not_(boolean.is_zero(value.term))
    return boolean.boolean(bool(value))


def _float_term(op: str, *args: Any) -> FloatTerm | float:
    plain = [arg.value if isinstance(arg, Term) and arg.op is Op.CONST else arg for arg in args]
    term = FloatTerm(op, tuple(float(a) if isinstance(a, int) and op != "truediv" else a for a in plain))
    if all(isinstance(arg, (int, float)) for arg in plain):
        return term.evaluate({})
    return FloatTerm(op, tuple(arithmetic.const(a) if isinstance(a, int) else a for a in plain))


def _float_method(op: str) -> Callable[..., Any]:
    def method(self: FloatNode, *others: Any) -> FloatNode:
        operands = [other.term if isinstance(other, FloatNode) else other._as_float() for other in others]
        return FloatNode(self.env, _float_term(op, self.term, *operands))

    return method


class FloatNode(Node):
    """A float that depends on sizes or on data; conditions on it become integer ones where it is an exact ratio."""

    __slots__ = ()
    term: FloatTerm | float
    scalar_type = float

    def __init__(self, env: ShapeEnv, term: FloatTerm | float) -> None:
        self.env = env
        self.term = term

    add, sub, mul, mod = (_float_method(op) for op in ("add", "sub", "mul", "mod"))
    float_truediv = truediv = _float_method("truediv")
    float_pow = pow = _float_method("pow")
    sym_max, sym_min = _float_method("max"), _float_method("min")
    neg, abs = _float_method("neg"), _float_method("abs")
    sym_sqrt = sqrt = _float_method("sqrt")
    sym_cos, sym_sin, sym_exp, sym_log, sym_log2 = (_float_method(op) for op in ("cos", "sin", "exp", "log", "log2"))

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.term, float)

    def maybe_as_float(self) -> float | None:
        return self.term if isinstance(self.term, float) else None

    @property
    def pytype(self) -> type:
        return float

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return self.env.specialize_float(self.term)

    float_ = _value = guard_float

    def bool_(self) -> bool:
        return not self.eq(self.wrap_float(0.0)).bool_()

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.guard_float())

    def int_(self) -> int:
        return int(self.guard_float())

    def sym_float(self) -> FloatNode:
        return self

    def pos(self) -> FloatNode:
        return self

    def _ratio(self) -> tuple[Term, int] | None:
        return self.term.ratio() if isinstance(self.term, FloatTerm) else None

    def floor(self) -> IntNode:
        ratio = self._ratio()
        if ratio is None:
            return self.wrap_int(math.floor(self.guard_float()))
        return self.env.int_node(division.floordiv(*ratio))

    def ceil(self) -> IntNode:
        ratio = self._ratio()
        if ratio is None:
            return self.wrap_int(math.ceil(self.guard_float()))
        return self.env.int_node(arithmetic.scale(division.floordiv(arithmetic.scale(ratio[0], -1), ratio[1]), -1))

    def trunc(self) -> IntNode:
        ratio = self._ratio()
        if ratio is None:
            return self.wrap_int(math.trunc(self.guard_float()))
        return self.floor() if self.env.evaluate(boolean.ge(ratio[0], 0)) else self.ceil()

    def round(self, ndigits: Any = None) -> Any:
        value = round(self.guard_float(), ndigits.int_() if isinstance(ndigits, IntNode) else ndigits)
        return self.wrap_int(value) if isinstance(value, int) else self.wrap_float(value)

    def is_integer(self) -> BoolNode:
        ratio = self._ratio()
        if ratio is None:
            return self.wrap_bool(self.guard_float().is_integer())
        return BoolNode(self.env, boolean.eq(division.mod(*ratio), 0))

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return then if self.guard_float() else otherwise

    def _compare(self, name: str, other: Any) -> BoolNode:
        other_term = other.term if isinstance(other, FloatNode) else other._as_float()
        left = self._ratio()
        right = other_term.ratio() if isinstance(other_term, FloatTerm) else _constant_ratio(other_term)
        if left is None and isinstance(self.term, float):
            left = _constant_ratio(self.term)
        relation = getattr(boolean, name)
        if left is not None and right is not None:
            return BoolNode(
                self.env, relation(arithmetic.scale(left[0], right[1]), arithmetic.scale(right[0], left[1]))
            )
        a, b = self.env.specialize_float(self.term), self.env.specialize_float(other_term)
        return self.wrap_bool(_COMPARE[name](a, b))

    def eq(self, other: Any) -> BoolNode:
        return self._compare("eq", other)

    def ne(self, other: Any) -> BoolNode:
        return self._compare("ne", other)

    def lt(self, other: Any) -> BoolNode:
        return self._compare("lt", other)

    def le(self, other: Any) -> BoolNode:
        return self._compare("le", other)

    def gt(self, other: Any) -> BoolNode:
        return self._compare("gt", other)

    def ge(self, other: Any) -> BoolNode:
        return self._compare("ge", other)

    def _as_float(self) -> FloatTerm | float:
        return self.term


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _constant_ratio(value: float) -> tuple[Term, int] | None:
    """A float as an exact ratio, to compare with a rounded quotient: only where rounding cannot change the answer."""
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    return (arithmetic.const(numerator), denominator) if denominator <= 2**10 and abs(numerator) < 2**53 else None
