"""The simplex, and refutation on top of it: never refutes what has a solution."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.ask.ladder import decide, facts_from
from guards.ask.reading import parse
from guards.deciders.case_split import unsolvable
from guards.deciders.linear import OutOfBudget, Tableau
from guards.deciders.linear_refutation import refutes, refutes_all
from guards.deciders.witnesses import exhaust
from guards.domains.interval import Interval
from guards.errors import Contradiction, ParseError
from guards.facts.component import normal_form
from guards.facts.facts import Facts
from guards.terms import arithmetic
from guards.terms.arithmetic import linear, symbol
from guards.terms.boolean import and_, ge, le
from guards.terms.fold import evaluate
from guards.terms.term import Op
from tests.strategies import assumption, condition, range_of_symbol

NAMES = ("x", "y", "z")
SYMBOLS = [symbol(name) for name in NAMES]


def _random_rows(rng: random.Random) -> list[tuple[tuple[int, ...], int | None, int | None]]:
    rows = []
    for _ in range(rng.randint(1, 5)):
        coefficients = tuple(rng.randint(-4, 4) for _ in NAMES)
        middle = rng.randint(-12, 12)
        rows.append((coefficients, rng.choice([None, middle]), rng.choice([None, middle + rng.randint(0, 3)])))
    return rows


def test_infeasible_rows_have_no_solution() -> None:
    rng = random.Random(3)
    infeasible = feasible = 0
    for _ in range(1200):
        tableau = Tableau(500)
        box = [(rng.randint(-4, 0), rng.randint(0, 4)) for _ in NAMES]
        for term, pair in zip(SYMBOLS, box, strict=True):
            tableau.index[term] = tableau.variable(pair)
        rows = _random_rows(rng)
        possible = True
        for coefficients, lo, hi in rows:
            term = linear(0, dict(zip(SYMBOLS, coefficients, strict=True)))
            if term.op is Op.CONST:
                possible = possible and (lo is None or lo <= 0) and (hi is None or hi >= 0)
                continue
            form, factor = normal_form(arithmetic.split(term)[1])
            low, high = (lo, hi) if factor > 0 else (None if hi is None else -hi, None if lo is None else -lo)
            low = None if low is None else -(-low // abs(factor))
            high = None if high is None else high // abs(factor)
            possible = tableau.restrict(tableau.form(form), low, high) and possible
        possible = possible and tableau.feasible()
        solved = any(
            all(
                (lo is None or lo <= value) and (hi is None or value <= hi)
                for coefficients, lo, hi in rows
                for value in [sum(c * v for c, v in zip(coefficients, point, strict=True))]
            )
            for point in product(*[range(lo, hi + 1) for lo, hi in box])
        )
        assert possible or not solved
        if possible:
            feasible += 1
            for coefficients, lo, hi in rows:  # the point reached is within all bounds, exactly
                at = [tableau.at(tableau.index[s]) for s in SYMBOLS]
                common = 1
                for _, denominator in at:
                    common *= denominator
                total = sum(c * n * (common // d) for c, (n, d) in zip(coefficients, at, strict=True))
                assert lo is None or lo * common <= total + common  # bounds were rounded to integers
                assert hi is None or total - common <= hi * common
        else:
            infeasible += 1
    assert feasible > 200
    assert infeasible > 100


def test_copies_are_independent() -> None:
    x, y, _ = SYMBOLS
    tableau = Tableau(100)
    for term in (x, y):
        tableau.index[term] = tableau.variable((0, 10))
    form = tableau.form(((x, 1), (y, 1)))
    assert tableau.restrict(form, 5, None)
    assert tableau.feasible()
    copy = tableau.copy()
    assert copy.restrict(form, 21, None)
    assert not copy.feasible()
    assert tableau.feasible()


def test_the_budget_is_kept() -> None:
    tableau = Tableau(0)
    x, y, _ = SYMBOLS
    for term in (x, y):
        tableau.index[term] = tableau.variable((0, 10))
    tableau.restrict(tableau.form(((x, 1), (y, -1))), 3, 5)
    with pytest.raises(OutOfBudget):
        tableau.feasible()


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


def test_exhausting_a_box() -> None:
    facts = facts_from({"x": (0, 9), "y": (1, 9)}, ["x <= y"])
    component = facts.component(parse("x + y"))
    assert exhaust(component, parse("x > y")) is True
    assert exhaust(component, parse("x // y == 1")) is False
    assert exhaust(component, parse("x*y == 83")) is True
    assert exhaust(component, parse("x + z == 3")) is None
    assert exhaust(component, parse("x == 3"), limit=5) is None
    loose = facts_from({"x": (0, 3), "y": (0, 3)})
    assert exhaust(loose.component(parse("x + y")), parse("x // y >= 9 or x*y >= 99")) is None


def test_equations_without_solutions_modulo_something() -> None:
    for text in ("x*x + y*y == 4*z + 3", "x*x == 3*y + 2", "x*x*x == 9*y + 4", "x*x == 16*y + 5"):
        assert unsolvable(parse(text)), text
    for text in ("x*x + y*y == 4*z + 1", "x*x == 3*y + 1", "x*y == 7", "x + y == 3", "x*x == y + 2", "x*x <= 3"):
        assert not unsolvable(parse(text)), text


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


def test_carries_hold_for_all_divisors() -> None:
    for a, b, n in product(range(-9, 10), range(-9, 10), range(-5, 6)):
        if n:
            assert 0 <= (a + b) // n - a // n - b // n <= 1


def test_a_divisor_that_is_a_multiple_is_not_near_zero() -> None:
    """Bounds of quotients and remainders by ``number * x + number * shift`` contain all values, and none is lost."""
    rng = random.Random(8)
    sharper = 0
    for _ in range(400):
        number, shift = rng.choice((2, 5, 30)), rng.randint(-2, 2)
        ranges = {name: range_of_symbol(rng) for name in ("x", "y")}
        text = f"(y) {rng.choice(('//', '%'))} ({number}*x + {number * shift})"
        term = parse(text)
        try:
            facts = facts_from(ranges)
        except Contradiction:
            continue
        lo, hi = facts.component(term).bounds(term)
        sharper += lo is not None or hi is not None
        for a, b in product(range(-12, 13), repeat=2):
            if a in facts.declared(symbol("x")) and b in facts.declared(symbol("y")) and a + shift:
                value = evaluate(term, {"x": a, "y": b})
                assert value in Interval(lo, hi), (text, ranges, a, b)
    assert sharper > 100
