"""Floats that depend on sizes or on data: the node inside ``torch.SymFloat``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from guards.terms import arithmetic, boolean, division
from guards.terms.term import Term
from symshape.errors import Reason, UnsupportedError
from symshape.graph.float_rounding import LARGEST, UNKNOWN, Monotone, monotone, rounded_ratio
from symshape.graph.float_terms import FloatTerm, float_term
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.environment import Environment
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.nodes.node import Node

# -- Comparisons of floats that are computed from sizes, as conditions on the sizes.
COMPARISONS: dict[str, tuple[Callable[[Term, Term], Term], Callable[[float, float], bool]]] = {
    "eq": (boolean.eq, operator.eq),
    "ne": (boolean.ne, operator.ne),
    "lt": (boolean.lt, operator.lt),
    "le": (boolean.le, operator.le),
    "gt": (boolean.gt, operator.gt),
    "ge": (boolean.ge, operator.ge),
}
"""By comparison: its operator on exact ratios, as integers, and on plain floats."""
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def comparison(
    env: Environment,
    name: str,
    left: FloatTerm | float,
    right: FloatTerm | float,
    is_float: bool = True,
) -> Term | None:
    """Return a comparison as a condition on sizes, without asking for its truth; None if it is not
    one.

    Args:
        env: the environment of the sizes.
        name: the name of the comparison, as in ``COMPARISONS``.
        left: the left side.
        right: the right side.
        is_float: whether a float holds the right side, if that is a constant.
    """
    one, other = (
        each.ratio() if isinstance(each, FloatTerm) else _constant_ratio(each)
        for each in (left, right)
    )
    if one is not None and other is not None:
        a, b = arithmetic.scale(one[0], other[1]), arithmetic.scale(other[0], one[1])
        if env.exact_as_float(a) and env.exact_as_float(b):
            return COMPARISONS[name][0](a, b)
    return _by_threshold(env, name, left, right) if is_float else None


def where(env: Environment, float_of: Monotone, relation: str, constant: float) -> Term | None:
    """Return the condition on an integer under which a float computed from it stands in a relation
    to a constant.
    """
    whole = float_of.of
    if not env.exact_as_float(whole):
        return None
    least = 0 if env.known(boolean.ge(whole, 0)) else -LARGEST
    if float_of.least is not None:
        within = boolean.and_(boolean.ge(whole, float_of.least), boolean.le(whole, float_of.most))
        if not env.hint(within) or not env.evaluate(within):
            return None
        least = float_of.least
    try:
        first, end = float_of.where(relation, constant, least)
    except (ArithmeticError, ValueError):
        return None
    start = boolean.TRUE if first == least else boolean.ge(whole, first)
    return boolean.and_(start, boolean.TRUE if end > float_of.most else boolean.lt(whole, end))


def is_exact(value: FloatTerm | float) -> bool:
    """Return whether a float is in the range in which floats hold all integers exactly."""
    return isinstance(value, float) and abs(value) < 2.0**53


def _by_threshold(
    env: Environment, name: str, left: FloatTerm | float, right: FloatTerm | float
) -> Term | None:
    """Return a comparison with a constant as a condition on the other side's only integer, if that
    is monotone.
    """
    if isinstance(right, FloatTerm):
        left, right, name = right, left, _SWAPPED[name]
    of = None if isinstance(right, FloatTerm) or not math.isfinite(right) else monotone(left)
    found = None if of is None else where(env, of, "eq" if name == "ne" else name, right)  # type: ignore[arg-type]
    return boolean.not_(found) if found is not None and name == "ne" else found


def _constant_ratio(value: float) -> tuple[Term, int] | None:
    """Return a float as an exact ratio to compare with a rounded quotient; None if rounding could
    change the answer.
    """
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    return (
        (arithmetic.const(numerator), denominator)
        if denominator <= 2**10 and abs(numerator) < 2**53
        else None
    )


_SMALL = 2**10
"""Safety factor: a sum of rounded quotients is rounded exactly only if floats hold ``_SMALL`` times
each integer.
"""


def _method(op: str) -> Callable[..., Any]:
    def method(self: FloatNode, *others: Any) -> FloatNode:
        operands = [
            other.term if isinstance(other, FloatNode) else other._as_float() for other in others
        ]
        return FloatNode(self.env, float_term(op, self.term, *operands))

    return method


def _partial(op: str) -> Callable[..., Any]:
    """Return the method of an operation that raises for some numbers: where it runs, even if its
    result is unused.
    """
    compute = _method(op)

    def method(self: FloatNode, *others: Any) -> FloatNode:
        found: FloatNode = compute(self, *others)
        if isinstance(found.term, FloatTerm):
            found._raise_in_this_call(found.term)
            self.env.partial.add(found.term)
        return found

    return method


def computed(op: str, first: FloatNode, *others: FloatNode) -> FloatNode:
    """Return the node of a function of ``math`` applied to floats."""
    return _partial(op)(first, *others)  # type: ignore[no-any-return]


def _divided(op: str) -> Callable[..., Any]:
    """Return the method of a division, which raises for a float argument of 0 at the line that
    divides.
    """
    divide = _partial(op)

    def method(self: FloatNode, other: Any) -> FloatNode:
        divisor = other.term if isinstance(other, FloatNode) else 1.0
        if self.env.data.is_argument(divisor) and self.env.data.decide("eq", divisor, 0.0):
            raise ZeroDivisionError("float modulo by zero" if op == "mod" else "division by zero")
        return divide(self, other)  # type: ignore[no-any-return]

    return method


def _of_cpp(op: str) -> Callable[..., Any]:
    """Return the method of an operation that torch's C++ code asks for: it never raises."""
    compute, plain = _method(f"cpp_{op}"), _method(op)

    def method(self: FloatNode, other: Any) -> FloatNode:
        by_constant = op == "truediv" and isinstance(other, FloatNode) and other.maybe_as_float()
        return plain(self, other) if by_constant else compute(self, other)  # type: ignore[no-any-return]

    return method


