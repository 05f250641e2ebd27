"""Looking for values: what is found is a solution, and what depends on the values is seen without a
solver.
"""

from __future__ import annotations

import random

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.queries import decide
from guards.asking.reading import parse
from guards.deciders.local_search import hunt, placed
from guards.errors import Contradiction, ParseError
from guards.terms.fold import evaluate
from tests.oracles import Question, tried
from tests.strategies import assumption, condition, range_of_symbol

SIZE = (0, None)
ANY = (None, None)

# Questions whose answer depends on the values, one of the two answers at few of them.
DEPENDS: list[tuple[str, dict[str, tuple[int | None, int | None]], tuple[str, ...]]] = [
    ("(i + 55) // 64 == 6", {"i": ANY}, ("i >= 201",)),
    ("(x // 8 == 3 and x % 9 == 4) == (x == 28)", {"x": ANY}, ()),
    ("(10 - a) // 2 == 2", {"a": ANY}, ("a > 0",)),
    (
        "p == (i + j + 1) // 2",
        dict.fromkeys("pij", ANY),
        ("4*p - i - j + 2 >= 0", "-4*p + i + j >= 0"),
    ),
    ("implies(a < b and b < c, a + 2 < c)", dict.fromkeys("abc", ANY), ()),
    ("x % y < 1", {"x": (-9, 4), "y": (4, 10)}, ()),
    ("x * y <= 26", {"x": (-3, 4), "y": ANY}, ()),
    ("a == 4 or a == 5", {"a": (1, None), "b": (1, None)}, ("max(a, b) == 5", "min(a, b) == 3")),
    (
        "d // 2 - c // 3 == 2",
        dict.fromkeys("abcd", (1, None)),
        ("b == a", "d // 2 == max(c, a) // 3 + 2"),
    ),
    ("(a // b) * b == a - a // b", {"a": (1, None), "b": (1, None)}, ()),
    ("truncmod(a, 12) <= 9", {"a": (-20, 20)}, ()),
    (
        "x >= 0 and x <= 100 and 3*x - 3*y + 2 >= 0 and 5*y - 3*x - 1 >= 0",
        {"x": ANY, "y": SIZE},
        (),
    ),
    (
        "180*i + 60*j + 30*k + 5*l <= 630",
        {"i": (0, 2), "j": (0, 3), "k": (0, 2), "l": (0, 7)},
        ("j >= 1", "k + l >= 2"),
    ),
    ("r % (a + 4) > 11", {"r": SIZE, "a": (1, 9)}, ()),
]


@pytest.mark.parametrize(("query", "ranges", "assume"), DEPENDS, ids=[row[0] for row in DEPENDS])
def test_what_depends_is_seen_by_points(
    query: str, ranges: dict[str, tuple[int | None, int | None]], assume: tuple[str, ...]
) -> None:
    verdict = decide(query, ranges=ranges, assume=assume)
    assert verdict.value is None
    assert verdict.rung == "points", verdict
    for point, value in ((verdict.holds, True), (verdict.fails, False)):
        assert point is not None
        assert all(evaluate(parse(text), point) for text in assume)
        assert evaluate(parse(query), point) is value


def test_what_is_found_is_a_solution() -> None:
    """Random questions: a point found is within the ranges, satisfies the assumptions and shows the
    value.
    """
    rng = random.Random(5)
    found = missed = 0
    for _ in range(900):
        names = ("x", "y", "z")[: rng.randint(1, 3)]
        ranges = {name: range_of_symbol(rng) for name in names}
        assume = [assumption(rng, names) for _ in range(rng.randint(0, 2))]
        text = condition(rng, names)
        try:
            facts = facts_from(ranges, assume)
            asked = parse(text)
        except (ParseError, Contradiction):
            continue
        if asked.op < asked.op.EQ:
            continue
        component = facts.component(asked)
        point = hunt(component, asked, asked, True)
        if point is None:
            holds, _ = tried(Question(text, ranges, tuple(assume)), 4)
            missed += holds is not None
            continue
        found += 1
        assert all(evaluate(c, point) for c in facts.conditions)
        assert all(point[s.name] in facts.declared(s) for s in asked.symbols)
        assert evaluate(asked, point) is True
        assert set(point) == {s.name for s in component.symbols}
    assert found > 300
    assert missed < 0.1 * found, (missed, found)


@pytest.mark.parametrize(
    ("range_", "first", "last"),
    [(ANY, -12, 11), ((5, None), 5, 28), ((None, -40), -63, -40), ((-3, 3), -3, 3)],
)
def test_values_near_the_ends_are_all_tried(
    range_: tuple[int | None, int | None], first: int, last: int
) -> None:
    """A cube modulo a prime leads nowhere, and has one root: the 24 values near an end, or around
    0, are tried.
    """
    for root in range(first, last + 1):
        asked = parse(f"x*x*x % 1013 == {root**3 % 1013}")
        point = hunt(facts_from({"x": range_}).component(asked), asked, asked, True)
        assert point is not None, root
        assert (point["x"] - root) % 1013 == 0


def test_a_solution_is_placed_among_other_symbols() -> None:
    facts = facts_from({"x": (0, 9), "y": (0, None)}, ["y == 2*x + 1"])
    asked = parse("x == 4")
    component = facts.component(asked)
    assert placed(component, asked, {"x": 4}, True) == {"x": 4, "y": 9}
    assert placed(component, asked, {"x": 5}, True) is None
    assert placed(component, asked, {"x": 12}, False) is None
