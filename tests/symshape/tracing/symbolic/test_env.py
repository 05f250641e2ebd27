"""The shape environment: asking never records, evaluating leaves a guard with its line, facts only
grow.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import guards
import symshape
from guards.sets.guard import Guard
from guards.sets.sources import Size
from guards.terms import arithmetic, boolean, division
from symshape import DataDependentError, Dim, Policy, ProgramError, events
from symshape.graph.assertion_messages import Message
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.undecided import usual


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, name: str, hint: int, dim: Dim | Policy = Policy.AUTO) -> IntNode:
    return env.new_symbol(name, hint, Size("x", len(env.symbols)), dim)


def terms(env: ShapeEnv) -> list[str]:
    return [str(guard.term) for guard in env.guards]


def test_a_size_is_not_negative_and_nothing_more(env: ShapeEnv) -> None:
    s = size(env, "s0", 5)
    assert env.known(boolean.ge(s.term, 0))
    assert not env.known(boolean.ge(s.term, 1))
    assert not env.known(boolean.ne(s.term, 1))
    n = env.new_integer("n", -3, Size("x", 9), Policy.AUTO)
    assert not env.known(boolean.ge(n.term, 0))
    assert env.guards == []


def test_known_never_records(env: ShapeEnv) -> None:
    s = size(env, "s0", 5)
    facts = env.facts
    for condition in (s == 5, s > 3, s % 2 == 1, s < 0):
        assert condition.known() is False
    assert (s + 1 > s) is True or (s + 1 > s).known()
    assert env.facts is facts
    assert env.guards == []


def test_evaluate_follows_the_hint_and_records_once(env: ShapeEnv) -> None:
    s, t = size(env, "s0", 5), size(env, "s1", 3)
    assert env.evaluate(boolean.gt(s.term, t.term)) is True
    assert env.evaluate(boolean.gt(s.term, t.term)) is True
    assert env.evaluate(boolean.le(s.term, t.term)) is False  # settled by the first
    assert env.evaluate(boolean.ge(s.term, arithmetic.add(t.term, arithmetic.ONE))) is True
    assert [guard.term for guard in env.guards] == [guards.parse("s1 < s0")]
    assert env.evaluate(boolean.eq(division.mod(s.term, 2), 0)) is False
    assert len(env.guards) == 2
    origin = env.guards[0].origin
    assert origin is not None
    assert origin.file == __file__


def test_a_conjunction_leaves_its_parts(env: ShapeEnv) -> None:
    s, t = size(env, "s0", 5), size(env, "s1", 3)
    assert env.evaluate(boolean.and_(boolean.gt(s.term, 2), boolean.gt(t.term, 1)))
    assert sorted(terms(env)) == ["s0 >= 3", "s1 >= 2"]
    assert env.evaluate(boolean.ne(arithmetic.mul(s.term, t.term), 0))
    assert len(env.guards) == 2  # both are positive already
    u = size(env, "s2", 4)
    assert env.evaluate(boolean.ne(arithmetic.mul(s.term, u.term), 0))
    assert terms(env)[2:] == ["s2 != 0"]


def test_declared_bounds(env: ShapeEnv) -> None:
    s = size(env, "n", 16, Dim("n", min=8, max=64, multiple_of=8))
    assert env.known(boolean.ge(s.term, 8))
    assert env.known(boolean.eq(division.mod(s.term, 4), 0))
    assert not env.known(boolean.ge(s.term, 9))
    assert {guard.origin.rule for guard in env.guards if guard.origin} == {"declared"}


def test_specialize(env: ShapeEnv) -> None:
    seen: list[Any] = []
    unsubscribe = events.subscribe(seen.append)
    s = size(env, "s0", 5)
    try:
        assert env.specialize(arithmetic.add(s.term, arithmetic.ONE)) == 6
        assert env.specialize(s.term) == 5
    finally:
        unsubscribe()
    assert terms(env) == ["s0 == 5"]
    assert [(each.symbol, each.value) for each in seen if isinstance(each, events.Specialized)] == [
        ("s0", 5)
    ]


# -- unbacked


def test_unbacked_symbols_have_only_their_bounds(env: ShapeEnv) -> None:
    s = size(env, "s0", 5)
    u = env.new_unbacked(0, s, description="a count")
    assert env.known(boolean.le(u.term, s.term))
    assert env.hint(u.term) is None
    assert env.hint(arithmetic.add(u.term, s.term)) is None
    assert env.evaluate(boolean.ge(u.term, 0)) is True
    assert env.evaluate(boolean.gt(u.term, s.term)) is False
    with pytest.raises(DataDependentError, match="u0, a count, was born at"):
        env.evaluate(boolean.eq(u.term, 3))
    with pytest.raises(DataDependentError):
        env.specialize(u.term)
    assert env.guards == []


def test_an_unbacked_symbol_with_one_value_left(env: ShapeEnv) -> None:
    u = env.new_unbacked(0, 9)
    assert env.expect_true(boolean.eq(u.term, 4))
    assert env.specialize(u.term) == 4
    assert env.evaluate(boolean.lt(u.term, 5)) is True


def test_while_kernels_are_chosen_torch_gets_no_way_out(env: ShapeEnv) -> None:
    """Outside of a rule, ``guard_or_false`` is a question like any other then."""
    u = env.new_unbacked(0, None)
    empty = boolean.eq(u.term, 0)
    assert env.guard_or(empty, False) is False
    env.kernels_differ = True
    with pytest.raises(DataDependentError):
        env.guard_or(empty, False)
    env.current_op = "aten::add"  # its rule asks
    assert env.guard_or(empty, False) is False


@pytest.mark.parametrize(("width", "answer"), [(8, True), (16, True), (4, None)])
def test_what_is_usual_of_a_known_and_a_chosen_size(
    env: ShapeEnv, width: int, answer: bool | None
) -> None:
    """The known size is taken for the example's, the chosen one for several."""
    s, u = size(env, "s0", width), env.new_unbacked(0, None)
    env.current_op = "aten::is_contiguous"
    assert usual(env, boolean.ne(s.term * u.term // 8, 1)) is answer


def test_checks_on_unbacked_symbols_are_assertions(env: ShapeEnv) -> None:
    asserted: list[tuple[Guard, Message]] = []
    env.on_assertion = lambda guard, message, _: asserted.append((guard, message))
    u = env.new_unbacked(0, None)
    env.check(boolean.ge(u.term, 2), lambda: "at least two")
    env.check(boolean.ge(u.term, 1), "follows")
    env.check(boolean.ge(u.term, 0), "known")
    assert [(str(guard.term), str(message)) for guard, message in asserted] == [
        ("u0 >= 2", "at least two")
    ]
    assert env.evaluate(boolean.gt(u.term, 1)) is True
    assert env.guards == []
    with pytest.raises(ProgramError, match="too few"):
        env.check(boolean.lt(u.term, 2), "too few")


def test_checks_on_sizes_are_guards(env: ShapeEnv) -> None:
    s = size(env, "s0", 6)
    env.check(boolean.eq(division.mod(s.term, 2), 0), "even")
    assert terms(env) == ["s0 % 2 == 0"]
    with pytest.raises(ProgramError, match=r"more \(at .*test_env\.py"):
        env.check(boolean.gt(s.term, 6), "more")


def test_guard_or(env: ShapeEnv) -> None:
    s, u = size(env, "s0", 5), env.new_unbacked(0, 9)
    for fallback in (True, False):
        assert env.guard_or(boolean.eq(u.term, 3), fallback) is fallback
        assert env.guard_or(boolean.ge(u.term, 0), fallback) is True
        assert env.guard_or(boolean.gt(u.term, 9), fallback) is False
    assert env.guards == []
    assert env.guard_or(boolean.eq(s.term, 5), False) is True
    assert terms(env) == ["s0 == 5"]


def test_origins_name_op_and_rule() -> None:
    traced = symshape.trace(lambda x, y: torch.cat([x, y], 1), torch.ones(2, 3), torch.ones(2, 4))
    (guard,) = traced.guards
    assert guard.origin is not None
    assert guard.origin.op == "aten::cat"
    assert "cat" in guard.origin.rule
    assert "torch.cat([x, y], 1)" in guard.origin.text


def test_guards_are_minimal() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.size(0) > 2:
            x = x + 1
        if x.size(0) > 5:
            x = x + 1
        if y.size(0) >= x.size(0):
            y = y + 1
        if y.size(0) > 3:
            y = y * 2
        return torch.cat([x, y])

    traced = symshape.trace(fn, torch.ones(8), torch.ones(9))
    assert {guard.term for guard in traced.guards} == {
        guards.parse("s0 <= s1"),
        guards.parse("s0 >= 6"),
    }
