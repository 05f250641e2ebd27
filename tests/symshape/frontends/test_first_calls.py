"""The first calls on a device: which of them are traced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import symshape
from symshape import events
from symshape.frontends import misses
from symshape.runtime.policy import programs


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on the CPU are taken for calls on a device; two of them run eagerly, whatever they
    take.
    """
    monkeypatch.setattr(misses, "on_device", lambda call: True)
    monkeypatch.setattr(programs, "LEARNING", 2)
    monkeypatch.setattr(programs, "LEARNING_MS", float("inf"))


def double(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


def test_the_first_calls_run_eagerly_and_the_first_trace_is_dynamic() -> None:
    compiled = symshape.compile(double)
    for count, rows in enumerate((4, 7, 5, 9)):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), double(x))
        assert compiled.stats().traces == (count > 1)
    (entry,) = compiled.entries
    assert [
        source.text() for symbol in entry.program.symbols.values() for source in symbol.sources
    ] == ["x.size(0)"]
    assert compiled.stats().untraced == 2


def test_why_the_first_call_ran_eagerly() -> None:
    told: list[events.Event] = []
    stop = events.subscribe(told.append)
    try:
        symshape.compile(double)(torch.ones(2, 3))
    finally:
        stop()
    (eager,) = (each for each in told if isinstance(each, events.RanEagerly))
    assert "which sizes change" in eager.reason


@pytest.mark.parametrize(
    "how",
    [{"fullgraph": True}, {"dynamic": True}, {"dynamic": False}, {"runner": "eager"}],
    ids=str,
)
def test_what_was_asked_for_is_traced_at_once(how: dict[str, object]) -> None:
    compiled = symshape.compile(double, **how)  # type: ignore[call-overload]
    compiled(torch.ones(2, 3))
    assert compiled.stats().traces == 1


def test_after_a_reset_the_first_calls_run_eagerly_again() -> None:
    compiled = symshape.compile(double)
    for _ in range(2):
        for rows in (2, 4, 6):
            compiled(torch.ones(rows, 3))
        assert compiled.stats().traces == 1
        compiled.reset()


def test_a_batch_of_one_is_no_example_where_the_batch_changes() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 1 else x * 3

    compiled = symshape.compile(branches)
    for rows in (4, 9, 1, 6, 1, 3, 1, 8):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), branches(x))
    assert compiled.stats().traces == 1
    assert compiled.stats().untraced == 5
    assert "0 or 1" in compiled.report()


def test_batches_of_one_are_traced_where_nothing_else_comes() -> None:
    compiled = symshape.compile(double)
    for rows in (4, 1, 1, 1, 1, 1):
        compiled(torch.randn(rows, 3))
    assert compiled.stats().traces == 1
    assert compiled.stats().untraced == 3


def _step(
    module: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_a_step_of_training_is_traced_once() -> None:
    torch.manual_seed(0)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())
    steps = [_step(each, torch.optim.AdamW(each.parameters(), lr=0.1)) for each in (model, twin)]
    compiled = symshape.compile(steps[0])
    for rows in (4, 7, 5, 9, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), steps[1](x))
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs)
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert compiled.stats().traces == 1
    symbols = compiled.entries[0].program.symbols.values()
    assert [source.text() for symbol in symbols for source in symbol.sources] == ["x.size(0)"]


def test_gradients_that_add_up() -> None:
    torch.manual_seed(0)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())

    def add(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        before = module.weight.grad
        scale = 1.0 if before is None else 2.0
        loss = module(x).square().mean() * scale
        loss.backward()
        return loss.detach()

    compiled = symshape.compile(lambda x: add(model, x))
    for number, rows in enumerate((4, 7, 5, 9, 3)):
        if number == 3:
            model.weight.grad = twin.weight.grad = None
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), add(twin, x))
        torch.testing.assert_close(model.weight.grad, twin.weight.grad)
        torch.testing.assert_close(model.bias.grad, twin.bias.grad)


@pytest.mark.parametrize("fails", [False, True])
def test_a_program_that_catches_everything_is_traced_as_it_runs(fails: bool) -> None:
    """The trace begins anew inside its ``try``: what it does then is not what it does in eager."""
    torch.manual_seed(0)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())

    def step(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        before = module.weight.grad
        try:
            loss = module(x).square().mean()
            loss.backward()
        except BaseException:
            if fails:
                raise ValueError("the way of errors") from None
            return x
        return loss.detach() if before is None else loss.detach() + before.sum() * 0

    compiled = symshape.compile(lambda x: step(model, x))
    for rows in (4, 7, 5, 9, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), step(twin, x))
        torch.testing.assert_close(model.weight.grad, twin.weight.grad)
    assert compiled.stats().traces <= 2
    assert compiled.stats().refusals == 0
