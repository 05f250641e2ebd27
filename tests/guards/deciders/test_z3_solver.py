"""Z3: Python's meaning of division, models that satisfy, and limits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import z3

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.budget import STEPS, whole_question
from guards.deciders import z3_solver
from guards.deciders.z3_solver import Proved, Refuted, Unknown, solve_formula
from guards.errors import Contradiction, ParseError
from guards.terms.boolean import not_
from guards.terms.fold import evaluate
from tests.strategies import question


def _outcome(
    text: str, ranges: dict[str, tuple[int | None, int | None]], assume: tuple[str, ...] = ()
) -> object:
    term = parse(text)
    return solve_formula(facts_from(ranges, assume).component(term), term)


@pytest.mark.parametrize("divisor", [-7, -3, -2, -1, 1, 2, 3, 8])
@pytest.mark.parametrize("symbolic", [False, True])
def test_division_is_pythons(divisor: int, symbolic: bool) -> None:
    for value in range(-9, 10):
        by = "d" if symbolic else f"({divisor})"
        ranges = {"a": (value, value), "d": (divisor, divisor), "q": (-99, 99), "r": (-99, 99)}
        wanted = f"a // {by} == q and a % {by} == r"
        # the symbols are kept from being constants, so that Z3 and not the constructors divides
        ranges["a"], ranges["d"] = (value, value + 1), (divisor, divisor + 1)
        outcome = _outcome(f"{wanted} and a == {value} and d == {divisor}", ranges)
        assert isinstance(outcome, Refuted)
        assert (outcome.model["q"], outcome.model["r"]) == divmod(value, divisor)


def test_outcomes() -> None:
    assert isinstance(_outcome("x*x + 1 <= 0", {"x": (None, None)}), Proved)
    found = _outcome("x*y == 91 and x > 1 and y > 1", {})
    assert isinstance(found, Refuted)
    assert found.model["x"] * found.model["y"] == 91
    hard = "x*x*x + y*y*y + z*z*z == 114"
    assert isinstance(_outcome(hard, dict.fromkeys("xyz", (None, None))), Unknown)


def test_models_satisfy_everything() -> None:
    rng = random.Random(8)
    models = 0
    for _ in range(300):
        asked = question(rng)
        try:
            facts = facts_from(asked.ranges, asked.assume)
            term = parse(asked.query)
        except (Contradiction, ParseError):
            continue
        if not term.is_bool or not term.symbols:
            continue
        outcome = solve_formula(facts.component(term), term)
        if isinstance(outcome, Refuted):
            models += 1
            assert evaluate(term, outcome.model) is True
            component = facts.component(term)
            assert all(evaluate(c, outcome.model) for c in component.conditions)
            assert all(outcome.model[s.name] in facts.declared(s) for s in component.symbols)
    assert models > 100


def test_the_solver_moves_between_components() -> None:
    small, large = facts_from({"x": (0, 5)}), facts_from({"x": (6, 9)})
    term = parse("x*x*x >= 150")
    assert isinstance(solve_formula(small.component(term), term), Proved)
    assert isinstance(solve_formula(large.component(term), term), Refuted)
    assert isinstance(solve_formula(small.component(term), term), Proved)
    assert isinstance(solve_formula(large.component(term), not_(parse("x*x*x >= 0"))), Proved)


def test_oversized_formulas_are_not_sent() -> None:
    text = " or ".join(f"x*x*{k} + y == {k + 1}*x % {k + 2} + {k}" for k in range(2, 900))
    outcome = _outcome(text, {})
    assert isinstance(outcome, Unknown)
    assert "parts" in outcome.reason


class _Slow:
    """A solver whose clock rings on a busy machine: each check has this thread work a part of the
    time by the wall.
    """

    def __init__(self, clock: Callable[[float], object], needs: float, share: float) -> None:
        self.clock, self.needs, self.share = clock, needs, share
        self.timeout, self.tries = z3_solver.EMERGENCY, 0

    def set(self, name: str, value: int) -> None:
        if name == "timeout":
            self.timeout = value

    def check(self) -> z3.CheckSatResult:
        self.tries += 1
        worked = min(self.needs, self.timeout * self.share)
        self.clock(worked / 1e3)
        return z3.unsat if worked == self.needs else z3.unknown

    def reason_unknown(self) -> str:
        return "timeout"


@pytest.mark.parametrize(
    ("share", "needs", "settled", "tries"),
    [
        *((1, 800, True, 1), (1, 1100, False, 1), (0.5, 800, True, 2), (0.5, 9000, False, 2)),
        *((0.25, 800, True, 3), (0.02, 800, True, 7), (0.001, 800, False, 7)),
    ],
)
def test_the_clock_goes_by_what_this_thread_works(
    share: float, needs: float, settled: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that takes 0.8 s of work is settled however busy the machine is; one that would
    take 9 s never is.
    """
    now = [0.0]
    monkeypatch.setattr(z3_solver, "thread_time", lambda: now[0])
    slow = _Slow(lambda seconds: now.__setitem__(0, now[0] + seconds), needs, share)
    meter = z3_solver._Meter(context := z3.Context())
    meter.check(z3.SimpleSolver(ctx=context), 1000)
    with whole_question() as budget:
        found = meter.check(slow, 1000)
        assert (found == z3.unsat) is settled
        assert slow.tries == tries
        assert slow.timeout == z3_solver.EMERGENCY
        assert STEPS - budget.steps == (1 if settled else 1 + z3_solver.STOPPED)
