"""Functions of one integer as pieces, against evaluating them."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from guards.asking.reading import parse
from guards.domains.interval_arithmetic import Pair
from guards.domains.polynomial import value_at
from guards.domains.quasi_polynomial import Pieces, TooMany, pieces_of
from guards.errors import ParseError
from guards.terms.arithmetic import symbol
from guards.terms.fold import evaluate
from tests.strategies import condition, integer

x = symbol("x")


def _value(pieces: Pieces, value: int) -> Fraction | bool | None:
    what = pieces.at(value)
    return value_at(what, value) if isinstance(what, tuple) else what


@pytest.mark.parametrize("domain", [(0, None), (-9, 25), (None, 6), (None, None)])
def test_pieces_have_the_values_of_the_term(domain: Pair) -> None:
    rng = random.Random(91)
    compared = undefined = 0
    lo, hi = domain
    for _ in range(150):
        try:
            term = parse(rng.choice((condition, integer))(rng, ("x",)))
            pieces = pieces_of(term, domain, most=4000)
        except (ParseError, TooMany):
            continue
        for value in [*range(-14, 31), 997, 1000, -1001]:
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                continue
            try:
                wanted = evaluate(term, {"x": value})
            except ZeroDivisionError:
                undefined += 1
                assert _value(pieces, value) is None or term.is_bool, (term, value)
                continue
            assert _value(pieces, value) == wanted, (term, value)
            compared += 1
    assert compared > 1000
    assert undefined > 10


def test_one_class_alone() -> None:
    pieces = pieces_of(parse("x // 4 * 3"), (0, None), (6, 5))
    assert [rest % 6 for rest, runs in enumerate(pieces.classes) if runs] == [5] * (
        pieces.modulus // 6
    )
    assert all(_value(pieces, value) == value // 4 * 3 for value in range(5, 200, 6))


def test_there_are_limits() -> None:
    with pytest.raises(TooMany):
        pieces_of(parse("x % 97 + x % 101"), (0, None), most=500)
    with pytest.raises(TooMany):
        pieces_of(parse("x*x*x // (x + 1000000007)"), (None, None), most=1000)