def _power(self: FloatNode, other: Any) -> FloatNode:
    """Return the node of a power; NumPy's own power if one of the numbers is NumPy's."""
    compute = _power_of_numpys if any(map(is_numpys, (self, other))) else _power_of_floats
    return compute(self, other)  # type: ignore[no-any-return]


_power_of_floats, _power_of_numpys = _partial("pow"), _partial("np_pow")


class FloatNode(Node):
    """The float that depends on sizes or on data; conditions on it become integer ones if it is an
    exact ratio.
    """

    __slots__ = ()
    term: FloatTerm | float
    scalar_type = float

    def __init__(self, env: Environment, term: FloatTerm | float) -> None:
        self.env = env
        self.term = term

    add, sub, mul = (_method(op) for op in ("add", "sub", "mul"))
    mod = _divided("mod")
    float_truediv, truediv = _divided("truediv"), _of_cpp("truediv")  # Python's, and C++'s
    float_pow, pow = _power, _of_cpp("pow")
    sym_max, sym_min = _method("max"), _method("min")
    neg, abs = _method("neg"), _method("abs")
    sym_sqrt = sqrt = _partial("sqrt")
    sym_tanh, sym_atan, sym_fabs = (_method(op) for op in ("tanh", "atan", "abs"))
    sym_cos, sym_sin, sym_exp, sym_expm1 = (_partial(op) for op in ("cos", "sin", "exp", "expm1"))
    sym_log, sym_log2, sym_log10, sym_log1p = (
        _partial(op) for op in ("log", "log2", "log10", "log1p")
    )

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.term, float)

    def maybe_as_float(self) -> float | None:
        return self.term if isinstance(self.term, float) else None

    @property
    def pytype(self) -> type:
        return float

    def _value(self) -> float:
        return self.env.specialize_float(self.term)

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return float(self._value())

    float_ = guard_float

    def bool_(self) -> bool:
        return not self.eq(self.wrap_float(0.0)).bool_()

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.guard_float())

    int_ = guard_int

    def sym_float(self) -> FloatNode:
        return self

    def pos(self) -> FloatNode:
        return self

    def _ratio(self) -> tuple[Term, int] | None:
        """Return the value as an exact quotient, if it is one and floats are exact there."""
        found = self.term.ratio() if isinstance(self.term, FloatTerm) else None
        return found if found is not None and self.env.exact_as_float(found[0]) else None

    def ratio(self) -> tuple[Any, int] | None:
        """Return the value as a size over a positive integer, if it is exactly that, for shape
        rules.
        """
        found = self._ratio()
        return None if found is None else (self.env.nodes.size(found[0]), found[1])

    def _whole_and_ratio(self) -> tuple[Term, int] | None:
        """Return a ratio with the floor and the ceiling of the value; None if there is none."""
        ratio = self._ratio()
        if ratio is not None or not isinstance(self.term, FloatTerm):
            return ratio
        found = self.term.shifted_ratio()
        if found is None or not all(
            self.env.exact_as_float(arithmetic.scale(each, _SMALL)) for each in found[0]
        ):
            return None
        return found[0][-1], found[1]

    def floor(self) -> Any:
        found = self._rounded(-1)
        return self._constant(math.floor) if found is None else self._floor_of(*found)

    def ceil(self) -> Any:
        found = self._rounded(1)
        if found is None:
            return self._constant(math.ceil)
        return self._floor_of(arithmetic.scale(found[0], -1), found[1], -1)

    def trunc(self) -> Any:
        found = self._whole_and_ratio() or rounded_ratio(self.term)
        if found is None:
            return self._constant(math.trunc)
        top = found[0] if isinstance(found, tuple) else found.numerator
        return self.floor() if self.env.evaluate(boolean.ge(top, 0)) else self.ceil()

    def round(self, ndigits: Any = None) -> Any:
        if ndigits is None:
            found = self._rounded(0)
            return self._constant(round) if found is None else self._rounded_half_to_even(*found)
        digits = ndigits.int_() if isinstance(ndigits, IntNode) else ndigits
        return FloatNode(self.env, float_term("round", self.term, float(digits)))

    def _constant(self, whole: Callable[[float], int]) -> Any:
        """Return the integer that the value is rounded to in the example call; a guard asks for the
        same result.
        """
        of = monotone(self.term) if isinstance(self.term, FloatTerm) else None
        size = None if of is None else self.env.hint(of.of)
        if of is None or size is None:
            read = rounded(self, whole)
            return self.wrap_int(whole(self.guard_float())) if read is None else read
        found = whole(of.value(size))
        same = (
            where(self.env, of.rounded(whole), "eq", float(found)) if abs(found) < LARGEST else None
        )
        if same is None or not self.env.evaluate(same):
            return self.wrap_int(whole(self.guard_float()))
        return self.wrap_int(found)

    def _floor_of(self, top: Term, bottom: int, sign: int = 1) -> Any:
        return self.env.nodes.int_node(arithmetic.scale(division.floordiv(top, bottom), sign))

    def _rounded_half_to_even(self, top: Term, bottom: int) -> Any:
        """Return the node of the nearest integer to a quotient, ties to even."""
        nearest = division.floordiv(arithmetic.add(arithmetic.scale(top, 2), bottom), 2 * bottom)
        if bottom % 2 == 0 and self.env.evaluate(boolean.eq(_beyond_half(top, bottom), 0)):
            nearest = arithmetic.add(nearest, arithmetic.scale(division.mod(nearest, 2), -1))
        return self.env.nodes.int_node(nearest)

    def _rounded(self, direction: int) -> tuple[Term, int] | None:
        """Return a quotient that is rounded like the value: down (-1), up (1), or to the nearest
        integer (0).

        The answer is None if there is no such quotient.  A guard may be recorded that the quotient
        is not near a point where rounding errors matter.
        """
        exact = self._whole_and_ratio() if direction else self._ratio()
        if exact is not None:
            return exact
        found = rounded_ratio(self.term)
        if found is None or not self.env.exact_as_float(
            arithmetic.scale(found.numerator, 16 if found.off == UNKNOWN else 4)
        ):
            return None
        top, bottom = found.numerator, found.denominator
        if found.off and not (found.off + direction == 0 and self.env.known(boolean.ge(top, 0))):
            near = division.mod(top, bottom) if direction else _beyond_half(top, bottom)
            away = boolean.ne(near, 0)
            if away is not boolean.TRUE and not (self.env.hint(away) and self.env.evaluate(away)):
                return None
        return top, bottom

    def is_integer(self) -> Any:
        ratio = self._ratio()
        if ratio is None:
            return self.wrap_bool(self.guard_float().is_integer())
        return BoolNode(self.env, boolean.eq(division.mod(*ratio), 0))

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        return then if self.guard_float() else otherwise

    def _compare(self, name: str, other: Any) -> BoolNode:
        other_term = other.term if isinstance(other, FloatNode) else other._as_float()
        is_float = not isinstance(other, IntNode) or is_exact(other_term)
        found = comparison(self.env, name, self.term, other_term, is_float)
        if found is not None:
            return BoolNode(self.env, found)
        if is_float:
            decided = self.env.data.decide(name, self.term, other_term)
            if decided is None:
                decided = self.env.unscaled(name, self.term, other_term)
            if decided is not None:
                return BoolNode(self.env, boolean.boolean(decided))
        x, y = self.env.specialize_float(self.term), self.env.specialize_float(other_term)
        compare = COMPARISONS[name][1]
        answer = compare(x, y)
        if answer != compare(self._whole(self.term, x), self._whole(other_term, y)):
            raise UnsupportedError(
                f"the program compares {self.term} with {other_term}, and one of them is an "
                "integer too large for a float: a trace cannot tell whether Python compares "
                "integers or floats; compare smaller numbers",
                reason=Reason.NUMBERS,
            )
        return BoolNode(self.env, boolean.boolean(answer))

    def _raise_in_this_call(self, term: FloatTerm) -> None:
        """Compute ``term`` with the example call's sizes; if that raises, fix the sizes by guards
        and raise.
        """
        hints = {each.name: self.env.hint(each) for each in term.symbols()}
        if term.unbacked() or None in hints.values():
            return
        try:
            term.evaluate(hints)
        except (ArithmeticError, ValueError):
            self.env.specialize_float(term)

    def _whole(self, term: FloatTerm | float, value: float) -> float:
        """Return the integer that a float was made from, if it was; Python compares integers with
        floats exactly.
        """
        if isinstance(term, FloatTerm) and term.op == "from_int" and isinstance(term.args[0], Term):
            return self.env.specialize(term.args[0])
        return value

    # -- used by the rules of ops
    def __float__(self) -> float:
        return self.guard_float()

    def __lt__(self, other: Any) -> bool:
        return self._answer("lt", other)

    def __le__(self, other: Any) -> bool:
        return self._answer("le", other)

    def __gt__(self, other: Any) -> bool:
        return self._answer("gt", other)

    def __ge__(self, other: Any) -> bool:
        return self._answer("ge", other)

    def __eq__(self, other: object) -> bool:
        """Return whether the number is certainly equal to ``other``."""
        if type(other) not in (int, float):
            return self is other
        decided = self.env.data.decide("eq", self.term, float(other))  # type: ignore[arg-type]
        return bool(decided)

    __hash__ = object.__hash__

    def _answer(self, relation: str, other: Any) -> bool:
        if type(other) not in (int, float):
            return NotImplemented  # type: ignore[no-any-return]
        return bool(self._compare(relation, self.wrap_float(other)).bool_())

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


