"""The ladder: what each rung settles, the order of the rungs, and that the table says all about
one.
"""

from __future__ import annotations

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.ladder import LADDER, RUNGS, WORDS, Effort, climb_up, counters, reset_counters
from guards.asking.queries import decide, prove
from guards.asking.questions import ask
from guards.deciders.case_split import refutes as refuted_by_cases
from guards.deciders.linear_refutation import refutes
from guards.terms.arithmetic import symbol
from guards.terms.boolean import ne, not_

x, y = symbol("x"), symbol("y")


@pytest.mark.parametrize(
    ("rung", "query", "assumed"),
    [
        ("constant", "x + y == y + x", []),
        ("interval", "x + y >= 2", []),
        ("interval", "x % 8 < 8", []),
        ("interval", "(8*x if x < y else 12*y) != 6", []),
        ("known", "x % 4 == 0", ["x % 8 == 0"]),
        ("rules", "(x*y + x) // (y + 1) == x", []),
        ("linear", "x // 3 + x // 2 <= x", []),
        ("linear", "min(x, y) + max(x, y) == x + y", []),
        ("chains", "x*x*y <= z*z*z", ["x <= y", "y <= z"]),
        ("cases", "x*x % 4 <= 1", []),
        ("points", "x < y", []),
        ("sympy", "(x - 20)*(x - 20)*y*y + 1 >= 2*(x - 20)*y", []),
        ("z3", "x % ((x + y)*y) % (x + y) == x % (x + y)", []),
    ],
)
def test_each_rung_settles_its_own(rung: str, query: str, assumed: list[str]) -> None:
    ranges = {"x": (1, None), "y": (1, None)}
    reset_counters()
    verdict = decide(query, ranges=ranges, assume=assumed)
    assert verdict.rung == rung, verdict
    assert set(counters()) == set(RUNGS)
    if rung != "constant":
        assert counters()[rung] == 1


def test_z3_is_the_last_rung() -> None:
    """Asked where nothing before it knows, and only with full effort; nothing after it gives
    another answer.
    """
    text, ranges = "x % ((x + y)*y) % (x + y) == x % (x + y)", dict.fromkeys("xy", (1, None))
    facts = facts_from(ranges)
    reset_counters()
    assert ask(facts, parse(text), effort=Effort.CHEAP) is None
    assert ask(facts, parse(text), effort=Effort.THOROUGH) is None
    assert counters()["z3"] == 0
    assert ask(facts, parse(text), effort=Effort.THOROUGH) is None
    assert counters()["memo"] == 1
    assert ask(facts, parse(text)) is True
    assert counters()["z3"] == 1
    assert LADDER[-1].name == "enumerate"
    assert [rung.name for rung in LADDER if rung.name in ("sympy", "z3")] == ["sympy", "z3"]


def test_the_table_has_all_that_a_rung_needs() -> None:
    """One row a rung: names that are counted, words for people, cheap ones before dear ones."""
    names = {rung.name for rung in LADDER}
    assert set(RUNGS) == names | {"constant", "memo", "unknown"}
    assert len(RUNGS) == len(set(RUNGS))
    assert [rung.effort for rung in LADDER] == sorted(rung.effort for rung in LADDER)
    # they never give a value
    assert {rung.name for rung in LADDER if not rung.words} == {"unknown", "points"}
    assert all(len({rung.words for rung in LADDER if rung.name == name}) == 1 for name in names)
    assert WORDS["z3"] == "by Z3"


@pytest.mark.parametrize("only", [None, True, False])
def test_a_climb_ends_on_a_rung_of_its_effort(only: bool | None) -> None:
    """Cheap climbs end on cheap rungs; what they settle, full effort settles on the same rung."""
    cheap_names = {rung.name for rung in LADDER if rung.effort is Effort.CHEAP}
    settled = 0
    for text in (
        "x >= 1",
        "x % 8 < 8",
        "x < y",
        "x*x % 4 <= 1",
        "x // 3 + x // 2 <= x",
        "min(x, y) == x or y < x",
    ):
        component = facts_from(dict.fromkeys("xy", (1, None))).component(parse(text))
        cheap = climb_up(component, parse(text), Effort.CHEAP, only)
        full = climb_up(component, parse(text), Effort.FULL, only)
        assert cheap.rung in cheap_names
        if cheap.value is not None:
            settled += 1
            assert (full.value, full.rung) == (cheap.value, cheap.rung)
        # a look sees either answer
        if only is not None and full.rung not in ("interval", "known", "rules"):
            assert full.value in (only, None)
    assert settled >= (0 if only is False else 3)


def test_refuting_rungs_agree_with_each_other() -> None:
    facts = facts_from({"x": (1, None), "y": (1, None)}, ["x <= y"])
    component = facts.component(x + y)
    for text in ("x*x <= y*y", "x // 3 <= y // 3", "x*y >= x", "max(x, y) == y"):
        formula = not_(parse(text))
        assert refutes(component, formula) or refuted_by_cases(component, formula), text
        assert not refutes(component, parse(text)), text
        assert not refuted_by_cases(component, parse(text)), text
    assert refuted_by_cases(component, ne((x * x + x) % 2, 0))


# -- counting --------------------------------------------------------------------------------------


def test_every_question_is_counted_once() -> None:
    reset_counters()
    assert counters() == dict.fromkeys(RUNGS, 0)
    assert decide("counted >= 0").value is True
    assert prove("counted // 3 + counted // 2 <= counted") is True
    assert prove("counted // 3 + counted // 2 <= counted") is True
    found = counters()
    assert (found["interval"], found["linear"], found["memo"]) == (1, 1, 1)
    assert sum(found.values()) == 3


def test_what_is_returned_is_a_copy() -> None:
    reset_counters()
    counters()["z3"] = 7
    assert counters()["z3"] == 0
