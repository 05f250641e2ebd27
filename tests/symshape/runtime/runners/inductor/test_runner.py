"""The Inductor runner: eager's values, one artefact for as many sizes as Inductor allows, refusals
with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import events


@pytest.fixture
def reasons() -> Iterator[list[str]]:
    found: list[str] = []
    unsubscribe = events.subscribe(
        lambda e: found.append(e.reason) if isinstance(e, events.RunnerFallback) else None
    )
    yield found
    unsubscribe()


def artefacts(f: Any) -> list[int]:
    return [len(entry.runner.artefacts) for entry in f.entries if entry.runner_name == "inductor"]


@pytest.mark.slow
def test_values_at_many_sizes_from_few_artefacts(reasons: list[str]) -> None:
    linear = nn.Linear(4, 5)

    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        return linear(x).relu() * k + x.sum()

    f = symshape.compile(fn, runner="inductor", dynamic=True)
    with torch.no_grad():
        for size, k in ((3, 2), (5, 2), (8, 3), (2, 7), (100, 1)):
            x = torch.randn(size, 4)
            torch.testing.assert_close(f(x, k), fn(x, k))
    assert not reasons
    assert f.stats().traces == 1
    assert artefacts(f)[0] <= 2


@pytest.mark.slow
def test_sizes_zero_and_one() -> None:
    f = symshape.compile(lambda x: x.softmax(0) + x.sum(), runner="inductor")
    for size in (8, 1, 2, 0):
        x = torch.randn(size)
        torch.testing.assert_close(f(x), x.softmax(0) + x.sum())


@pytest.mark.slow
def test_mutated_inputs_views_and_kept_inputs() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(y)
        return x, y, x * 2, y.view(-1)

    f = symshape.compile(fn, runner="inductor")
    for _ in range(2):
        x, y = torch.randn(3, 2), torch.randn(3, 2)
        twin = x.clone()
        ours, eager = f(x, y), fn(twin, y)
        torch.testing.assert_close(ours, eager)
        torch.testing.assert_close(x, twin)
        assert ours[0] is x
        assert ours[1] is y
        assert ours[3].data_ptr() == y.data_ptr()


@pytest.mark.slow
def test_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    f = symshape.compile(model, runner="inductor")
    x = torch.randn(5, 3)
    f(x).sum().backward()
    ours = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad()
    model(x).sum().backward()
    assert len(ours) == 4
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad)


@pytest.mark.slow
def test_buffers_that_are_written() -> None:
    """Torch's own pass stumbles over BatchNorm's n / (n - 1) for symbolic n (2.13): then the
    program runs op by op.
    """
    model, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    f = symshape.compile(model, runner="inductor")
    with torch.no_grad():
        for size in (4, 6):
            x = torch.randn(size, 3)
            torch.testing.assert_close(f(x), twin(x))
    torch.testing.assert_close(model.running_mean, twin.running_mean)
    assert int(model.num_batches_tracked) == 2


def test_what_it_refuses_runs_op_by_op(reasons: list[str]) -> None:
    f = symshape.compile(lambda x: x[x > 0], runner="inductor")
    x = torch.randn(5)
    assert torch.equal(f(x), x[x > 0])
    assert any("data" in reason for reason in reasons)


def test_a_compiler_that_fails_is_not_asked_again(
    reasons: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.exc import InductorError

    from symshape.torch_internals import inductor

    asked: list[int] = []

    def broken(*_: Any) -> Any:
        asked.append(1)
        raise InductorError(ValueError("no compiler"), None)

    monkeypatch.setattr(inductor, "compile_fx", broken)
    f = symshape.compile(lambda x: x * 2, runner="inductor")
    for _ in range(3):
        assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(asked) == 1
    assert any("no compiler" in reason for reason in reasons)


def test_what_it_says_of_itself_and_a_release() -> None:
    f = symshape.compile(lambda x: x * 2, runner="inductor", dynamic=True)
    x = torch.randn(5)
    torch.testing.assert_close(f(x), x * 2)
    (entry,) = f.entries
    assert entry.runner.describe() == "inductor, 1 artefacts"
    entry.runner.release()
    assert artefacts(f) == [0]
    torch.testing.assert_close(f(x), x * 2)  # a late call: op by op
    assert entry.runner.describe() == "inductor, 0 artefacts"
