"""Assumed conditions: eager does not need them, but programs written in this way always mean them
to hold.

``rows[mask] * weights[mask]`` means the same elements, though eager would also broadcast a single
one.
"""

from __future__ import annotations

from typing import Protocol

from guards.terms import boolean
from guards.terms.term import Term
from symshape.tracing.symbolic.nodes.environment import Environment, Message


class Condition(Protocol):
    """The part of a condition's node that is used here."""

    env: Environment
    term: Term


def presume(condition: Condition, message: Message = "") -> bool:
    """Return whether a condition on data is assumed: it is known, or asserted at run time, with a
    retry in eager.
    """
    env, term = condition.env, condition.term
    if env.hint(term) is not None or env.guard_or(boolean.not_(term), False):
        return False
    return env.guard_or(term, False) or (env.may_begin_again() and env.expect_true(term, message))
