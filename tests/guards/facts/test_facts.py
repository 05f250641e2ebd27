"""Facts: what assuming draws from conditions, what it leaves alone, and that it never loses a
value.
"""

from __future__ import annotations

import random

import pytest

from guards import decide as decide_function
from guards.asking.assumptions import facts_from
from guards.asking.ladder import counters, reset_counters
from guards.asking.questions import ask
from guards.asking.reading import parse
from guards.domains.interval import Interval
from guards.errors import Contradiction, ParseError, RangeError
from guards.facts.facts import Facts
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, le
from guards.terms.fold import evaluate
from tests.oracles import Question, tried
from tests.strategies import assumption, integer, range_of_symbol

s0, s1, s2, s7 = (symbol(name) for name in ("s0", "s1", "s2", "s7"))


def test_undeclared_symbols_are_sizes() -> None:
    assert Facts().interval(s0) == Interval(0, None)
    assert ask(Facts(), ge(s0, 0)) is True


@pytest.mark.parametrize(
    ("assumed", "term", "interval"),
    [
        (["a >= b + 8", "b >= 1"], "a", (9, None)),
        (["a + b <= 10"], "a", (0, 10)),
        (["2*a <= 7"], "a", (0, 3)),
        (["a // 8 == 3"], "a", (24, 31)),
        (["max(a, b) <= 5"], "b", (0, 5)),
        (["min(a, b) >= 5"], "b", (5, None)),
        (["a*b <= 12", "b >= 3"], "a", (0, 4)),
        (["a*a <= 17"], "a", (0, 4)),
        (["a % 8 == 0", "a >= 1"], "a", (8, None)),
        (["a != 0"], "a", (1, None)),
        (["a != 0", "a != 1"], "a", (2, None)),
        (["a == b + 3", "b <= 4"], "a", (3, 7)),
        (["a == 4"], "a + b", (4, None)),
        (["2*a == 3*b", "a >= 1", "a <= 8"], "a", (3, 6)),
        (["a == 1 or a == 5", "a >= 2"], "a", (5, 5)),
        (["a <= b", "b <= c", "c <= 9"], "a", (0, 9)),
    ],
)
def test_ranges_follow_from_conditions(
    assumed: list[str], term: str, interval: tuple[int | None, int | None]
) -> None:
    facts = Facts()
    for text in assumed:
        facts = facts.assume(parse(text))
    assert facts.interval(parse(term)) == Interval(*interval)
    assert facts_from(None, assumed).interval(parse(term)) == Interval(*interval)


@pytest.mark.parametrize(
    "assumed",
    [
        ["a <= 2", "a >= 3"],
        ["a < b", "b < a"],
        ["a == b", "a == b + 1"],
        ["a % 2 == 0", "a % 4 == 1"],
        ["2*a == 2*b + 1"],
        ["a + b == 5", "a - b == 2"],
        ["a == 3", "a == 4"],
        ["a >= 9", "a*a <= 80"],
        ["a == 1 or a == 2", "a >= 3"],
    ],
)
def test_contradictions_are_seen(assumed: list[str]) -> None:
    facts = Facts()
    for text in assumed:
        facts = facts.assume(parse(text))
    assert facts.contradictory
    with pytest.raises(Contradiction, match="nothing satisfies"):
        decide_function("a == a + 0*b or a > b", assume=assumed)


def test_equalities_keep_one_name() -> None:
    facts = Facts().assume(eq(s1, s0))
    assert facts.canonical(s1 * 2 + s0) is 3 * s0
    assert facts.canonical(s7) is s7
    facts = facts.assume(eq(s2, s1 + 1)).assume(parse("s0 % 8 == 0"))
    assert facts.canonical(s2) is s0 + 1
    assert facts.replace(s2) is s0 + 1
    assert facts.assume(eq(s0, 16)).canonical(s2) is parse("17")


def test_adding_nothing_gives_the_same_object() -> None:
    facts = Facts().with_symbol(s0, 1).assume(le(s0, s1))
    assert facts.assume(le(s0, s1)) is facts
    assert facts.assume(parse("True")) is facts


