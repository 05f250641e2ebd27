"""Asking facts: answers are kept and never change, and no answer is wrong."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.ladder import Effort, counters, reset_counters
from guards.asking.queries import prove
from guards.asking.questions import ask, ask_component
from guards.errors import Contradiction, ParseError
from guards.facts.facts import Facts
from guards.terms.arithmetic import const, symbol
from guards.terms.boolean import eq, ge, le, lt, ne
from guards.terms.extremes import maximum
from guards.terms.fold import evaluate
from tests.oracles import Question, contradicted
from tests.strategies import conditions

x, y = symbol("x"), symbol("y")


def test_only_one_answer() -> None:
    facts = Facts().with_symbol(x, 1)
    assert ask(facts, ge(x, 1), only=True) is True
    assert ask(facts, le(x * 2, x), only=False) is False
    condition = parse("(x + 7) // 8 * 8 >= x")
    assert ask(facts, condition, only=False, effort=Effort.CHEAP) is None
    assert ask(facts, condition, only=True, effort=Effort.CHEAP) is True
    assert ask(facts, lt(x, 7), only=True) is None
    assert ask(facts, lt(x, 7), only=False) is None


def test_asking_again_is_a_memory() -> None:
    facts = Facts().with_symbol(x, 1)
    condition = parse("x // 3 * 3 + x % 3 == x and x // 2 <= x")
    reset_counters()
    assert ask(facts, condition) is True
    assert ask(facts, condition) is True
    assert counters()["memo"] == 1
    undecided = lt(x, y)
    assert ask(facts, undecided, effort=Effort.CHEAP) is None
    before = counters()["memo"]
    assert ask(facts, undecided, effort=Effort.CHEAP) is None
    assert counters()["memo"] == before + 1


def test_contradictory_facts_answer_nothing() -> None:
    facts = Facts().assume(lt(x, y)).assume(lt(y, x))
    assert facts.contradictory
    assert ask(facts, le(x, 3)) is None
    with pytest.raises(Contradiction) as caught:
        prove("x <= 3", assume=["x < y", "y < x"])
    assert caught.value.conditions == ("x < y", "x > y")


def test_integers_are_no_questions() -> None:
    with pytest.raises(TypeError, match="condition"):
        ask(Facts(), x + 1)
    with pytest.raises(ParseError, match="condition"):
        prove("x + 1")


def test_deep_questions_do_not_break_anything() -> None:
    term = x
    for step in range(400):
        term = maximum(term, y - step) // (y + 2)
    facts = Facts().with_symbol(x, 1).with_symbol(y, 1)
    assert ask(facts, ge(term, 0), effort=Effort.CHEAP) is True
    assert ask(facts, eq(term, -5), effort=Effort.CHEAP) is False
    assert facts.assume(le(term, 9)).interval(term).hi == 9


def test_large_conjunctions_do_not_break_anything() -> None:
    text = " and ".join(f"s{i} + s{i + 1} >= s{i}" for i in range(300))
    assert prove(text) is True
    many = Facts()
    for i in range(300):
        many = many.assume(le(symbol(f"t{i}"), symbol(f"t{i + 1}")))
    assert not many.contradictory
    assert ask(many, le(symbol("t3"), symbol("t4"))) is True
    assert ask(many, le(symbol("t0"), symbol("t5"))) is True


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(conditions(), st.sampled_from([(0, None), (1, None), (-3, 6), (None, None)]))
def test_no_verdict_is_wrong(text: str, pair: tuple[int | None, int | None]) -> None:
    asked = Question(text, {"x": pair, "y": pair, "z": pair})
    try:
        parse(text)
    except ParseError:
        return
    verdict = ask(facts_from(asked.ranges), parse(text), effort=Effort.CHEAP)
    assert contradicted(asked, verdict, window=8) is None


def test_linear_questions_about_a_box_are_decided_completely() -> None:
    rng = random.Random(5)
    symbols = [symbol(name) for name in "abc"]
    seen = 0
    for _ in range(3_000):
        facts = Facts()
        ranges = []
        for each in symbols:
            low = rng.randint(-3, 4)
            ranges.append(range(low, low + rng.randint(1, 5)))
            facts = facts.with_symbol(each, low, ranges[-1][-1])
        for _ in range(rng.choice((0, 0, 1, 3))):
            facts = facts.assume(
                rng.choice((ge, le, ne, ne, eq))(rng.choice(symbols), rng.randint(-3, 6))
            )
        if facts.contradictory:
            continue
        total = sum(
            (rng.choice((-2, -1, 0, 1, 1, 3)) * each for each in symbols), const(rng.randint(-6, 6))
        )
        asked = rng.choice((le, eq, ne))(total, 0)
        points = [dict(zip("abc", values, strict=True)) for values in itertools.product(*ranges)]
        allowed = [
            point for point in points if all(evaluate(known, point) for known in facts.conditions)
        ]
        truths = {evaluate(asked, point) for point in allowed}
        if truths:
            seen += 1
            assert ask(facts, asked) is (None if len(truths) == 2 else truths.pop()), (facts, asked)
    assert seen > 2_000


def test_full_effort_after_cheap_asks_again() -> None:
    """What a cheap climb sought in vain is no answer for a full one; what a full one sought is one
    for both.
    """
    facts = Facts().with_symbol(x, 0)
    condition = parse("x*x % 4 <= 1")
    assert ask(facts, condition, effort=Effort.CHEAP) is None
    reset_counters()
    assert ask(facts, condition) is True
    assert (counters()["memo"], counters()["cases"]) == (0, 1)
    undecided = lt(x, y)
    assert ask(facts, undecided) is None
    reset_counters()
    assert ask(facts, undecided, effort=Effort.CHEAP, only=True) is None
    assert counters()["memo"] == 1


def test_one_answer_sought_in_vain_is_not_the_other() -> None:
    facts = Facts().with_symbol(x, 1).assume(ge(y, x + 8))
    condition = parse("x // 3 + x // 2 > x")
    assert ask(facts, condition, only=True) is None
    assert ask(facts, condition, only=False) is False
    assert ask(facts, condition) is False


def test_answers_live_with_the_component() -> None:
    component = Facts().with_symbol(x, 1).component(x)
    condition = parse("x // 3 + x // 2 <= x")
    assert ask_component(component, condition, Effort.CHEAP, None) is True
    assert condition in component.memo.answers
    reset_counters()
    assert ask_component(component, condition, Effort.FULL, None) is True
    assert counters()["memo"] == 1
