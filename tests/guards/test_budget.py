"""One budget for a whole question: what it counts, that it is one, and that little work never makes
a wrong answer.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import guards
from guards import GuardSet, budget
from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.budget import Budget, about, current, spent, whole_question
from guards.deciders.z3_solver import Together, Unknown, solve_formula
from guards.facts.facts import Facts
from guards.terms.boolean import ge
from tests.counting import undisturbed
from tests.fuzz import fuzz_guard_regions
from tests.fuzz.fuzz_guard_regions import limited

ONLY_Z3 = guards.parse("(y - x) * (y - x) >= y - x")
"""True; no rung before Z3 finds it."""
HARD = "(x % 7) + (y % x)*x == x % 5 + 9223372036854775807"
FAR = "(z % (4*max(y, -2))) + 4 == (z // 4) % max(y, -2)"


def test_one_budget_within_another() -> None:
    assert current() is None
    with whole_question() as outer:
        with whole_question() as inner:
            assert inner is outer is current()
            inner.search()
        assert current() is outer
        assert outer.searches == budget.SEARCHES - 1
    assert current() is None


def test_it_is_closed_by_an_exception() -> None:
    with pytest.raises(KeyError), whole_question():
        raise KeyError
    assert current() is None


def test_each_thread_has_its_own() -> None:
    seen: list[Budget | None] = []
    with whole_question():
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_many_parts_make_room_once() -> None:
    about(3)  # nothing is open
    with whole_question() as one:
        for parts in (10, 4, 10, 12):
            about(parts)
        assert one.searches == budget.SEARCHES + 12 * budget.SEARCHES_EACH
        assert one.steps == budget.STEPS + 12 * budget.STEPS_EACH


def test_spent() -> None:
    assert not spent()
    with whole_question() as one:
        assert not spent()
        one.steps = 0
        assert spent()
        one.steps, one.searches = 1, 0
        assert spent()
        assert not one.search()


# -- what Z3 is charged ----------------------------------------------------------------------------


def test_what_z3_works_is_charged() -> None:
    component = Facts().component(ONLY_Z3)
    with whole_question() as one:
        solve_formula(component, guards.parse("(y - x) * (y - x) < y - x"))
        first = budget.STEPS - one.steps
        assert 0 < first < 100_000
        solve_formula(component, guards.parse("x*x*x + y*y*y == 114 * x*y + 5"))
        assert budget.STEPS - one.steps > first
        one.steps = 0
        assert solve_formula(component, ONLY_Z3) == Unknown(budget.SPENT)


def test_many_at_once_are_charged() -> None:
    x, y = guards.symbol("x"), guards.symbol("y")
    asked = Together([ge(y, 3)], [ge(x, y)])
    with whole_question() as one:
        assert asked.implies([0], ge(x, 2))
        assert one.steps < budget.STEPS
        one.steps = 0
        assert asked.implies([0], ge(x, 1)) is None
        assert asked.implies([0], ge(x, y)) is None
    assert asked.implies([0], ge(x, 1))  # what was not asked left nothing behind
    assert asked.implies([], ge(x, 1)) is False


def test_an_answer_that_was_cut_short_is_not_kept() -> None:
    with undisturbed():
        facts = Facts()
        with whole_question() as one:
            one.steps = 0
            assert ask(facts, ONLY_Z3) is None
        assert ask(facts, ONLY_Z3) is True


def test_less_effort_is_kept() -> None:
    with undisturbed():
        facts = Facts()
        with whole_question() as one:
            one.steps = 0
            assert ask(facts, ONLY_Z3, effort=Effort.CHEAP) is None
        before = guards.asking.ladder.counters()["memo"]  # type: ignore[attr-defined]
        assert ask(facts, ONLY_Z3, effort=Effort.CHEAP) is None
        assert guards.asking.ladder.counters()["memo"] == before + 1  # type: ignore[attr-defined]


# -- the doors -------------------------------------------------------------------------------------


def _set(*texts: str) -> GuardSet:
    return GuardSet(*texts)


DOORS: dict[str, Callable[[], Any]] = {
    "explain": lambda: guards.explain(GuardSet(HARD, ranges={"x": (-6, None)}), {"x": -6, "y": 2}),
    "explain far": lambda: guards.explain(GuardSet(FAR), {"y": 2, "z": 3}),
    "distinguish": lambda: guards.distinguish(_set(HARD), _set("x <= 9", "x % x == 0")),
    "explain_conflict": lambda: guards.explain_conflict(_set("x <= 9", "x % x == 0"), _set(HARD)),
    "is_satisfiable": lambda: _set("x*x*x + y*y*y + z*z*z == 114", HARD).is_satisfiable(),
    "implies": lambda: _set(HARD).implies(_set("x*y != 77", "x % 3 != y * y")),
    "equivalent": lambda: _set(HARD).equivalent(_set(FAR)),
    "disjoint": lambda: _set(HARD).disjoint(_set(FAR)),
    "core": lambda: _set(HARD, FAR, "x*x*x + y*y*y + z*z*z == 114").core(),
    "minimise": lambda: _set(
        HARD, FAR, "x*x*x + y*y*y + z*z*z == 114", "x*x + y != z*z*7"
    ).minimise(),
    "project": lambda: _set(HARD).project("y"),
    "sample": lambda: _set(HARD).sample(3),
    "region": lambda: _set("x*x*x + y*y*y + z*z*z == 114").region("x", "y", range(3), range(3)),
    "certify": lambda: guards.certify(
        {"x": (0, None), "y": (0, None)}, [_set(HARD), _set("x*x + 3 == y*y*y % 91")]
    ),
    "solve": lambda: _solved(
        "max(7*(x % y) % 16, (y - (z if z + y != -3 else x)) // 2) == min(y, x)"
    ),
    "simplify": lambda: guards.simplify(HARD),
    "bounds": lambda: guards.bounds("(x % 7) + (y % x)*x - z // y"),
    "prove": lambda: guards.prove(HARD),
    "decide": lambda: guards.decide(
        "x*x*x + y*y*y + z*z*z == 114", ranges=dict.fromkeys("xyz", (None, None))
    ),
}


def _solved(text: str) -> object:
    facts = Facts.make({guards.symbol("z"): (2, 9)}).assume(guards.parse("max(y, x) <= 9"))
    try:
        return guards.solve(text, "x", facts)
    except guards.CannotSolve:
        return None


@contextmanager
def _opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Budget]]:
    """All budgets that are opened within."""
    made: list[Budget] = []

    class Kept(Budget):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(budget, "Budget", Kept)
    yield made


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_one_budget_and_keeps_to_it(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 20_000
    with limited(steps=steps), _opened(monkeypatch) as made:
        DOORS[door]()
    assert len(made) <= 1
    for one in made:
        # one try may go over by what Z3 does before it looks at its limit
        assert one.steps >= -steps - one.parts * budget.STEPS_EACH - 500_000
        assert one.runs >= -2 * budget.RUNS


def test_the_limits_end_the_search_for_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    with _opened(monkeypatch) as made, limited(searches=2, searches_each=0):
        told = guards.explain(GuardSet(HARD, ranges={"x": (-6, None)}), {"x": -6, "y": 2})
    assert told is not None
    assert [one.searches <= 0 for one in made] == [True]


def test_a_hole_in_a_proof_is_told() -> None:
    entries = [_set("(x - 4)*(x + y) != -2")]
    contract = {"x": (0, None), "y": (2, None)}
    assert guards.certify(contract, entries).covered
    with limited(steps=0, steps_each=0):
        found = guards.certify(contract, entries)
    assert found.covered is None
    assert found.reason == f"not known: {budget.SPENT}"


@pytest.mark.parametrize("seed", range(40))
def test_little_work_makes_no_wrong_answer(seed: int) -> None:
    """Against all points of a small box."""
    fuzz_guard_regions.hurried(random.Random(seed))
