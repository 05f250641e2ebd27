"""Cases of a choice: one of them holds everywhere, and where it holds the term is what it says."""

from __future__ import annotations

from itertools import product

import pytest

from guards import parse
from guards.terms.case_distinction import cases
from guards.terms.fold import evaluate
from guards.terms.term import Op, postorder


@pytest.mark.parametrize(
    "text",
    [
        "min(x, y)",
        "max(x, y)",
        "max(x, y, 3)",
        "min(x, y, x + y)",
        "x if x < y else y + 1",
        "max(min(x, 2), y)",
    ],
)
def test_cases_cover_everything_and_are_right(text: str) -> None:
    choices = [part for part in postorder(parse(text)) if part.op in (Op.MIN, Op.MAX, Op.ITE)]
    assert choices
    for part in choices:
        found = cases(part)
        assert len(found) == (2 if part.op is Op.ITE else len(part.args))
        for a, b in product(range(-3, 5), repeat=2):
            point = {"x": a, "y": b}
            taken = [
                evaluate(value, point) for condition, value in found if evaluate(condition, point)
            ]
            assert taken
            assert set(taken) == {evaluate(part, point)}


def test_other_terms_have_none() -> None:
    for text in ("x", "x + y", "x // y", "3", "x < y", "x < y or y < 3"):
        assert cases(parse(text)) == []
