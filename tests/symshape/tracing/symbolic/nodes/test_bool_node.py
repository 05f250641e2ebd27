"""Conditions: asked, known, asserted, joined and chosen by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from guards.sets.sources import Size
from guards.terms import boolean
from symshape import Policy, ProgramError
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes.bool_node import BoolNode
from symshape.tracing.symbolic.nodes.int_node import IntNode


@pytest.fixture
def env() -> ShapeEnv:
    return ShapeEnv()


def size(env: ShapeEnv, hint: int) -> IntNode:
    return env.new_symbol(f"s{len(env.symbols)}", hint, Size("x", len(env.symbols)), Policy.AUTO)


def guards_of(env: ShapeEnv) -> list[str]:
    return [str(guard.term) for guard in env.guards]


def test_joined_conditions(env: ShapeEnv) -> None:
    s, t = size(env, 5), size(env, 3)
    both, either = (s > 2) & (t > 2), (s > 7) | (t > 2)
    assert both.term is boolean.and_(boolean.gt(s.term, 2), boolean.gt(t.term, 2))
    assert either.term is boolean.or_(boolean.gt(s.term, 7), boolean.gt(t.term, 2))
    assert (~both).term is boolean.not_(both.term)
    assert both & False is False
    assert both | True is True
    assert (both & torch.SymBool(either)).term is boolean.and_(both.term, either.term)
    assert (both & s).term is boolean.and_(both.term, boolean.not_(boolean.is_zero(s.term)))


def test_asking_guards_and_knowing_does_not(env: ShapeEnv) -> None:
    s = size(env, 5)
    asked = s > 2
    assert asked.known() is asked.statically_known_true() is False
    assert env.guards == []
    assert bool(asked) is asked.guard_bool() is True
    assert asked.int_() == 1
    assert guards_of(env) == ["s0 >= 3"]
    assert asked.known()


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_conditions_as_values(env: ShapeEnv, a: bool, b: bool) -> None:
    s, t = size(env, int(a)), size(env, int(b))
    first, second = (
        env.nodes.bool_node(boolean.eq(s.term, 1)),
        env.nodes.bool_node(boolean.eq(t.term, 1)),
    )
    assert first.eq(second).hint is (a == b)
    assert first.ne(second).hint is (a != b)
    assert first.sym_and(second).hint is (a and b)
    assert first.sym_or(second).hint is (a or b)
    assert first.sym_not().hint is (not a)
    assert first.sym_float().hint == float(a)
    assert first.sym_ite(second, first).hint is (b if a else a)
    assert first.sym_ite(s, t).hint == (1 if a else int(b))
    assert env.guards == []
    # floats are not chosen symbolically
    assert first.sym_ite(s.sym_float(), t.sym_float()).hint == float(a or b)
    assert len(env.guards) == 1


def test_checks_say_the_message(env: ShapeEnv) -> None:
    s = size(env, 5)
    (s > 2).check("small")
    assert guards_of(env) == ["s0 >= 3"]
    with pytest.raises(ProgramError, match="too small"):
        (s > 7).check(lambda: "too small")
    with pytest.raises(ProgramError, match="said by torch"):
        torch._check(torch.SymBool(BoolNode(env, boolean.gt(s.term, 9))), lambda: "said by torch")


BESIDE_NUMBERS: list[Callable[[Any, Any], Any]] = [
    *(
        lambda b, n: b == n,
        lambda b, n: n == b,
        lambda b, n: b != 2,
        lambda b, n: b == -1,
        lambda b, n: b in (2, 3),
    ),
    *(
        lambda b, n: (b, 1) == (n, 1),
        lambda b, n: b == 0.5,
        lambda b, n: n < b,
        lambda b, n: b >= n,
    ),
    *(
        lambda b, n: max(b, n),
        lambda b, n: min(n, b),
        lambda b, n: sorted([n, b, 3]),
        lambda b, n: n in (True, 7),
    ),
    *(
        lambda b, n: b & n,
        lambda b, n: n | b,
        lambda b, n: n >> b,
        lambda b, n: 1 << b,
        lambda b, n: b == (n > 2),
    ),
    *(lambda b, n: n // (b + 1), lambda b, n: sum([b, b, n > 4])),
]


@pytest.mark.parametrize("fn", BESIDE_NUMBERS)
@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_a_condition_beside_numbers_is_0_or_1(fn: Callable[[Any, Any], Any]) -> None:
    def sizes(x: torch.Tensor) -> Any:
        return fn(x.size(0) > 3, x.size(1))

    def data(x: torch.Tensor) -> Any:
        return fn((x > 0).any().item(), x.size(1))

    for program in (sizes, data):
        compiled = symshape.compile(program, dynamic=True)
        for x in (
            torch.ones(5, 4),
            torch.ones(2, 1),
            torch.ones(4, 1),
            -torch.ones(5, 0),
            -torch.ones(2, 3),
        ):
            expected, got = program(x), compiled(x)
            assert (type(got), got) == (type(expected), expected)
        assert "InternalError" not in str(compiled.explain_fallback())
