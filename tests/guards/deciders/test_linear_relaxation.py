"""The linear relaxation: whatever satisfies the formulas satisfies it, and what it says of
divisions is sharp.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.deciders.linear_relaxation import Budget, Relaxation, TooLarge
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.arithmetic import linear, symbol
from guards.terms.boolean import and_, le
from guards.terms.fold import evaluate
from tests.guards.deciders.relaxed import broken
from tests.strategies import assumption, condition, range_of_symbol


def _relaxed(
    text: str, ranges: dict[str, tuple[int | None, int | None]], *assumed: str
) -> Relaxation:
    formula = parse(text)
    node = Relaxation(facts_from(ranges, assumed).component(formula), Budget())
    assert node.add(formula)
    assert node.take_facts()
    return node


def test_no_point_is_lost() -> None:
    rng = random.Random(17)
    compared = 0
    for _ in range(500):
        names = ("x", "y", "z")[: rng.randint(1, 3)]
        ranges = {name: range_of_symbol(rng) for name in names}
        try:
            facts = facts_from(ranges, [assumption(rng, names) for _ in range(rng.randint(0, 2))])
            formula = and_(parse(condition(rng, names)), parse(condition(rng, names)))
        except (ParseError, Contradiction, TypeError):
            continue
        component = facts.component(formula)
        node = Relaxation(component, Budget())
        try:
            possible = node.add(formula) and node.take_facts()
        except (TooLarge, ZeroDivisionError):
            continue
        for _ in range(25):
            point = {name: rng.randint(-7, 12) for name in ("x", "y", "z")}
            if any(point[s.name] not in facts.declared(s) for s in facts.symbols | formula.symbols):
                continue
            try:
                if not (
                    evaluate(formula, point) and all(evaluate(c, point) for c in facts.conditions)
                ):
                    continue
                assert possible, (facts, formula, point)
                inner = _with_new_symbols(component, point)
                if inner is not None:
                    assert not list(broken(node, inner)), (facts, formula)
                    compared += 1
            except ZeroDivisionError:
                continue
    assert compared > 300


def _with_new_symbols(component: object, point: dict[str, int]) -> dict[str, int] | None:
    """The point and values of the symbols that the component made for itself: none where it made
    some.
    """
    return None if component.fresh else point  # type: ignore[attr-defined]


@pytest.mark.parametrize("n", [-3, -1, 1, 2, 5])
def test_carries_are_nought_or_one(n: int) -> None:
    """What is assumed of the quotients of a sum and of its parts holds for every divisor of that
    sign.
    """
    sign = "n <= -1" if n < 0 else "n >= 1"
    anything = dict.fromkeys("abn", (None, None))
    node = _relaxed("(a + b) // n - a // n - b // n >= 1", anything, sign)
    assert node.carries
    for a, b in product(range(-9, 10), repeat=2):
        for carry in node.carries:
            assert evaluate(carry, {"a": a, "b": b, "n": n}) in (0, 1)


def test_a_quotient_lies_between_its_fractions() -> None:
    """With the dividend fixed the relaxation allows one integer for ``x // 7``."""
    for value in (-15, -14, -1, 0, 6, 7, 20):
        for quotient in range(-4, 5):
            node = _relaxed(f"x // 7 == {quotient} and x == {value}", {"x": (None, None)})
            assert node.tableau.feasible() is (quotient == value // 7)


def test_what_is_left_open() -> None:
    node = _relaxed(
        "(x == 1 or y == 2) and x != y and max(x, y) <= 9 and (x if x > 3 else y) > 2 and x*y <= 9",
        {},
    )
    assert [len(node.open), len(node.unequal), len(node.extremes), len(node.ites)] == [1, 1, 1, 1]
    assert node.products == [parse("x*y")]


def test_branches_do_not_change_each_other() -> None:
    node = _relaxed("x + y <= 9 and x >= 1 and y >= 1", {})
    branch = node.copy()
    assert branch.budget is node.budget
    assert branch.add(parse("x + y >= 10")) is False or not branch.tableau.feasible()
    assert branch.inputs != node.inputs
    assert node.tableau.feasible()


def test_equations_without_integers_are_seen() -> None:
    node = Relaxation(Facts().component(parse("x + y")), Budget())
    assert not node.copy().add_zero(parse("2*x - 4*y + 1"))
    assert not node.copy().add_zero(parse("3"))
    assert node.add_zero(parse("2*x - 4*y + 2"))


def test_large_ones_are_refused() -> None:
    many = linear(0, {symbol(f"v{i}"): 1 + i % 3 for i in range(200)})
    with pytest.raises(TooLarge):
        Relaxation(Facts().component(many), Budget()).add(le(many, 5))


@pytest.mark.parametrize(
    ("divisor", "beyond", "within"),
    [
        ((1, None), "x - y*(x // y) >= y", "x - y*(x // y) >= y - 1"),
        ((None, -1), "y*(x // y) >= x - y", "y*(x // y) >= x - y - 1"),
    ],
)
def test_a_remainder_is_short_of_its_divisor(
    divisor: tuple[int | None, int | None], beyond: str, within: str
) -> None:
    """By one at least, whatever the divisor's sign."""
    for text, possible in ((beyond, False), (within, True)):
        formula = parse(text)
        node = Relaxation(facts_from({"x": (0, None), "y": divisor}).component(formula), Budget())
        assert (node.add(formula) and node.tableau.feasible()) is possible, text
