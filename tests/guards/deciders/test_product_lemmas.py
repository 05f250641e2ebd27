"""Lemmas about products: they exclude no point, and they refute what needs them."""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.linear import OutOfBudget
from guards.deciders.linear_relaxation import Budget, Relaxation, TooLarge
from guards.deciders.product_lemmas import Inequality, chord, envelope, refuted_by_products
from guards.errors import Contradiction, ParseError
from guards.terms.arithmetic import symbol
from guards.terms.boolean import not_
from guards.terms.fold import evaluate
from tests.guards.deciders.relaxed import broken
from tests.strategies import range_of_symbol


def _product(rng: random.Random) -> str:
    atoms = [rng.choice(("x", "y", "z", "(x - 2)", "(y + 1)")) for _ in range(rng.randint(2, 3))]
    return (
        f"{rng.randint(1, 3)}*{'*'.join(atoms)} {rng.choice('+-')} "
        f"{rng.choice(('x', 'y*z', 'x*x', 'z'))}"
    )


def test_no_point_is_lost() -> None:
    rng = random.Random(23)
    compared = refuted = lemmas = 0
    for _ in range(700):
        names = ("x", "y", "z")
        ranges = {name: range_of_symbol(rng) for name in names}
        try:
            formula = parse(
                f"{_product(rng)} {rng.choice(('<=', '==', '>='))} {_product(rng)} and "
                f"{_product(rng)} <= 9"
            )
            facts = facts_from(ranges)
        except (ParseError, Contradiction):
            continue
        node = Relaxation(facts.component(formula), Budget())
        try:
            if not node.add(formula) or not node.tableau.feasible():
                continue
            before = len(node.tableau.forms)
            impossible = refuted_by_products(node)
        except (OutOfBudget, TooLarge):
            continue
        lemmas += len(node.tableau.forms) - before
        refuted += impossible
        for _ in range(30):
            point = {name: rng.randint(-5, 9) for name in names}
            if all(point[s.name] in facts.declared(s) for s in facts.symbols) and evaluate(
                formula, point
            ):
                assert not impossible, (facts, formula, point)
                assert not list(broken(node, point)), (facts, formula)
                compared += 1
    assert compared > 300
    assert refuted > 30
    assert lemmas > 300


@pytest.mark.parametrize(
    ("law", "ranges"),
    [
        ("x*y >= x", {"x": (1, None), "y": (1, None)}),  # a bound times a bound
        ("x*x >= x", {"x": (None, None)}),  # a chord of the square
        (
            "x*x + y*y >= 2*x*y",
            {"x": (None, None), "y": (None, None)},
        ),  # the square of a difference
        (
            "x*x + y*y + z >= 2*x*y",
            {"x": (None, None), "y": (None, None), "z": (0, None)},
        ),  # it alone is no refutation
        ("x*y <= 8*y", {"x": (0, 8), "y": (0, 5)}),
    ],
)
def test_laws_that_need_them(law: str, ranges: dict[str, tuple[int | None, int | None]]) -> None:
    against = not_(parse(law))
    node = Relaxation(facts_from(ranges).component(against), Budget())
    assert node.add(against)
    assert not node.tableau.feasible() or refuted_by_products(node)
    beyond = not_(parse(law.replace(">= ", ">= 2 + ").replace("<= ", "<= -2 + ")))
    other = Relaxation(facts_from(ranges).component(beyond), Budget())
    assert other.add(beyond)
    assert other.tableau.feasible()
    assert not refuted_by_products(other)


def test_constraints_are_multiplied() -> None:
    """``i < l`` and ``j < m`` give ``i*m + j < l*m`` by multiplying the first with ``m``."""
    against = parse("i < l and j < m and m >= 1 and i >= 0 and j >= 0 and i*m + j >= l*m")
    node = Relaxation(facts_from(dict.fromkeys("iljm", (0, None))).component(against), Budget())
    assert node.add(against)
    assert node.tableau.feasible()
    assert refuted_by_products(node)