def test_facts_are_values() -> None:
    one = Facts().with_symbol(s0, 1).assume(le(s0, s1)).assume(ge(s2, 3))
    other = Facts().assume(ge(s2, 3)).with_symbol(s0, 1).assume(le(s0, s1))
    assert one == other
    assert hash(one) == hash(other)
    assert one != other.assume(le(s0, 7))
    assert one.conditions == (le(s0, s1), ge(s2, 3))
    assert "s0 <= s1" in repr(one)
    assert one.declared(s0) == Interval(1, None)
    assert one.ranges[s2] == Interval(3, None)
    assert s1 in one.symbols


def test_declaring_again_narrows() -> None:
    facts = Facts().with_symbol(s0, 1).with_symbol(s0, 3, 9)
    assert facts.interval(s0) == Interval(3, 9)
    with pytest.raises(RangeError, match="empty"):
        facts.with_symbol(s0, 5, 4)
    with pytest.raises(RangeError, match="empty"):
        Facts().with_symbol(s0, 5, 4)
    with pytest.raises(TypeError, match="declared for a symbol"):
        Facts().with_symbol(s0 + 1, 5)


def test_an_assumption_leaves_decisions_about_others_in_place() -> None:
    facts = Facts().assume(le(s7, 9)).assume(le(s0, s1))
    question = parse("(s7 + 7) // 8 * 8 >= s7 % 5")
    assert ask(facts, question) is True
    later = facts.assume(ge(s0, 4)).assume(eq(s1, 9))
    reset_counters()
    assert ask(later, question) is True
    found = counters()
    assert found["memo"] == 1
    assert sum(found.values()) == 1


def test_bad_ranges_and_assumptions() -> None:
    with pytest.raises(RangeError, match="pair of integers"):
        facts_from({"a": (1.5, 2)})  # type: ignore[dict-item]
    with pytest.raises(RangeError, match="pair of integers"):
        facts_from({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(RangeError):
        facts_from({"a": [1, 2]})  # type: ignore[dict-item]
    with pytest.raises(RangeError, match="empty"):
        facts_from({"a": (3, 2)})
    with pytest.raises(ParseError, match="condition is needed"):
        facts_from({"a": (3, 4)}, ["a + 1"])
    with pytest.raises(ValueError, match="identifier"):
        facts_from({"a b": (3, 4)})


def test_no_value_is_lost() -> None:
    """Whatever satisfies the assumptions lies within every interval, and survives the rewrites."""
    rng = random.Random(21)
    compared = 0
    for _ in range(1500):
        names = ("x", "y", "z")[: rng.randint(1, 3)]
        ranges = {name: range_of_symbol(rng) for name in names}
        assumed = [assumption(rng, names) for _ in range(rng.randint(1, 3))]
        try:
            term = parse(integer(rng, names))
            facts = facts_from(ranges, assumed)
        except Contradiction:
            assert tried(Question("True or " + assumed[0], ranges, tuple(assumed))) == (None, None)
            continue
        except ParseError:
            continue
        component = facts.component(term)
        for value in range(-6, 12):
            point = {name: value if name == names[0] else rng.randint(-6, 12) for name in names}
            try:
                inside = all(evaluate(c, point) for c in facts.conditions)
                found = evaluate(term, point)
            except ZeroDivisionError:
                continue
            if not inside or any(point[s.name] not in facts.declared(s) for s in facts.symbols):
                continue
            assert found in facts.interval(term), (ranges, assumed, term, point)
            assert evaluate(facts.canonical(term), point) == found
            assert not component.contradictory
            compared += 1
    assert compared > 1500


def test_rows_are_kept_when_a_symbol_is_replaced() -> None:
    """What is known of a sum goes over to what a later equation makes of it."""
    ranges = dict.fromkeys("xyz", (None, None))
    facts = facts_from(ranges, ["x + y <= 5", "x + y >= 1", "x == 2*z"])
    moved = parse("y + 2*z")
    assert facts.component(moved).bounds(moved) == (1, 5)
    later = facts_from(ranges, ["x == 2*z", "x + y <= 5", "x + y >= 1"])
    assert later.component(moved).bounds(moved) == (1, 5)
