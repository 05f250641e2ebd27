"""Components: bounds and remainders contain all values, looking is sound, and joining keeps what is
known.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.ladder import Effort
from guards.asking.questions import ask_component
from guards.deciders.witnesses import points
from guards.domains.congruence import meets
from guards.domains.interval import Interval
from guards.errors import Contradiction, ParseError
from guards.facts.component import Component, Memo, contains, divisors, new_symbol, replaced
from guards.facts.facts import Facts
from guards.facts.propagate import assume, with_condition
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, le
from guards.terms.fold import evaluate
from tests.strategies import assumption, condition, integer, range_of_symbol

x, y, z = symbol("x"), symbol("y"), symbol("z")


def test_bounds_remainders_and_looks_are_right() -> None:
    rng = random.Random(14)
    compared = looked = 0
    for _ in range(600):
        names = ("x", "y")
        try:
            facts = facts_from(
                {name: range_of_symbol(rng) for name in names},
                [assumption(rng, names) for _ in range(rng.randint(0, 2))],
            )
            term, asked = parse(integer(rng, names)), parse(condition(rng, names))
        except (ParseError, Contradiction):
            continue
        if not asked.is_bool:
            continue
        component = facts.component(x + y)
        lo, hi = component.bounds(term)
        modulus, rest = component.congruence(term)
        found = component.look(asked)
        for a, b in product(range(-5, 9, 2), range(-4, 9, 3)):
            point = {"x": a, "y": b}
            if any(point[s.name] not in facts.declared(s) for s in (x, y)):
                continue
            try:
                if not all(evaluate(c, point) for c in facts.conditions):
                    continue
                value = evaluate(term, point)
                assert value in Interval(lo, hi), (facts, term, point)
                assert (value - rest) % modulus == 0 if modulus else value == rest, (
                    facts,
                    term,
                    point,
                )
                compared += 1
                if found is not None:
                    assert evaluate(asked, point) is found, (facts, asked, point)
                    looked += 1
            except ZeroDivisionError:
                continue
    assert compared > 1500
    assert looked > 200


def test_a_divisor_that_is_a_multiple_is_not_near_zero() -> None:
    """Bounds of quotients and remainders by ``number * x + number * shift`` contain all values, and
    none is lost.
    """
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


def test_what_is_stated_says_all() -> None:
    """The facts that a component states are what it was told, over the symbols that its rewrites
    leave.
    """
    facts = facts_from(
        {"x": (0, 9), "y": (0, 9)},
        ["x <= y", "x != 4", "2*x + y <= 20", "x == 1 or x == 5 or y == 3"],
    )
    component = facts.component(x + y)
    stated = component.stated()
    for a, b in product(range(-2, 12), repeat=2):
        point = {"x": a, "y": b}
        inside = 0 <= a <= 9 and 0 <= b <= 9 and all(evaluate(c, point) for c in facts.conditions)
        assert all(evaluate(c, point) for c in stated) is inside, point
    without = component.stated(ranges=False)
    assert set(without) < set(stated)
    assert ge(y, 1) not in set(without)


def test_a_copy_is_changed_alone() -> None:
    component = facts_from(
        {"x": (0, 9), "y": (0, 9)}, ["x + y <= 9", "x != 4", "y == 2*z"]
    ).component(x + y)
    copy = component.copy()
    for name in ("ranges", "rows", "rewrites", "equals", "fresh", "residue"):
        mine, its = getattr(component, name), getattr(copy, name)
        assert mine == its
        assert mine is not its
    assert copy.memo is not component.memo
    assert (copy.conditions, copy.symbols, copy.declared) == (
        component.conditions,
        component.symbols,
        component.declared,
    )


@pytest.mark.parametrize("text", ["min(x, y)", "max(x, y)", "(x if z > 0 else y)"])
def test_remainders_of_choices(text: str) -> None:
    """A choice has what its parts share: 7 and 11 leave 3 when divided by 4."""
    component = facts_from({"x": (7, 7), "y": (11, 11)}).component(x + y + z)
    assert component.congruence(parse(text)) == (4, 3)
    assert component.congruence(parse(f"6*{text} + 1")) == (24, 19)
    assert component.congruence(parse("x // z")) == (1, 0)


def test_joined_components_know_what_each_knows() -> None:
    one = facts_from({"x": (0, 9)}, ["x % 2 == 0"]).component(x)
    other = facts_from({"y": (3, None)}, ["y <= 2*z"]).component(y)
    joined = Component.joined([one, other])
    assert joined.symbols == {x, y, z}
    assert joined.conditions == (*one.conditions, *other.conditions)
    assert joined.bounds(x) == one.bounds(x)
    assert joined.look(parse("x % 2 == 0")) is one.look(parse("x % 2 == 0"))
    assert joined.canonical(x) is one.canonical(x)
    assert joined.bounds(z) == other.bounds(z) == (2, None)
    assert not joined.contradictory


def test_products_of_rewritten_symbols() -> None:
    component = Facts().assume(eq(y, 3)).assume(le(x, 5)).component(x + y)
    assert component.canonical(x * y) is 3 * x
    assert component.bounds(x * y) == (0, 15)
    assert component.congruence(component.canonical(x * y)) == (3, 0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x % y == 0", ["y"]),
        ("x // (y + 1) + z % y <= 3", ["y", "y + 1"]),
        ("x % 8 == 0", []),
        ("x % y == 0 or x == 1", []),  # a connective may speak through its other part
        ("(x % y if y > 0 else 0) == 0", []),
    ],
)
def test_divisors(text: str, wanted: list[str]) -> None:
    assert sorted(map(str, divisors(parse(text)))) == sorted(wanted)


def test_parts_of_terms() -> None:
    assert contains(parse("x // (y + 1)"), parse("y + 1"))
    assert contains(parse("x // (y + 1)"), y)
    assert not contains(parse("x // (y + 1)"), parse("x + 1"))
    assert replaced(parse("x // y"), {y: parse("0")}) is None
    assert replaced(parse("x // y"), {y: parse("2")}) is parse("x // 2")
    assert not new_symbol("2:x").name.isidentifier()
    assert meets((8, 3), 11)


# -- the memo --------------------------------------------------------------------------------------


_QUESTIONS = [
    parse(text)
    for text in (
        "(x + 7) // 8 * 8 >= x",
        "x % 5 < 4",
        "x // y <= x",
        "x*x % 4 <= 1",
        "x == y",
    )
]


def _component() -> Component:
    return Facts.make({x: (1, None), symbol("y"): (1, None)}, [parse("x <= 2*y")]).component(x)


def _answers(component: Component) -> list[bool | None]:
    return [ask_component(component, question, Effort.FULL, None) for question in _QUESTIONS]


def test_emptying_it_changes_no_answer() -> None:
    component = _component()
    first = _answers(component)
    shown = points(component)
    for name in ("answers", "assumed", "freedom", "points", "simplified"):
        setattr(component.memo, name, getattr(Memo(), name))
        assert _answers(component) == first
        component.memo.answers.clear()
        assert _answers(component) == first
    assert points(component) == shown


def test_a_component_with_more_conditions_has_its_own() -> None:
    component = _component()
    _answers(component)
    made = assume(component, (ge(x, 9),))
    assert made.memo is not component.memo
    assert made.memo.answers == {}
    # points that satisfy more are looked for among these
    assert made.memo.points is component.memo.points


def test_assumed_components_are_found_again() -> None:
    component = _component()
    assert with_condition(component, ge(x, 9)) is with_condition(component, ge(x, 9))
    assert list(component.memo.assumed) == [ge(x, 9)]
    for number in range(200):
        with_condition(component, ge(x, number + 10))
    assert len(component.memo.assumed) <= 64
