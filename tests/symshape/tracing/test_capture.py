"""A trace from beginning to end: what a program keeps, what is put back, what errors say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from symshape import Options, Policy, UnsupportedError, events
from symshape.calls.arguments import flatten_call, sources_of
from symshape.graph.program import Program
from symshape.tracing.capture import capture
from symshape.tracing.mode import is_tracing

R = torch.randn


def program_of(
    fn: Any, *args: Any, options: Options | None = None, policy: Policy = Policy.AUTO
) -> Program:
    call = flatten_call(None, args, {})
    policies = dict.fromkeys(sources_of(call), policy)
    return capture(fn, call, policies, options or Options())


def test_a_program_runs_and_does_not_keep_the_example() -> None:
    x = R(4, 3)
    program = program_of(lambda x: x[: x.size(0) // 2] + 1, x)
    assert program.call.leaves == (None,)
    (result,) = program.run((R(6, 3),), [6, *([3] * (len(program.slots) - 1))])
    assert result.shape == (3, 3)
    assert set(program.positions) <= set(program.symbols)
    assert program.milliseconds > 0


def test_guards_are_minimised_unless_told_otherwise() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.size(0) > 2 and x.size(0) > 5 else x

    few = program_of(fn, R(8))
    all_of_them = program_of(fn, R(8), options=Options(minimise_guards=False))
    assert [str(guard.term) for guard in few.guards] == ["s0 >= 6"]
    assert [str(guard.term) for guard in all_of_them.guards] == ["s0 >= 3", "s0 >= 6"]


def test_a_trace_is_told_of() -> None:
    seen: list[Any] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        program_of(lambda x: x.sin().cos(), R(3))
    finally:
        unsubscribe()
    (told,) = [each for each in seen if isinstance(each, events.Traced)]
    assert told.milliseconds > 0
    assert told.function.endswith("<lambda>")


def test_the_programs_own_errors_pass_through_and_leave_nothing() -> None:
    class Own(Exception):
        pass

    def fn(x: torch.Tensor) -> torch.Tensor:
        raise Own

    modes = (
        torch.is_grad_enabled(),
        torch.is_autocast_cache_enabled(),
        torch.compiler.is_compiling(),
    )
    with pytest.raises(Own):
        program_of(fn, R(3))
    assert not is_tracing()
    assert (
        torch.is_grad_enabled(),
        torch.is_autocast_cache_enabled(),
        torch.compiler.is_compiling(),
    ) == modes


def test_what_python_refuses_of_a_size_is_explained() -> None:
    with pytest.raises(UnsupportedError, match="only a plain number will do") as raised:
        program_of(lambda x: int.bit_length(x.size(0)) * x, R(3), policy=Policy.DYNAMIC)
    assert isinstance(raised.value.__cause__, TypeError)
    assert "test_capture.py" in str(raised.value)


def test_a_size_of_which_nobody_said_anything_is_fixed_where_python_refuses_it() -> None:
    program = program_of(lambda x: int.bit_length(x.size(0)) * x, R(3))
    x = R(3)
    (result,) = program.run((x,), [3] * len(program.slots))
    assert torch.equal(result, x * 2)
    assert not program.symbols


def test_reading_memory_is_explained() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.frombuffer(x.numpy(), dtype=torch.float32)

    with pytest.raises(UnsupportedError, match="numpy"):
        program_of(fn, R(3))
