"""Laws of sums: each rewrites a family of terms, of any size, without changing a value."""

from __future__ import annotations

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.facts.laws_of_sums import (
    fold_remainder,
    one_choice,
    shifted_quotients,
    unfold_remainder,
)
from guards.facts.rewriting import rewritten
from guards.terms.arithmetic import total
from guards.terms.fold import evaluate
from guards.terms.term import Term

FREE = facts_from({"x": (None, None), "y": (None, None)})


def _same(term: Term, made: Term) -> bool:
    return all(
        evaluate(term, point) == evaluate(made, point)
        for point in ({"x": x, "y": y} for x in range(-13, 14) for y in (-7, -2, -1, 1, 3, 8))
    )


@pytest.mark.parametrize("number", range(2, 9))
def test_shifted_quotients_of_any_number(number: int) -> None:
    for offset in (0, 1, -3):
        term = total([(parse("x") + offset + shift) // number for shift in range(number)])
        made = shifted_quotients(FREE.component(term), term, rewritten)
        assert made is parse("x") + offset
        assert _same(term, made)
    short = total([(parse("x") + shift) // number for shift in range(number - 1)])
    if number > 2:  # one is missing
        assert shifted_quotients(FREE.component(short), short, rewritten) is None


@pytest.mark.parametrize("number", [2, 3, 8])
@pytest.mark.parametrize("factor", [1, 2, -3])
def test_a_remainder_and_back(number: int, factor: int) -> None:
    x, y = parse("x"), parse("y")
    disguised = factor * x - factor * number * (x // number) + y
    made = fold_remainder(FREE.component(disguised), disguised, rewritten)
    assert made is factor * (x % number) + y
    assert _same(disguised, made)
    beside = factor * (x % number) + factor * number * (x // number) + y
    whole = unfold_remainder(FREE.component(beside), beside, rewritten)
    assert whole is factor * x + y
    assert fold_remainder(FREE.component(x + y), x + y, rewritten) is None


def test_one_choice_for_many() -> None:
    term = parse("3*(x if x > y else y) + 2*(y if x > y else 1) - 5 + y")
    made = one_choice(FREE.component(term), term, rewritten)
    assert made is not None
    assert made is not term
    assert _same(term, made)
    other = parse("(x if x > y else y) + (y if x > 2*y else 1)")
    assert one_choice(FREE.component(other), other, rewritten) is None