def _beyond_half(top: Term, bottom: int) -> Term:
    """Return a term that is 0 if a quotient is half way between two integers."""
    return division.mod(arithmetic.add(arithmetic.scale(top, 2), bottom), 2 * bottom)


# -- Rounding of data-dependent numbers to integers: ``int(mask.sum() * 0.7)``, computed when the
# graph runs.
aten = torch.ops.aten
_MOST = 2.0**62
_ROUNDINGS: dict[Any, Any] = {
    math.floor: aten.floor.default,
    math.ceil: aten.ceil.default,
    math.trunc: aten.trunc.default,
    round: aten.round.default,
}


def rounded(number: FloatNode, whole: Callable[[float], int]) -> Any:
    """Return an integer node that the graph computes; None if the number depends on sizes or float
    arguments alone.

    It is asserted that the number is finite and that an int64 holds it.
    """
    env, term = number.env, number.term
    if not isinstance(term, FloatTerm) or not term.unbacked() or env.data.is_argument(term):
        return None
    cpu = torch.device("cpu")
    value = aten.scalar_tensor.default(torch.SymFloat(number), dtype=torch.float64, device=cpu)
    found = _ROUNDINGS[whole](value)
    beyond = aten.scalar_tensor.default(-2 * _MOST, dtype=torch.float64, device=cpu)
    read: Any = torch.where(found.abs() <= _MOST, found, beyond).to(torch.int64).item()
    node = read.node
    fits = boolean.ge(node.term, -int(_MOST))
    env.expect_true(fits, "this number does not fit an integer of 64 bits")
    return node


# -- Floats that stand for NumPy's
def is_numpys(node: Any) -> bool:
    """Return whether a node is a NumPy float."""
    return isinstance(node.term, FloatTerm) and node.term.of_numpy()


def numpys_constant(env: Environment, number: float) -> FloatNode:
    """Return a plain number as a NumPy float, so that results computed with it are NumPy's."""
    return FloatNode(env, FloatTerm("np_float", (float(number),)))


def computed_by_numpy(node: FloatNode, function: str) -> FloatNode:
    """Return the result of a NumPy function of a float; ``float`` converts it to a NumPy float."""
    term = FloatTerm(f"np_{function}", (node.term,))
    node.env.partial.add(term)
    return FloatNode(node.env, term)


def of_python(node: FloatNode) -> FloatNode:
    """Return the float converted to Python's class."""
    return FloatNode(node.env, float_term("as_float", node.term)) if is_numpys(node) else node
