"""Laws of min, max and ite: what each of them leaves alone, and that what it makes has the same
values.
"""

from __future__ import annotations

import pytest

from guards.asking.assumptions import facts_from
from guards.asking.reading import parse
from guards.facts.law import Apply
from guards.facts.laws_of_choice import absorbed, at_border, decided, dominated, selection
from guards.facts.rewriting import rewritten
from guards.terms.fold import evaluate


@pytest.mark.parametrize(
    ("law", "text", "assumed", "wanted"),
    [
        (dominated, "min(x, y)", ["x <= y + 1"], None),
        (dominated, "min(x, y + 1)", ["x <= y"], "x"),
        (dominated, "max(x, 2*y)", ["x > 2*y"], "x"),
        (absorbed, "min(x, max(y, 3))", [], None),
        (absorbed, "max(y, min(x, y, 7))", [], "y"),
        (decided, "x if x > y else y + 1", [], None),
        (decided, "x if x > y else y + 1", ["x <= y"], "y + 1"),
        (selection, "x if x < y else y", [], "min(x, y)"),
        (selection, "y if x < y else x", [], "max(x, y)"),
        (selection, "x if x < y - 1 else y", [], None),
        (at_border, "x*y if x <= 1 else y", [], "y"),
        (at_border, "x*y if x <= 2 else y", [], None),
        (at_border, "2*y if x <= 1 else y", [], None),
    ],
)
def test_laws(law: Apply, text: str, assumed: list[str], wanted: str | None) -> None:
    facts = facts_from({"x": (1, None), "y": (1, None)}, assumed)
    term = parse(text)
    made = law(facts.component(term), term, rewritten)
    assert made is (None if wanted is None else parse(wanted))
    if made is None:
        return
    for number in range(81):
        point = {"x": 1 + number % 9, "y": 1 + number // 9}
        if all(evaluate(condition, point) for condition in facts.conditions):
            assert evaluate(made, point) == evaluate(term, point)
