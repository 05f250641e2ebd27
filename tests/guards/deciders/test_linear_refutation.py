"""Refutation by linear elimination: never refutes what has a solution, and needs no solver for what
is linear.
"""

from __future__ import annotations

import random

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.queries import decide
from guards.deciders.linear_refutation import refutes, refutes_all
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.arithmetic import linear, symbol
from guards.terms.boolean import and_, ge, le
from guards.terms.fold import evaluate
from tests.strategies import assumption, condition, range_of_symbol

NAMES = ("x", "y", "z")


@pytest.mark.slow
def test_nothing_with_a_solution_is_refuted() -> None:
    rng = random.Random(44)
    refuted = kept = 0
    for _ in range(2500):
        names = NAMES[: rng.randint(1, 3)]
        ranges = {name: range_of_symbol(rng) for name in names}
        try:
            facts = facts_from(ranges, [assumption(rng, names) for _ in range(rng.randint(0, 2))])
            formula = and_(parse(condition(rng, names)), parse(condition(rng, names)))
        except (ParseError, Contradiction, TypeError):
            continue
        component = facts.component(formula)
        if not (refutes(component, formula) or refutes_all(component, formula)):
            kept += 1
            continue
        refuted += 1
        for _ in range(60):
            point = {name: rng.randint(-8, 12) for name in names}
            if any(point[s.name] not in facts.declared(s) for s in facts.symbols | formula.symbols):
                continue
            try:
                if all(evaluate(c, point) for c in facts.conditions):
                    assert not evaluate(formula, point), (facts, formula, point)
            except ZeroDivisionError:
                continue
    assert refuted > 150
    assert kept > 300


def test_too_large_questions_are_left_alone() -> None:
    many = linear(0, {symbol(f"v{i}"): 1 + i % 3 for i in range(200)})
    assert not refutes(Facts().component(many), le(many, 5))
    facts = Facts()
    for i in range(200):
        facts = facts.assume(le(symbol(f"v{i}"), symbol(f"v{i + 1}")))
    question = and_(ge(symbol("v3"), symbol("v4")), ge(symbol("v3"), symbol("v4") + 1))
    assert refutes(facts.component(question), question)


@pytest.mark.parametrize(
    ("query", "assumed"),
    [
        ("x % n + y % n >= (x + y) % n", ["n >= 1"]),
        ("x % n + y % n - (x + y) % n <= n", ["n >= 1"]),
        ("(x + y) // n - x // n - y // n <= 1", ["n <= -1"]),
        ("(x - y) // n >= x // n - y // n - 1", ["n != 0"]),
        ("-((-x) // n) == x // n + 1", ["n >= 1", "x % n != 0"]),
        ("(-x) % n == n - x % n", ["n >= 1", "x % n != 0"]),
        ("(i*m + j)*n + k < l*m*n", ["0 <= i", "i < l", "0 <= j", "j < m", "0 <= k", "k < n"]),
    ],
)
def test_carries_and_chained_products_need_no_solver(query: str, assumed: list[str]) -> None:
    verdict = decide(query, ranges=dict.fromkeys("xynijklm", (None, None)), assume=assumed)
    assert verdict.value is True
    assert verdict.rung in ("linear", "cases"), verdict


@pytest.mark.parametrize(
    "formula",
    [
        "x >= 1 and x <= 0 or y < 0",  # branches on `or`
        "x != y and x <= y and y <= x",  # on `!=`
        "max(x, y) > x and max(x, y) > y",  # on an operand
        "(x if x > y else y) < x",  # on a condition
        "2*x + 3*y == 7 and x == y and x <= 3",  # on a fraction: x is 7/5
    ],
)
def test_each_kind_of_branch(formula: str) -> None:
    component = Facts().component(parse("x + y + z"))
    assert refutes(component, parse(formula))


def test_all_that_is_known_is_taken_in() -> None:
    facts = facts_from(dict.fromkeys("abcd", (0, 90)), ["a <= b", "b <= c", "c <= d"])
    component = facts.component(parse("a + d"))
    assert refutes(component, parse("a > d"))
    assert refutes_all(component, parse("a > d"))
    assert not refutes_all(component, parse("a >= d"))


@pytest.mark.parametrize("assumed", ["x == 1 or x == 5", "x != 3", "x + y <= 1"])
def test_facts_of_every_kind_are_taken_in(assumed: str) -> None:
    """Rows, and what is no row: neither needs the other."""
    component = facts_from({"x": (0, 9), "y": (0, 9)}, [assumed]).component(parse("x + y"))
    formula = parse("x >= 3 and 2*x + y <= 6 and x + y <= 7")
    assert refutes(component, formula)
    assert not refutes(facts_from({"x": (0, 9), "y": (0, 9)}).component(formula), formula)
