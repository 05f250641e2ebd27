"""Conditions on sizes: the node inside ``torch.SymBool``."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from guards.terms import boolean
from guards.terms.term import Term
from symshape.torch_internals import operators, questions
from symshape.tracing.symbolic.nodes import choices
from symshape.tracing.symbolic.nodes.environment import Environment, Message
from symshape.tracing.symbolic.nodes.node import Node, is_int_node


def _presume(self: BoolNode, message: Message = "") -> bool:
    """Return whether a condition on data is assumed: it is known, or asserted at run time, with
    a retry in eager.

    Eager does not need such a condition, but programs written in this way always mean it to
    hold: ``rows[mask] * weights[mask]`` means the same elements, though eager would also
    broadcast a single one.
    """
    env, term = self.env, self.term
    if env.hint(term) is not None or env.guard_or(boolean.not_(term), False):
        return False
    return env.guard_or(term, False) or (env.may_begin_again() and env.expect_true(term, message))


class BoolNode(Node):
    """A condition of one environment: ``bool()`` asks and guards, ``known()`` never guards,
    ``check()`` asserts.
    """

    __slots__ = ()
    term: Term
    scalar_type = bool

    def __init__(self, env: Environment, term: Term) -> None:
        self.env = env
        self.term = term

    # -- as a condition on sizes
    def __bool__(self) -> bool:
        return self.env.evaluate(self.term)

    def known(self) -> bool:
        """Return whether the condition holds for certain; record nothing."""
        return self.env.known(self.term)

    def check(self, message: Message = "") -> None:
        """Check the condition like ``torch._check``: the program is wrong if it does not hold."""
        self.env.check(self.term, message)

    presume = _presume

    def __and__(self, other: Any) -> Any:
        return self.env.nodes.condition(boolean.and_(self.term, _condition(other)))

    def __or__(self, other: Any) -> Any:
        return self.env.nodes.condition(boolean.or_(self.term, _condition(other)))

    def __invert__(self) -> Any:
        return self.env.nodes.condition(boolean.not_(self.term))

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
        """Check the condition for ``torch._check``, with the message and error class from its
        frame.
        """
        message, kind = _check_in_progress()
        if kind is not RuntimeError:
            return self.env.expect_true(self.term, message, kind or RuntimeError)
        self.env.check(self.term, message)
        return True

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        return self.env.guard_or(self.term, False, free=file.endswith(questions.ONE_RESULT))

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        free, sums = file.endswith(questions.ONE_RESULT), file.endswith(questions.SUMS)
        return self.env.guard_or(self.term, True, free=free, sums=sums)

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        return self.env.known(self.term)

    def sym_and(self, other: Any) -> Any:
        if is_int_node(other):  # ``True & 6`` is bitwise
            return self._number().bitwise_and(other)
        return BoolNode(self.env, boolean.and_(self.term, other.term))

    and_ = sym_and

    def sym_or(self, other: Any) -> Any:
        if is_int_node(other):
            return self._number().bitwise_or(other)
        return BoolNode(self.env, boolean.or_(self.term, other.term))

    or_ = sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.env, boolean.not_(self.term))

    def eq(self, other: Any) -> Any:
        if is_int_node(other):  # ``True == 2`` is false
            return self._number().eq(other)
        a, b = self.term, _condition(other)
        both = boolean.or_(boolean.and_(a, b), boolean.and_(boolean.not_(a), boolean.not_(b)))
        return BoolNode(self.env, both)

    def ne(self, other: Any) -> Any:
        return self.eq(other).sym_not()

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        if isinstance(then, BoolNode):
            term = boolean.or_(
                boolean.and_(self.term, then.term),
                boolean.and_(boolean.not_(self.term), otherwise.term),
            )
            return BoolNode(self.env, term)
        if is_int_node(then) and is_int_node(otherwise):
            return self.env.nodes.int_node(
                choices.ite(self.env.known, self.term, then.term, otherwise.term)
            )
        return then if self.env.evaluate(self.term) else otherwise

    def sym_float(self) -> Any:
        return self._number().sym_float()

    def _number(self) -> Any:
        """Return the node of the condition as an integer: 1 if it holds, else 0."""
        return self.env.nodes.int_node(boolean.ite(self.term, 1, 0))


def _check_in_progress() -> tuple[Message, type[Exception] | None]:
    """Return the message and error of the running ``torch._check``, which torch does not pass on
    (2.11 to 2.13).
    """
    # perhaps the only frame: autograd's threads start in C++
    frame: FrameType | None = sys._getframe(1)
    for _ in range(6):
        if frame is None:
            break
        if frame.f_code is operators.checking.__code__:
            return frame.f_locals.get("message") or "", frame.f_locals.get("error_type")
        frame = frame.f_back
    return "", None


def _condition(value: Any) -> Term:
    if isinstance(value, BoolNode):
        return value.term
    if isinstance(value, torch.SymBool):
        return _condition(value.node)
    if is_int_node(value):
        return boolean.not_(boolean.is_zero(value.term))
    return boolean.boolean(bool(value))
