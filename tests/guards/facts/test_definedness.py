"""Conditions as total predicates: both readings agree with Python, division by zero counted as not
satisfied.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.errors import ParseError
from guards.facts.definedness import guarded, partial, satisfied, total
from guards.terms.boolean import not_
from guards.terms.fold import evaluate
from guards.terms.term import Op
from tests.strategies import relation

POINTS = [dict(zip("xyz", values, strict=True)) for values in product(range(-2, 3), repeat=3)]


def test_satisfied_is_pythons_truth_where_defined() -> None:
    rng = random.Random(111)
    undefined = 0
    for _ in range(200):
        try:
            term = parse(relation(rng))
        except ParseError:
            continue
        for point in POINTS:
            try:
                wanted = bool(evaluate(term, point))
            except ZeroDivisionError:
                wanted = False
                undefined += 1
            if term.op not in (Op.AND, Op.OR):
                assert satisfied(term, point) is wanted, (term, point)
    assert undefined > 500


@pytest.mark.parametrize(
    "text",
    [
        "x % y == 0",
        "x // y >= 1 and y % z != 1",
        "x % y == 0 or z // x <= 2",
        "x // (y % z) == 1",
        "(x // y if y != 0 else z) >= 1",
        "(x if (y <= 1 or 3 // y < 1) else 5) <= 1",
        "(x if (x // y >= 1 or z // x >= 1 or y == 2) else z) <= 1",
        "(x if (x // y >= 1 and z // x >= 1 and y != 2) else z) <= 1",
        "x // 2 == y",
    ],
)
def test_both_readings_say_what_is_satisfied(text: str) -> None:
    term = parse(text)
    everywhere, assumed = guarded(term), total(term)
    for point in POINTS:
        wanted = satisfied(term, point)
        found = evaluate(everywhere, point)  # defined everywhere
        assert found is wanted, point
        assert evaluate(not_(everywhere), point) is not found
        assert satisfied(assumed, point) is found, point
    assert partial(term) is (("//" in text and "// 2" not in text) or "%" in text)


def test_facts_that_keep_a_divisor_from_zero_are_enough() -> None:
    facts = facts_from({"x": (0, None), "y": (1, None), "z": (0, None)})
    assert total(parse("x % y == 0"), facts) is parse("x % y == 0")
    assert guarded(parse("x % y == 0"), facts) is parse("x % y == 0")
    assert total(parse("x % z == 0"), facts) is parse("x % z == 0 and z != 0")
