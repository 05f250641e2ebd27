"""The ladder of deciders, a table: from a look at ranges to a solver, the cheap ones first.

To add a rung is to add a row; its function goes to :mod:`guards.asking.rungs`, what it knows to
``guards/deciders``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from guards.asking import rungs
from guards.asking.climb import Climb
from guards.facts.component import Component
from guards.terms.term import Term


class Effort(IntEnum):
    """The highest rung of the ladder that a question may reach."""

    CHEAP = 0  # no SymPy, no Z3
    THOROUGH = 1  # no Z3: for those who ask many questions for one answer
    FULL = 2  # everything, within a deterministic limit


Step = Callable[[Climb], bool]


class Rung:
    """One row: what a rung is called where it settles a question, when it is asked, what it does.

    Attributes:
        name: under which questions are counted that end here (several rows may share one).
        effort: from which effort on it is asked.
        applies: whether it is asked on this climb.
        step: takes the climb further; whether that ends it.
        words: how it came to its answer, for people.
    """

    __slots__ = ("applies", "effort", "name", "step", "words")

    def __init__(
        self, name: str, effort: Effort, applies: Step, step: Step, words: str = ""
    ) -> None:
        self.name = name
        self.effort = effort
        self.applies = applies
        self.step = step
        self.words = words


_BOUNDS = "by the ranges and remainders of its parts"
_EQUATIONS = "by the equations assumed"
_LINEAR = "by linear elimination"
_VALUES = "by trying all values"

LADDER: Final = (
    Rung("interval", Effort.CHEAP, rungs.always, rungs.look, _BOUNDS),
    Rung("unknown", Effort.CHEAP, rungs.divides_by_terms, rungs.restrict_to_defined),
    Rung("known", Effort.CHEAP, rungs.has_rewrites, rungs.replace_known, _EQUATIONS),
    Rung("interval", Effort.CHEAP, rungs.was_rewritten, rungs.look, _BOUNDS),
    Rung("known", Effort.CHEAP, rungs.is_connective, rungs.contradict_parts, _EQUATIONS),
    Rung("points", Effort.CHEAP, rungs.seeks_one_answer, rungs.try_points),
    Rung(
        "chains",
        Effort.CHEAP,
        rungs.may_be_chained,
        rungs.follow_chains,
        "by chains of inequalities",
    ),
    Rung("linear", Effort.CHEAP, rungs.divides_by_numbers, rungs.eliminate_for_true, _LINEAR),
    Rung("rules", Effort.CHEAP, rungs.may_be_rewritten, rungs.rewrite, "by rewriting"),
    Rung("linear", Effort.CHEAP, rungs.may_always_hold, rungs.eliminate_for_true, _LINEAR),
    Rung("points", Effort.CHEAP, rungs.seeks_both_answers, rungs.try_points),
    Rung("linear", Effort.CHEAP, rungs.may_never_hold, rungs.eliminate_for_false, _LINEAR),
    Rung("enumerate", Effort.THOROUGH, rungs.always, rungs.try_all_values, _VALUES),
    Rung("points", Effort.THOROUGH, rungs.always, rungs.search_points),
    Rung("cases", Effort.THOROUGH, rungs.always, rungs.split_cases, "by looking at all cases"),
    Rung("sympy", Effort.THOROUGH, rungs.always, rungs.factor, "by the signs of factors"),
    Rung("z3", Effort.FULL, rungs.always, rungs.ask_z3, "by Z3"),
    Rung("enumerate", Effort.FULL, rungs.always, rungs.try_large_box, _VALUES),
)
WORDS = {rung.name: rung.words for rung in LADDER}
RUNGS = tuple(
    dict.fromkeys(["constant", "memo", *[name for name in WORDS if name != "unknown"], "unknown"])
)
"""The ways in which a question is settled: a constant, a cached answer, a rung, or none of them
(``unknown``).
"""


def climb_up(component: Component, condition: Term, effort: Effort, only: bool | None) -> Climb:
    """Ask one rung after the other until one of them ends the climb."""
    climb = Climb(component, condition, only)
    for rung in LADDER:
        if rung.effort > effort:
            break
        if rung.applies(climb) and rung.step(climb):
            climb.rung = rung.name
            break
    return climb


# -- how many questions each rung settled ----------------------------------------------------------


COUNTS: Final[dict[str, int]] = dict.fromkeys(RUNGS, 0)


def counters() -> dict[str, int]:
    """Return the number of questions by the rung that settled them, since the last
    :func:`reset_counters`.

    ``unknown`` counts those that no rung settled.
    """
    return dict(COUNTS)


def reset_counters() -> None:
    """Set all counters to zero."""
    for rung in COUNTS:
        COUNTS[rung] = 0
