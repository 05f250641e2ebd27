"""Sets of integers told as conditions: the same integers, in words that a person would choose."""

from __future__ import annotations

import random

import pytest

from guards.asking.reading import parse
from guards.domains.interval_arithmetic import Pair
from guards.domains.quasi_polynomial import TooMany, pieces_of
from guards.domains.value_sets import MOST_ATOMS, condition
from guards.errors import ParseError
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate
from guards.terms.term import Op, Term
from tests.strategies import condition as random_condition

x = symbol("x")


def _told(text: str, domain: Pair = (0, None)) -> Term:
    return condition(pieces_of(parse(text), domain), x)


@pytest.mark.parametrize("domain", [(0, None), (1, 40), (None, None), (None, 9)])
def test_the_same_integers(domain: Pair) -> None:
    rng = random.Random(101)
    lo, hi = domain
    compared = mixed = 0
    for _ in range(250):
        try:
            term = parse(random_condition(rng, ("x",)))
            pieces = pieces_of(term, domain, most=3000)
            told = condition(pieces, x)
        except (ParseError, TooMany):
            continue
        assert told.symbols <= {x}
        seen = set()
        for value in [*range(-40, 90), 1009, -1013]:
            if (lo is None or lo <= value) and (hi is None or value <= hi):
                inside = pieces.at(value) is True
                assert evaluate(told, {"x": value}) is inside, (term, told, value)
                seen.add(inside)
                compared += 1
        mixed += len(seen) == 2
    assert compared > 3000
    assert mixed > 25


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x // 8 == 2", "x >= 16 and x <= 23"),
        ("x*x >= 50", "x >= 8"),
        ("x % 6 == 1 or x % 6 == 4", "x % 3 == 1"),
        ("x % 4 == 0 and x != 12", "x % 4 == 0 and x != 12"),
        ("x != 3 and x != 4", "x != 3 and x != 4"),
        ("x >= 0", "True"),
        ("x < 0", "False"),
        ("x == 7 or x == 9", "x == 7 or x == 9"),
    ],
)
def test_words(text: str, shown: str) -> None:
    assert _told(text) is parse(shown)


def test_what_takes_too_many_words() -> None:
    members = [value * value + value % 3 for value in range(1, 60)]
    with pytest.raises(TooMany):
        _told(" or ".join(f"x == {value}" for value in members))
    told = _told(" or ".join(f"x == {value}" for value in members[: MOST_ATOMS // 2]))
    assert told.op is Op.OR
