"""Simplifying under facts, and the bounds of terms."""

from __future__ import annotations

import random

import pytest

from guards import parse
from guards.asking.assumptions import facts_from
from guards.asking.ladder import counters, reset_counters
from guards.asking.simplification import bounds, restore, simplify
from guards.errors import Contradiction, ParseError
from guards.facts.rewriting import rewritten
from guards.terms.arithmetic import symbol
from guards.terms.boolean import TRUE, eq
from guards.terms.fold import evaluate
from guards.terms.term import Op, postorder
from tests.strategies import assumption, integer, range_of_symbol, term_under_facts, values_differ

x, y = symbol("x"), symbol("y")
SIZE = (1, None)


@pytest.mark.parametrize(
    ("text", "assumed", "wanted"),
    [
        ("max(1, s0)", [], "s0"),
        ("min(s0, 0)", [], "0"),
        ("s0 // 8 * 8", ["s0 % 8 == 0"], "s0"),
        ("s0 // 8 * 16 + 1", ["s0 % 8 == 0"], "2*s0 + 1"),
        ("s0 // 2 // 4", ["s0 % 8 == 0"], "s0 // 8"),
        ("(s0 * s1) // s1", [], "s0"),
        ("s0 + s1", ["s1 == s0"], "2*s0"),
        ("s0 % s1", ["s0 < s1"], "s0"),
        ("max(s0, s1)", ["s0 <= s1"], "s1"),
        ("s0 if s0 > 0 else s1", [], "s0"),
        ("s0 > 0 and s1 > 4", [], "s1 > 4"),
        ("s0 > 4 and s0 > 2", [], "s0 > 4"),
        ("s0 > 4 or s0 > 2", [], "s0 > 2"),
        ("s0 < 1 or s1 > 4", [], "s1 > 4"),
        ("s0 * s1 <= s0 * s2", [], "s1 <= s2"),
        ("s0 >= 1", [], "True"),
        ("(s0 + s1) // 2 * 2", ["(s0 + s1) % 2 == 0"], "s0 + s1"),
    ],
)
def test_simplify(text: str, assumed: list[str], wanted: str) -> None:
    facts = facts_from(dict.fromkeys(("s0", "s1", "s2"), SIZE), assumed)
    assert simplify(text, facts) is parse(wanted)


def test_simplified_terms_are_equal_and_no_larger() -> None:
    rng = random.Random(31)
    compared = changed = 0
    for _ in range(900):
        drawn = term_under_facts(rng)
        if drawn is None:
            continue
        term, facts = drawn
        made = simplify(term, facts)
        changed += made is not term
        assert made.symbols <= term.symbols | facts.symbols
        assert sum(1 for _ in postorder(made)) <= sum(1 for _ in postorder(term)) + 1
        for differ in values_differ(rng, term, made, facts):
            assert not differ, (facts, term, made)
            compared += 1
    assert changed > 200
    assert compared > 1000


@pytest.mark.parametrize(
    ("text", "ranges", "assumed", "wanted"),
    [
        ("s - s // 8 * 8", {}, [], ("0", "7")),
        ("(s + 7) // 8 * 8 - s", {}, [], ("0", "7")),
        ("a", {}, ["a >= b + 8"], ("8", None)),
        ("a - b", {}, ["a >= b + 8", "a <= b + 20"], ("8", "20")),
        ("u", {}, ["u <= s*t"], ("0", "s*t")),
        ("a*a - a", {"a": (None, None)}, [], ("0", None)),
        ("a*(10 - a)", {"a": (0, 10)}, [], ("0", "25")),
        ("max(a, b) - min(a, b)", {"a": (0, 5), "b": (0, 7)}, [], ("0", "7")),
        ("a % 8", {}, ["a % 4 == 1"], ("1", "5")),
        ("3", {}, [], ("3", "3")),
        ("a", {"a": (None, None)}, [], (None, None)),
    ],
)
def test_bounds(
    text: str,
    ranges: dict[str, tuple[int | None, int | None]],
    assumed: list[str],
    wanted: tuple[str | None, str | None],
) -> None:
    found = bounds(text, ranges=ranges, assume=assumed)
    assert found == tuple(None if side is None else parse(side) for side in wanted)


def test_bounds_contain_all_values() -> None:
    rng = random.Random(9)
    compared = 0
    for _ in range(250):
        names = ("x", "y")
        ranges = {name: range_of_symbol(rng) for name in names}
        try:
            term = parse(integer(rng, names))
            facts = facts_from(ranges, [assumption(rng, names) for _ in range(rng.randint(0, 2))])
        except (ParseError, Contradiction):
            continue
        low, high = bounds(term, facts=facts)
        for _ in range(40):
            point = {name: rng.randint(-6, 14) for name in names}
            if any(point[s.name] not in facts.declared(s) for s in facts.symbols | term.symbols):
                continue
            try:
                if all(evaluate(c, point) for c in facts.conditions):
                    value = evaluate(term, point)
                    assert low is None or evaluate(low, point) <= value
                    assert high is None or value <= evaluate(high, point)
                    compared += 1
            except ZeroDivisionError:
                continue
    assert compared > 300


def test_simplify_keeps_what_it_does_not_know() -> None:
    term = parse("x*y % 7 + 1")
    assert simplify(term) is term
    assert simplify(eq(x, y)).op is Op.EQ


def test_simplify_asks_z3_about_whole_comparisons_only() -> None:
    """Each part of an ``and`` or ``or`` is asked about several times; Z3 may take a second for
    each.
    """
    text = "x % ((x + y)*y) % (x + y) == x % (x + y)"
    facts = facts_from(dict.fromkeys("xyz", SIZE))
    reset_counters()
    both = simplify(f"({text}) and z > 7", facts)
    assert counters()["z3"] == 0
    assert both.op is Op.AND
    assert simplify(text, facts) is TRUE
    assert counters()["z3"] == 1


def test_restore_takes_new_symbols_out_again() -> None:
    """Divisibility facts make new symbols; what is shown to people has none, and the same
    values.
    """
    facts = facts_from({"x": (0, None), "y": (1, None)}, ["x % 8 == 0"])
    component = facts.component(x + y)
    (fresh,) = component.fresh
    inner = rewritten(component, component.canonical(parse("x // 4 * y + x % 16")))
    assert fresh in inner.symbols
    shown = restore(component, inner)
    assert shown is not None
    assert shown.symbols <= {x, y}
    for at in range(0, 64, 8):
        for other in (1, 2, 9):
            point = {"x": at, "y": other}
            assert evaluate(shown, point) == evaluate(parse("x // 4 * y + x % 16"), point)


@pytest.mark.parametrize(
    "text",
    [
        "q == 0 or 3 // q > 1",
        "q == 0 or p % q == 1",
        "(q == 0 and p > 2) or p // q == 1",
        "q != 0 and p % q >= 0",
        "q > 0 and p % q < q",
        "q != 0 and p // q * q <= p and p != 3",
    ],
)
def test_the_part_of_an_or_that_keeps_the_whole_defined_stays(text: str) -> None:
    simple = simplify(text)
    for point in ({"p": p, "q": q} for p in range(5) for q in range(5)):
        try:
            wanted = evaluate(parse(text), point)
        except ZeroDivisionError:
            continue
        assert evaluate(simple, point) is wanted, (simple, point)
