"""Straight-line source: it computes what the term is worth, however often its parts are shared, and
is short.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from guards.sets.codegen import compile_check
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, ite, le, ne, or_
from guards.terms.extremes import maximum, minimum
from guards.terms.fold import evaluate
from guards.terms.straight_line import StraightLine, once
from guards.terms.term import Op, Term
from tests.guards.terms.test_printing import grown

A, B = symbol("a"), symbol("b")


def run(term: Term, values: dict[str, int]) -> Any:
    """The value of the source of a term, and how long the source is."""
    line = StraightLine({})
    written = line.expression(term)
    space: dict[str, Any] = {"_once": once, **values}
    source = "\n".join(
        ["def computed():", *(f"    {step}" for step in line.steps), f"    return {written}"]
    )
    exec(source, space)
    return space["computed"](), len(source)


def shared(rng: random.Random, steps: int, *, partial: bool) -> Term:
    """A random term, each part made of earlier ones."""
    parts = [A, B, A + B]
    for _ in range(steps):
        x, y, z = (rng.choice(parts[-4:]) for _ in range(3))
        divisor: Any = (
            y if partial and y.op is not Op.CONST and rng.random() < 0.5 else rng.choice([2, 3, 7])
        )
        made = [
            x // divisor + y % 5,
            maximum(x, y) - z % divisor,
            minimum(x + 1, y // 2),
            x % 11 + z,
        ]
        made += [
            ite(le(x, y), x // divisor, z % 9),
            ite(or_(eq(divisor, 0), ge(x, z)), y % 13, x // divisor),
        ]
        parts.append(rng.choice(made))
    return parts[-1]


@pytest.mark.slow
@pytest.mark.parametrize("partial", [False, True])
def test_source_is_worth_what_the_term_is(partial: bool) -> None:
    rng = random.Random(3)
    undefined = large = 0
    for _ in range(200):
        term = shared(rng, rng.choice([3, 10, 40]), partial=partial)
        if rng.random() < 0.3:
            term = le(term, rng.randint(-5, 40))
        for _ in range(4):
            values = {"a": rng.randint(-4, 30), "b": rng.randint(-4, 30)}
            try:
                expected = evaluate(term, values)
            except ZeroDivisionError:
                undefined += 1
                with pytest.raises(ZeroDivisionError):
                    run(term, values)
                continue
            got, length = run(term, values)
            assert got == expected, (term, values)
            large += length > 1000
    assert large > 30
    assert (undefined > 20) is partial


def test_source_is_as_long_as_the_graph() -> None:
    got, length = run(grown(40), {"s0": 3})
    assert got == evaluate(grown(40), {"s0": 3})
    assert length < 20_000


def test_small_terms_are_written_out() -> None:
    line = StraightLine({"a": "v0"})
    assert (line.expression(ne(A % 8, 0)), line.steps) == ("v0 % 8 != 0", [])


def test_a_part_behind_a_condition_is_computed_only_when_needed() -> None:
    deep = A
    for _ in range(30):
        deep = deep // B + deep % 7
    assert run(ite(eq(B, 0), 5, deep), {"a": 100, "b": 0})[0] == 5


def test_checks_of_huge_conditions() -> None:
    huge = boolean.and_(le(grown(30), 3 * 10**6), or_(eq(A, 0), eq(grown(25) % A, 0)))
    guards = GuardSet((Guard(huge),), {"s0": (0, 1000), "a": (None, None)})
    check = compile_check(guards, ("s0", "a"))
    assert len(check.source) < 40_000
    held = 0
    for s0 in range(30):
        for a in range(-1, 4):
            expected = guards.holds({"s0": s0, "a": a})
            assert check.check((s0, a)) == expected
            assert bool(check.explain((s0, a))) != expected
            held += expected
    assert 0 < held < 150
