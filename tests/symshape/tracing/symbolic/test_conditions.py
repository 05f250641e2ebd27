"""What a condition says, part by part: the parts together say the same."""

from __future__ import annotations

import itertools

import pytest

import guards
from guards.terms import boolean, fold
from guards.terms.term import Term
from symshape.tracing.symbolic.env import always_fits, parts_of


def parts(text: str) -> set[Term]:
    return set(parts_of(guards.parse(text)))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s0 >= 3", ["s0 >= 3"]),
        ("s0 >= 3 and s1 == 2", ["s0 >= 3", "s1 == 2"]),
        ("s0*s1 != 0", ["s0 != 0", "s1 != 0"]),
        ("s0 >= 3 and s0*s1 != 0", ["s0 >= 3", "s0 != 0", "s1 != 0"]),
        ("s0*s1 != 6", ["s0*s1 != 6"]),
        ("s0 == min(s0, s1)", ["s0 <= s1"]),
        ("s0 == max(s0, s1, 4)", ["s0 >= s1", "s0 >= 4"]),
        ("s1 == min(s0, 4)", ["s1 == min(s0, 4)"]),
        ("s0 == 1 or s1 == 1", ["s0 == 1 or s1 == 1"]),
    ],
)
def test_parts(condition: str, expected: list[str]) -> None:
    assert parts(condition) == {guards.parse(each) for each in expected}
    whole = guards.parse(condition)
    for values in itertools.product(range(-1, 6), repeat=2):
        here = dict(zip(("s0", "s1"), values, strict=True))
        assert fold.evaluate(whole, here) == all(
            fold.evaluate(part, here) for part in parts_of(whole)
        )


def test_what_every_size_satisfies() -> None:
    largest = 2**63 - 1
    assert always_fits(guards.parse(f"s0 <= {largest}"))
    assert always_fits(guards.parse(f"s0*s1 <= {largest}"))
    assert not always_fits(guards.parse(f"s0 <= {largest - 1}"))
    assert not always_fits(guards.parse(f"s0 + s1 <= {largest}"))
    assert not always_fits(guards.parse(f"s0 >= {largest}"))
    assert not always_fits(boolean.TRUE)