@pytest.mark.parametrize(
    ("lowest", "text", "impossible"),
    [
        (1, "i < l and i*m*n >= l*m*n", True),
        (0, "i < l and i*m*n > l*m*n", True),
        (0, "i < l and i*m*n >= l*m*n", False),  # all are equal where m is 0
        (-1, "i < l and i*m*n > l*m*n + 3", False),  # i, l = 0, 4 where m*n is -1
    ],
)
def test_constraints_are_multiplied_by_products_without_a_sign(
    lowest: int, text: str, impossible: bool
) -> None:
    """``i < l`` gives ``i*m*n <= l*m*n`` where ``m*n >= 0``, and nothing where ``m*n`` may be
    negative.
    """
    against = parse(text)
    ranges = {
        "i": (None, None),
        "l": (None, None),
        "m": (lowest, lowest + 1),
        "n": (0, 1) if lowest < 0 else (1, None),
    }
    component = facts_from(
        ranges if lowest else {**ranges, "m": (0, None), "n": (0, None)}
    ).component(against)
    assert component.bounds(parse("m*n"))[0] == lowest
    node = Relaxation(component, Budget())
    assert node.add(against)
    assert node.tableau.feasible()
    assert refuted_by_products(node) is impossible


def test_the_budget_is_kept() -> None:
    against = parse("x*y*z >= 5 and x*y <= 2 and y*z <= 3")
    budget = Budget()
    budget.lemmas = 0
    node = Relaxation(facts_from(dict.fromkeys("xyz", (0, 90))).component(against), budget)
    assert node.add(against)
    assert node.tableau.feasible()
    with pytest.raises(OutOfBudget):
        refuted_by_products(node)


# -- McCormick's envelope --------------------------------------------------------------------------


u, v = symbol("u"), symbol("v")
BOXES = [((-3, 4), (-2, 5)), ((0, 6), (1, 3)), ((-7, -2), (2, 2)), ((1, 4), (-6, -1))]


def _slack(inequality: Inequality, point: dict[str, int]) -> int:
    constant, items = inequality
    return constant + sum(c * evaluate(m, point) for m, c in items)


@pytest.mark.parametrize(("u_pair", "v_pair"), BOXES)
def test_the_envelope_contains_the_product(
    u_pair: tuple[int, int], v_pair: tuple[int, int]
) -> None:
    found = envelope(u * v, u, v, u_pair, v_pair)
    assert len(found) == 4
    for a, b in product(range(u_pair[0], u_pair[1] + 1), range(v_pair[0], v_pair[1] + 1)):
        point = {"u": a, "v": b}
        slacks = [_slack(inequality, point) for inequality in found]
        distances = [(a - lo) * (b - other) for lo in u_pair for other in v_pair]
        # each is the product of two distances from bounds
        assert sorted(slacks) == sorted(map(abs, distances))
        assert min(slacks) >= 0


@pytest.mark.parametrize(("u_pair", "v_pair"), BOXES)
def test_it_is_tight_at_the_corners(u_pair: tuple[int, int], v_pair: tuple[int, int]) -> None:
    """At a corner the only product that the four allow is the right one."""
    for a, b in product(u_pair, v_pair):
        allowed = [
            w
            for w in range(-60, 61)
            if all(
                constant + sum(c * (w if m is u * v else a if m is u else b) for m, c in items) >= 0
                for constant, items in envelope(u * v, u, v, u_pair, v_pair)
            )
        ]
        assert allowed == [a * b]


def test_each_needs_one_bound_of_each_factor() -> None:
    assert len(envelope(u * v, u, v, (2, None), (None, 5))) == 1
    assert len(envelope(u * v, u, v, (2, None), (0, None))) == 1
    assert len(envelope(u * v, u, v, (None, 7), (0, 5))) == 2
    assert envelope(u * v, u, v, (None, None), (0, 5)) == []


def test_chords_of_the_square_hold_for_integers() -> None:
    for below in range(-5, 6):
        inequality = chord(u * u, u, below)
        slacks = {a: _slack(inequality, {"u": a}) for a in range(-9, 10)}
        assert min(slacks.values()) == 0
        assert [a for a, slack in slacks.items() if slack == 0] == [below, below + 1]
