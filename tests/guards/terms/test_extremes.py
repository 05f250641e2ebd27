"""The least and the greatest: one canonical form, and the right one of many."""

from __future__ import annotations

import random

import pytest

from guards.asking.reading import parse
from guards.terms.arithmetic import symbol
from guards.terms.extremes import maximum, minimum
from guards.terms.fold import evaluate

x, y, z = symbol("x"), symbol("y"), symbol("z")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("min(x, y, min(z, x))", "min(z, y, x)"),
        ("max(x + z, y + z)", "max(x, y) + z"),
        ("min(-x, -y)", "-max(x, y)"),
        ("max(2*x + 2, 2*y + 2)", "2*max(x, y) + 2"),
        ("min(x, x + 3)", "x"),
        ("min(x + 3, 8)", "min(x, 5) + 3"),
    ],
)
def test_equal_terms_are_one_object(one: str, other: str) -> None:
    assert parse(one) is parse(other)


def test_the_right_one_of_many() -> None:
    rng = random.Random(15)
    for _ in range(400):
        weight = rng.choice((1, 1, 2, -1, -3))
        shared = rng.choice((0, z, 2 * z - 3))
        terms = [
            weight * rng.choice((x, y, x - y, x + 2 * y, 0 * x, minimum(x, y), maximum(x, 3)))
            + shared
            + rng.randint(-4, 4)
            for _ in range(rng.randint(1, 4))
        ]
        least, greatest = minimum(*terms), maximum(*terms)
        for _ in range(8):
            point = {name: rng.randint(-9, 9) for name in "xyz"}
            values = [evaluate(term, point) for term in terms]
            assert (evaluate(least, point), evaluate(greatest, point)) == (
                min(values),
                max(values),
            ), (terms, point)
        order = rng.sample(terms, len(terms))
        assert minimum(*order) is least
        turned = maximum(*[-term for term in terms])
        assert evaluate(turned, point) == -evaluate(least, point)


def test_something_is_needed() -> None:
    with pytest.raises(ValueError, match="operand"):
        minimum()
