"""Which runner serves a program, and what is said when it is not the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import symshape
from symshape import RunnerError, events
from symshape.runtime.runners.choice import check_name


@pytest.fixture
def fallbacks() -> Iterator[list[events.RunnerFallback]]:
    found: list[events.RunnerFallback] = []
    unsubscribe = events.subscribe(lambda e: found.append(e) if isinstance(e, events.RunnerFallback) else None)
    yield found
    unsubscribe()


def test_names() -> None:
    for name in ("auto", "eager", "inductor", "cudagraph"):
        assert check_name(name) == name
    with pytest.raises(RunnerError, match=r"'jit'.*auto, eager, inductor, cudagraph"):
        check_name("jit")


def test_auto_on_the_cpu_is_eager_and_says_nothing(fallbacks: list[events.RunnerFallback]) -> None:
    f = symshape.compile(lambda x: x * 2)
    f(torch.ones(3))
    assert f.entries[0].runner_name == "eager"
    assert not fallbacks


def test_cudagraph_on_the_cpu_falls_back_with_a_reason(fallbacks: list[events.RunnerFallback]) -> None:
    f = symshape.compile(lambda x: x * 2, runner="cudagraph")
    assert f(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert f.entries[0].runner_name == "eager"
    (event,) = fallbacks
    assert (event.wanted, event.used) == ("cudagraph", "eager")
    assert "CUDA" in event.reason
    f(torch.ones(3))
    assert len(fallbacks) == 1


@pytest.mark.parametrize("runner", ["eager", "inductor"])
def test_autocast_is_that_of_the_call(runner: str) -> None:
    linear = torch.nn.Linear(4, 4)
    f = symshape.compile(linear, runner="eager")
    x = torch.randn(2, 4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(x).dtype == torch.bfloat16
        assert torch.equal(f(x), linear(x))
        assert torch.is_autocast_enabled("cpu")


def test_eager_runner_restores_the_grad_mode_on_errors() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x[i]
        return x * y

    f = symshape.compile(fn, dynamic=True)
    f(torch.ones(3), torch.tensor([0, 1, 2]))
    with pytest.raises(IndexError):
        f(torch.ones(3), torch.tensor([0, 1, 9]))
    assert torch.is_grad_enabled()
