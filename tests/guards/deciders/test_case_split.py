"""Refutation by cases: what each split refutes, that nothing with a solution is, and equations
modulo something.
"""

from __future__ import annotations

import itertools

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.case_split import refutes, unsolvable
from guards.deciders.linear_refutation import refutes_all
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import FALSE, ne, not_
from guards.terms.fold import evaluate

x = symbol("x")
ANY = (None, None)


@pytest.mark.parametrize(
    ("law", "ranges", "assumed"),
    [
        ("x*x % 4 <= 1", {"x": ANY}, []),  # by the remainder
        ("(x*x + x) % 2 == 0", {"x": ANY}, []),
        ("x*(x - 1)*(x - 2) % 3 == 0", {"x": (0, 7)}, []),  # by the value
        ("x*x*y >= 0", {"x": ANY, "y": (0, None)}, []),  # by the sign
        ("max(x, y)*max(x, y) >= x*y", {"x": (0, None), "y": (0, None)}, []),  # by the operand
        ("(x if x > y else y) // 2 * 2 >= x - 1", {"x": ANY, "y": ANY}, []),  # by the condition
        ("x*x % 3 == 1", {"x": ANY}, ["x % 3 == 1 or x % 3 == 2"]),  # by an assumption
    ],
)
def test_laws_that_need_cases(
    law: str, ranges: dict[str, tuple[int | None, int | None]], assumed: list[str]
) -> None:
    condition = parse(law)
    component = facts_from(ranges, assumed).component(condition)
    assert refutes(component, not_(condition))
    assert not refutes(component, condition)


@pytest.mark.parametrize(("low", "high"), [(0, 3), (-1, 2), (-3, 0), (2, 5)])
def test_cases_try_the_values_of_a_short_range(low: int, high: int) -> None:
    """One case for each value, where zero and negative ends are ends like others."""
    component = facts_from({"x": (low, high)}).component(x)
    vanishing = const(1)
    for value in range(low, high + 1):
        vanishing = vanishing * (x - value)
    assert refutes(component, ne(vanishing, 0))
    assert not refutes(component, ne(vanishing, vanishing * 0 + 1000))


def test_nothing_with_a_solution_is_refuted() -> None:
    """Formulas with exactly one solution in a box, at every place of it."""
    box = {"x": (-2, 3), "y": (0, 4)}
    component = facts_from(box).component(parse("x + y"))
    for a, b in itertools.product(range(-2, 4), range(5)):
        formula = parse(
            f"x*x + y*y == {a * a + b * b} and max(x, y) == {max(a, b)} and x % 3 == {a % 3} and "
            f"x*y == {a * b}"
        )
        assert evaluate(formula, {"x": a, "y": b}) is True
        assert not refutes(component, formula)


def test_cases_go_beyond_elimination() -> None:
    component = facts_from({"x": ANY}).component(parse("x"))
    formula = parse("x*x % 4 >= 2")
    assert not refutes_all(component, formula)
    assert refutes(component, formula)


def test_the_number_of_cases_is_limited() -> None:
    names = [f"v{i}" for i in range(30)]
    text = (
        " and ".join(f"({n} == 1 or {n} == 2 or {n} == 3)" for n in names)
        + f" and {' + '.join(names)} == 17"
    )
    formula = parse(text)
    assert not refutes(facts_from({}).component(formula), formula)
    assert refutes(facts_from({}).component(parse("x")), FALSE)


def test_equations_without_solutions_modulo_something() -> None:
    for text in ("x*x + y*y == 4*z + 3", "x*x == 3*y + 2", "x*x*x == 9*y + 4", "x*x == 16*y + 5"):
        assert unsolvable(parse(text)), text
    for text in (
        "x*x + y*y == 4*z + 1",
        "x*x == 3*y + 1",
        "x*y == 7",
        "x + y == 3",
        "x*x == y + 2",
        "x*x <= 3",
    ):
        assert not unsolvable(parse(text)), text
