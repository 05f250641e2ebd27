"""Generated checks and explanations: they agree with each other and with evaluation."""

from __future__ import annotations

import gc
import inspect
import linecache
import random
from itertools import product

import pytest

from guards import Guard, GuardsError, GuardSet, compile_check
from guards.sets.codegen import Check, source_function
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, gt, ite, or_
from guards.terms.division import floordiv, mod
from guards.terms.extremes import maximum
from tests.guards.making import SLOTS, random_set

S0, S1 = symbol("s0"), symbol("s1")


def test_slots_give_the_order() -> None:
    check = compile_check(GuardSet.read("s0 > s1"), ["s1", "unused", "s0"])
    assert check.check((1, 99, 2))
    assert not check.check((2, 99, 1))
    assert check.check([1, 99, 2])  # any sequence will do


def test_values_must_be_as_many_as_slots() -> None:
    check = compile_check(GuardSet.read("s0 > s1"), ["s0", "s1"])
    with pytest.raises(ValueError, match="unpack"):
        check.check((1, 2, 3))
    with pytest.raises(ValueError, match="zip"):
        check.explain((1,))


def test_symbol_without_slot() -> None:
    with pytest.raises(GuardsError, match="no slot gives the value of s1; the slots are: s0"):
        compile_check(GuardSet.read("s0 > s1"), ["s0"])


def test_slot_twice() -> None:
    with pytest.raises(GuardsError, match="twice"):
        compile_check(GuardSet(), ["s0", "s0"])


def test_names_never_reach_the_source() -> None:
    """Any identifier may name a symbol: one that shadows a builtin or a keyword of the code must do
    no harm.
    """
    for name in (
        "values",
        "failed",
        "tuple",
        "max",
        "v1",
        "_defined",
        "check",
        "__builtins__",
        "größe",
    ):
        s = symbol(name)
        guards = GuardSet([gt(maximum(s, 2), S0), eq(mod(s, S0), 0)])
        check = compile_check(guards, ["s0", name])
        assert name == "v1" or f"{name} %" not in check.source
        assert check.check((3, 6))
        assert not check.check((3, 7))
        assert len(check.explain((3, 1))) == 2


def test_no_conditions() -> None:
    check = compile_check(GuardSet(), [])
    assert check.check(())
    assert check.explain(()) == ()


def test_explains_every_failing_condition() -> None:
    guards = GuardSet.read("s0 + s1 > 2", "s0 % 8 == 0", ranges={"s0": (1, 64)})
    found = compile_check(guards, ["s0", "s1"]).explain((0, 1))
    assert [v.text for v in found] == ["s0 >= 1, but s0 = 0", "s0 + s1 > 2, but s0 = 0 and s1 = 1"]
    assert all(v.guard in guards.conditions for v in found)


def test_explains_in_given_names() -> None:
    check = compile_check(GuardSet.read("s0 > 2"), ["s0"])
    assert check.explain((1,), {"s0": "x.size(0)"})[0].text == "x.size(0) >= 3, but x.size(0) = 1"


def test_division_by_zero_fails_and_hides_nothing() -> None:
    check = compile_check(GuardSet.read("s0 % s1 == 0", "s0 > 5"), ["s0", "s1"])
    assert not check.check((6, 0))
    assert [str(v.guard.term) for v in check.explain((4, 0))] == ["s0 % s1 == 0", "s0 >= 6"]


def test_division_by_zero_within_or_and_if() -> None:
    either = GuardSet([or_(eq(S1, 0), eq(mod(S0, S1), 0))])
    check = compile_check(either, ["s0", "s1"])
    assert check.check((7, 0))
    assert check.check((6, 3))
    assert not check.check((7, 3))
    chosen = GuardSet([eq(ite(eq(S1, 0), 5, floordiv(S0, S1)), 5)])
    assert compile_check(chosen, ["s0", "s1"]).check((1, 0))


@pytest.mark.parametrize("depth", [5, 30, 120, 250])
def test_deep_terms(depth: int) -> None:
    """A stack of convolutions divides again and again: deeper than Python's parser likes."""
    term, wanted = S0, 10**9
    for level in range(depth):
        term = maximum(floordiv(term + 3, 2) + level % 3, S1)
        wanted = max((wanted + 3) // 2 + level % 3, 1)
    check = compile_check(GuardSet([eq(term, wanted)]), ["s0", "s1"])
    assert check.check((10**9, 1))
    assert compile_check(GuardSet([ge(term, wanted + 1)]), ["s0", "s1"]).explain((10**9, 1))


def test_source_is_in_linecache_for_as_long_as_it_lives() -> None:
    check = compile_check(GuardSet.read("s0 > 2"), ["s0"])
    filename = check.check.__code__.co_filename
    assert "v0 >= 3" in inspect.getsource(check.check)
    assert filename in linecache.cache
    linecache.checkcache()
    assert filename in linecache.cache
    del check
    gc.collect()
    assert linecache.getlines(filename) == []


def test_traceback_shows_the_source() -> None:
    function = source_function("def fail(values):\n    return values[0] // 0\n", "fail", "test")
    with pytest.raises(ZeroDivisionError) as raised:
        function((1,))
    assert "values[0] // 0" in str(raised.traceback[-1])


def test_redundant_bounds_are_left_out_of_the_check_alone() -> None:
    check = compile_check(GuardSet.read("s0 >= 5", "s1 == 3"), ["s0", "s1"])
    body = check.source.split("def failing")[0]
    assert "v0 >= 0" not in body
    assert "v1 >= 0" not in body
    assert len(check.explain((-1, -1))) == 4


def test_agrees_with_evaluation() -> None:
    """A quick look; the fuzzer `guard_sets` compares with Python's own `eval` on hundreds of
    thousands of inputs.
    """
    rng = random.Random(7)
    held = 0
    for _ in range(300):
        guards = random_set(rng)
        check: Check = compile_check(guards, SLOTS)
        for _ in range(10):
            values = tuple(rng.randint(-2, 12) for _ in SLOTS)
            known = dict(zip(SLOTS, values, strict=True))
            assert check.check(values) == guards.holds(known), (guards, values)
            failing = [v.guard for v in check.explain(values)]
            assert failing == [v.guard for v in guards.violations(known)], (guards, values)
            held += check.check(values)
    assert 300 < held < 2700  # both answers were seen often


def test_guard_objects_are_those_of_the_set() -> None:
    guard = Guard(gt(S0, 2))
    (found,) = compile_check(GuardSet((guard,)), ["s0"]).explain((1,))
    assert found.guard is guard


def test_a_choice_by_a_condition_that_divides_by_zero() -> None:
    """A part of an ``or`` decides a choice in whatever order Python evaluates the parts."""
    guards = GuardSet(
        "(p if (q <= 9 or 3//q < 1) else 5) <= 4", ranges={"p": (None, None), "q": (None, None)}
    )
    check = compile_check(guards, ("p", "q"))
    for p, q in product(range(3, 7), (-1, 0, 1, 9, 10, 11)):
        wanted = (p if q <= 9 or 3 // q < 1 else 5) <= 4
        assert check.check((p, q)) is guards.holds({"p": p, "q": q}) is wanted
        assert guards.negate().holds({"p": p, "q": q}) is not wanted
        assert bool(check.explain((p, q))) is not wanted
