"""Projection: the values of one symbol for which the rest can hold, against trying all values of
the rest.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards import GuardSet, parse
from guards.regions import projection
from guards.regions.satisfiability import Search, search

FAR = 40  # too many values to be tried one by one in the elimination
Range = tuple[int | None, int | None]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["s0 == 8*s1"], "s0 % 8 == 0"),
        (["s0 == 8*s1", "s1 >= 3"], "s0 % 8 == 0 and s0 >= 24"),
        (["3*s1 <= s0", "s0 <= 3*s1 + 1"], "s0 % 3 != 2"),
        (["3*s1 <= s0", "s0 <= 4*s1", "s1 >= 1"], "s0 >= 3 and s0 != 5"),
        (["s0 == 6*s1 + 10*s2"], "s0 % 2 == 0 and s0 != 2 and s0 != 4 and s0 != 8 and s0 != 14"),
        (["s0 + s1 == 10", "s1 % 4 == 1", "s1 % 6 < 3"], "s0 == 9"),
        (["s1 % s0 == 0", "s1 == 12"], "s0 >= 1 and s0 <= 6 and s0 != 5 or s0 == 12"),
        (["s0 % 2 == 0 or s0 > s1", "s1 >= 10"], "s0 % 2 == 0 or s0 >= 11"),
        (["s0 != s1"], "True"),
        (["s0 != s1", "s1 == 4"], "s0 != 4"),
        (["s0 // 4 == s1", "s1 <= 2"], "s0 <= 11"),
        (["(s1*2 if s1 > 4 else s1) == s0"], "s0 <= 4 or s0 % 2 == 0 and s0 >= 10"),
        (["s1 <= s0", "s1 >= s0", "s1 != 6"], "s0 != 6"),
        (["max(s0, s1) + min(s0, s1) == 9", "s1 % 3 == 0"], "s0 % 3 == 0 and s0 <= 9"),
        (["s1 < s0", "s1 > s0"], "False"),
    ],
)
def test_exact_without_bounds(texts: list[str], wanted: str) -> None:
    found = GuardSet.read(*texts).project("s0")
    assert found.exact
    assert found.guard_set.equivalent(GuardSet([parse(wanted)], {"s0": (0, None)})) is True, str(
        found
    )


def test_what_is_too_wide_says_so() -> None:
    """Squares, quotients by anything: the answer holds at all values of the shadow, and says that
    it may at more.
    """
    for texts in (["s0 == s1*s1"], ["s0 // s1 == 3"]):
        found = GuardSet.read(*texts).project("s0")
        assert not found.exact
        assert str(found).startswith("at most: ")
        inside = {
            a
            for a, b in product(range(60), repeat=2)
            if GuardSet.read(*texts).holds({"s0": a, "s1": b})
        }
        assert all(found.guard_set.holds({"s0": value}) for value in inside)


def shadow(guards: GuardSet, name: str, values: range) -> set[int]:
    """By trying; every other symbol must have a range."""
    others = [other for other in guards.ranges if other != name]
    axes = [
        range(guards.ranges[other][0] or 0, (guards.ranges[other][1] or 0) + 1) for other in others
    ]
    return {
        value
        for value in values
        if any(
            guards.holds({name: value, **dict(zip(others, point, strict=True))})
            for point in product(*axes)
        )
    }


def linear(rng: random.Random, names: list[str]) -> str:
    terms = " + ".join(
        f"{rng.choice([-3, -2, -1, 1, 1, 2, 4])}*{name}" for name in rng.sample(names, 2)
    )
    kind = rng.randrange(5)
    if kind == 0:
        return (
            f"({terms}) % {rng.choice([2, 3, 4, 6])} {rng.choice(['==', '<=', '!='])} "
            f"{rng.randint(0, 2)}"
        )
    if kind == 1:
        return (
            f"({terms}) // {rng.choice([2, 3])} {rng.choice(['<=', '>=', '=='])} "
            f"{rng.randint(0, 6)}"
        )
    return f"{terms} {rng.choice(['<=', '>=', '==', '!='])} {rng.randint(-4, 20)}"


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**40))
def test_linear_conditions_and_remainders(seed: int) -> None:
    """The ranges are so wide that nothing is found by trying: it is arithmetic, or the answer says
    that it errs.
    """
    rng = random.Random(seed)
    names = ["s0", "s1", "s2"][: rng.choice([2, 2, 3])]
    ranges: dict[str, Range] = {"s0": (0, None), "s1": (rng.choice([0, -5]), FAR), "s2": (0, FAR)}
    guards = GuardSet.read(
        *(linear(rng, names) for _ in range(rng.randint(1, 3))),
        ranges={name: ranges[name] for name in names},
    )
    found = guards.project("s0")
    values = range(16)
    wanted = shadow(guards, "s0", values)
    said = {value for value in values if found.guard_set.holds({"s0": value})}
    assert wanted <= said, str(found)
    assert said == wanted or not found.exact, str(found)


def test_most_are_exact() -> None:
    rng = random.Random(8)
    exact = sum(
        GuardSet.read(*(linear(rng, ["s0", "s1", "s2"]) for _ in range(2))).project("s0").exact
        for _ in range(60)
    )
    assert exact >= 55


def test_ends_that_are_far_are_searched_for_with_bounded_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halving a range up to 10**30 is a hundred questions to Z3; the answer may be larger than the
    shadow instead.
    """
    asked = 0

    def counted(*args: Any) -> Search:
        nonlocal asked
        asked += 1
        return search(*args)

    monkeypatch.setattr(projection, "search", counted)
    huge = 10**30
    guards = GuardSet.read(f"s0*s1 + s1 <= {huge}", f"s0 <= {huge}", "s0*s0 >= s1", "s1 >= 3")
    found = guards.project("s0")
    assert 20 < asked <= 46
    assert not found.exact
    assert found.guard_set.holds({"s0": 2})
    assert found.guard_set.holds({"s0": huge // 3 - 1})
