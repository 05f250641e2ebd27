"""One way up the ladder: what is asked, what was found out on the way, and which answers are still
possible.
"""

from __future__ import annotations

from collections.abc import Callable

from guards.facts.completion import Values
from guards.facts.component import Component
from guards.terms import boolean
from guards.terms.term import Term


class Climb:
    """A question on its way up the ladder.

    A rung settles it by a ``value``, or by points for both answers, which show that it depends on
    the values. On the way the question is brought into other forms that are equal to it wherever
    the component holds.

    Attributes:
        component: what is known.
        asked: the condition as it was asked, which points are tested with.
        condition: in the form reached so far, which proofs are about.
        only: the one answer that is sought; None for either.
        value: the answer, where it is settled.
        fails, holds: points at which the condition is false, and true: they exclude the answers
            True and False.
        eliminated: the form that linear elimination has tried in vain to prove.
        reason: why nobody knows, as far as a rung could tell.
        cut_short: whether that is so because the whole question, of which this one is a part, may
            not work any more.
        rung: the name of the rung on which it ended.
    """

    __slots__ = (
        "asked",
        "component",
        "condition",
        "cut_short",
        "eliminated",
        "fails",
        "holds",
        "only",
        "reason",
        "rung",
        "value",
    )

    def __init__(self, component: Component, asked: Term, only: bool | None) -> None:
        self.component = component
        self.asked = asked
        self.condition = asked
        self.only = only
        self.value: bool | None = None
        self.fails: Values | None = None
        self.holds: Values | None = None
        self.eliminated: Term | None = None
        self.reason = ""
        self.cut_short = False
        self.rung = "unknown"

    def settle(self, value: bool | None) -> bool:
        """Settle the question on an answer, unless it is None; return whether it is settled."""
        self.value = value
        return value is not None

    def counterexamples(self, answer: bool) -> Term:
        """Return the condition whose solutions refute ``answer``: the condition itself or its
        negation.
        """
        return boolean.not_(self.condition) if answer else self.condition

    def possible(self) -> list[bool]:
        """The answers that are sought and that no point excludes."""
        wanted = (True, False) if self.only is None else (self.only,)
        return [answer for answer in wanted if (self.fails if answer else self.holds) is None]

    def exclude(self, answer: bool, point: Values | None) -> None:
        """Record a point that shows an answer to be impossible; None is no point."""
        if point is not None:
            if answer:
                self.fails = point
            else:
                self.holds = point

    def refute(self, refutes: Callable[[Component, Term], bool]) -> bool:
        """Settle on the first possible answer whose counterexamples are refuted; return whether
        there is one.
        """
        for answer in self.possible():
            if refutes(self.component, self.counterexamples(answer)):
                return self.settle(answer)
        return False
