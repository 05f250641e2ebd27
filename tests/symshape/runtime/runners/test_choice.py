"""Which runner serves a program, and what is said when it is not the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
import torch

import symshape
from symshape import RunnerError, events
from symshape.runtime.runners import choice
from symshape.runtime.runners.choice import RUNNERS, Row, RunnerName, check_name
from symshape.runtime.runners.protocol import Unfit
from tests.symshape.runtime.runners.fakes import NotedRunner


@pytest.fixture
def fallbacks() -> Iterator[list[events.RunnerFallback]]:
    found: list[events.RunnerFallback] = []
    unsubscribe = events.subscribe(
        lambda e: found.append(e) if isinstance(e, events.RunnerFallback) else None
    )
    yield found
    unsubscribe()


def test_names() -> None:
    assert get_args(RunnerName) == ("auto", *RUNNERS)
    for name in ("auto", "eager", "inductor", "padded", "cudagraph"):
        assert check_name(name) == name
    with pytest.raises(RunnerError, match=r"'jit'.*auto, eager, inductor, padded, cudagraph"):
        check_name("jit")


def test_auto_on_the_cpu_is_eager_and_says_nothing(fallbacks: list[events.RunnerFallback]) -> None:
    f = symshape.compile(lambda x: x * 2)
    f(torch.ones(3))
    assert f.entries[0].runner_name == "eager"
    assert not fallbacks


def test_cudagraph_on_the_cpu_falls_back_with_a_reason(
    fallbacks: list[events.RunnerFallback],
) -> None:
    f = symshape.compile(lambda x: x * 2, runner="cudagraph")
    assert f(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert f.entries[0].runner_name == "eager"
    (event,) = fallbacks
    assert (event.wanted, event.used) == ("cudagraph", "eager")
    assert "CUDA" in event.reason
    f(torch.ones(3))
    assert len(fallbacks) == 1


@pytest.mark.parametrize("runner", ["eager", "inductor"])
def test_autocast_is_that_of_the_call(runner: RunnerName) -> None:
    linear = torch.nn.Linear(4, 4)
    f = symshape.compile(linear, runner=runner)
    x = torch.randn(2, 4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(x).dtype == torch.bfloat16
        assert torch.equal(f(x), linear(x))
        assert torch.is_autocast_enabled("cpu")


def test_auto_tries_the_rows_that_want_to_be_tried(
    fallbacks: list[events.RunnerFallback], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(order: choice.Order) -> NotedRunner:
        asked.append("refuses")
        raise Unfit("not today")

    def never(order: choice.Order) -> NotedRunner:
        raise AssertionError("auto is not to try this one")

    rows = {
        "eager": RUNNERS["eager"],
        "silent": Row(never),
        "refuses": Row(refuse, auto=lambda program: True),
        "serves": Row(NotedRunner, auto=lambda program: True),
        "late": Row(never, auto=lambda program: True),
    }
    monkeypatch.setattr(choice, "RUNNERS", rows)
    f = symshape.compile(lambda x: x * 2)
    f(torch.ones(3))
    (entry,) = f.entries
    assert (asked, entry.runner_name) == (["refuses"], "serves")
    assert isinstance(entry.runner, NotedRunner)
    assert entry.runner.order.patient, "nobody asked for this very runner"
    assert not fallbacks
