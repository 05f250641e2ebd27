"""Symbols and guards of a trace as the domain of its formulas."""

from __future__ import annotations

from typing import Any

import pytest

from guards import GuardSet, parse
from symshape.cost.domain import Domain
from symshape.errors import GuardViolation, InputError

DOMAIN = Domain(
    "f", ["s0", "s1"], GuardSet.read("s0 >= 1", "s0 % 8 == 0", "s1 < 100"), {"s0": "x.size(0)"}
)


def test_simplified_under_the_guards() -> None:
    assert str(DOMAIN.simplified(parse("min(s0, 1)*s1 + s0//8*8"))) == "s0 + s1"
    assert str(DOMAIN.simplified(parse("min(s1, 50)"))) == "min(s1, 50)"  # it may be either


def test_compiled() -> None:
    run = DOMAIN.compiled([parse("s0*s1 + 3"), parse("7"), parse("max(s0, s1)//2")])
    assert run((8, 5)) == (43, 7, 4)


def test_values() -> None:
    assert DOMAIN.values({"s1": 5, "s0": 8}) == (8, 5)
    assert DOMAIN.values({"s1": 5}, frozenset({"s1"})) == (0, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"s1": 5}, r"f needs a value for s0 \(x.size\(0\)\): pass s0=…"),
        (
            {"s0": 8, "s1": 5, "length": 3},
            r"no symbol 'length'; it has s0 \(x.size\(0\)\), s1 .*symshape.Dim",
        ),
        ({"s0": -8, "s1": 5}, "s0=-8 is no size"),
        ({"s0": 8, "s1": 2**63}, "is no size: it must be an int, 0 or more and below 2"),
        ({"s0": 8, "s1": 5.0}, "s1=5.0 is no size"),
        ({"s0": True, "s1": 5}, "s0=True is no size"),
    ],
)
def test_wrong_sizes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DOMAIN.values(given)


def test_outside_the_guards_of_some_sizes() -> None:
    with pytest.raises(GuardViolation, match="s1 <= 99"):
        DOMAIN.values({"s1": 100}, frozenset({"s1"}))


def test_outside_the_guards() -> None:
    with pytest.raises(GuardViolation, match=r"s0 % 8 == 0, but s0 = 9"):
        DOMAIN.values({"s0": 9, "s1": 5})
