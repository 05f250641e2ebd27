"""One budget for a whole question, however many searches it takes: counts of work, never a clock.

Whoever answers a question that asks others in turn (why do values fail, which guards are needed,
what is missed) opens a budget, and all that is asked within draws on it. Where it is spent, what is
left open stays unknown: the answer says less, and never something wrong.

>>> with whole_question() as budget, whole_question() as inner:
...     inner is budget, current() is budget, budget.search(), budget.searches == SEARCHES - 1
(True, True, True, True)
>>> current() is None
True
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 1_500_000
"""Z3's own steps: about a second of its work."""
SEARCHES = 160
"""Searches for points for one question. Each learns facts anew and may ask Z3."""
RUNS = 30_000
"""The pieces of functions of an integer that a question may look at."""
STEPS_EACH, SEARCHES_EACH = 2_000, 4
"""Solver steps and searches that each part of a large question adds: a condition, a point, a cell.
"""
SPENT = "the limit on the work for one question was reached"


class Budget:
    """The budget that is left for one question.

    Attributes:
        steps: of Z3.
        searches: for points.
        runs: of functions of one integer.
        parts: that the question is about.
    """

    __slots__ = ("parts", "runs", "searches", "steps")

    def __init__(self) -> None:
        self.steps = STEPS
        self.searches = SEARCHES
        self.runs = RUNS
        self.parts = 0

    def search(self) -> bool:
        """Take one search from the budget; return whether there was one left."""
        self.searches -= 1
        return self.searches >= 0

    @property
    def spent(self) -> bool:
        """Return whether the budget is used up."""
        return self.steps <= 0 or self.searches <= 0

    def about(self, parts: int) -> None:
        """Enlarge the budget for a question about ``parts`` conditions, points or cells, once for
        each of them.

        >>> budget = Budget()
        >>> budget.about(5), budget.about(3), budget.searches - SEARCHES
        (None, None, 20)
        """
        more = parts - self.parts
        if more > 0:
            self.parts = parts
            self.steps += more * STEPS_EACH
            self.searches += more * SEARCHES_EACH


class _Here(threading.local):
    budget: Budget | None = None


_here = _Here()


def current() -> Budget | None:
    """Return the budget of the question that this thread is answering; None if none was opened."""
    return _here.budget


@contextmanager
def whole_question() -> Iterator[Budget]:
    """A budget for all that is asked within, or, inside another question, that question's; a
    decorator, too.
    """
    found = _here.budget
    if found is not None:
        yield found
        return
    found = _here.budget = Budget()
    try:
        yield found
    finally:
        _here.budget = None


def about(parts: int) -> None:
    """Enlarge the open question's budget for ``parts`` conditions, points or cells."""
    if _here.budget is not None:
        _here.budget.about(parts)


def spent() -> bool:
    """Return whether the open question has used up its budget."""
    return _here.budget is not None and _here.budget.spent
