"""Conditions that eager does not need, but that hold wherever people write such a program: taken for granted.

``rows[mask] * weights[mask]`` means the same elements, though eager would also spread a single one over many.
"""

from __future__ import annotations

from typing import Protocol

from guards.terms import boolean
from guards.terms.term import Term
from symshape.tracing.symbolic.nodes.environment import Environment, Message


class Condition(Protocol):
    """What is needed of the node of a condition here."""

    env: Environment
    term: Term


def presume(condition: Condition, message: Message = "") -> bool:
    """Whether a condition that only data tell is taken to hold, as it is where eager could run if it does not.

    It is asserted at run time then.
    """
    env, term = condition.env, condition.term
    if env.hint(term) is not None or env.guard_or(boolean.not_(term), False):
        return False
    return env.guard_or(term, False) or (env.may_begin_again() and env.expect_true(term, message))
