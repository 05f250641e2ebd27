"""Laws of relations: two remainders compared, and what else they make, against all small values."""

from __future__ import annotations

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.facts.law import Apply
from guards.facts.laws_of_relations import (
    common_factor,
    cross_multiplied,
    two_remainders,
    without_remainders,
)
from guards.facts.rewriting import rewritten
from guards.terms.fold import evaluate


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("k", range(-3, 4))
def test_two_remainders_say_what_one_says(c: int, d: int, k: int) -> None:
    fired = 0
    for p in (2, 4, 6, 12):
        for q in (2, 4, 6, 12):
            term = parse(f"{c}*(x % {p}) - {d}*(y % {q}) + {k}")
            made = two_remainders(term)
            if made is None:
                continue
            fired += 1
            for x in range(-12, 13):
                for y in range(-12, 13):
                    point = {"x": x, "y": y}
                    assert (evaluate(term, point) == 0) is (evaluate(made, point) == 0), (
                        str(term),
                        str(made),
                        point,
                    )
    assert bool(fired) is (-d < k < c)


@pytest.mark.parametrize(
    ("law", "text", "wanted"),
    [
        (cross_multiplied, "x // y <= z", "x - y*z < y"),
        (cross_multiplied, "x // 2 <= z", None),
        (cross_multiplied, "x // (y - z) <= 3", None),
        (common_factor, "x*y <= x*z", "y <= z"),
        (common_factor, "x*y <= z*y*y", "x <= y*z"),
        (common_factor, "x*y <= x*z + 1", None),
        (common_factor, "(y - z)*x*y == 0", "(y - z)*1 == 0"),
        (without_remainders, "x % y + y*(x // y) == x", "True"),
        (without_remainders, "x % y + y*(x // y) == x + 1", "False"),
        (without_remainders, "x % y == z", None),
    ],
)
def test_laws(law: Apply, text: str, wanted: str | None) -> None:
    facts = facts_from(dict.fromkeys("xyz", (1, None)))
    term = parse(text)
    made = law(facts.component(term), term, rewritten)
    assert made is (None if wanted is None else parse(wanted))
    if made is None:
        return
    for number in range(6**3):
        point = {"x": 1 + number % 6, "y": 1 + number // 6 % 6, "z": 1 + number // 36}
        try:
            assert evaluate(made, point) is evaluate(term, point)
        except ZeroDivisionError:
            continue
