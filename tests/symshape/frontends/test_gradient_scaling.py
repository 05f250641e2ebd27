"""``torch.amp.GradScaler`` inside a compiled step: as in eager for fifty steps, some of which
overflow.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import symshape
from symshape.runtime.policy.programs import Account

STEPS = 50
OVERFLOWS = (7, 8, 31)
Step = Callable[[Any], None]


class Trainer:
    """A model, its optimiser and a scaler of gradients that grows every third step."""

    def __init__(self, kind: type[Any] = torch.optim.SGD, **how: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        self.other = nn.Linear(4, 1)
        self.optimiser = kind(self.net.parameters(), 0.05, **how)
        self.second = torch.optim.SGD(self.other.parameters(), 0.05, momentum=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=3)

    def seen(self) -> dict[str, Any]:
        """All that a step may change."""
        return {
            "net": self.net.state_dict(),
            "other": self.other.state_dict(),
            "gradients": [each.grad for each in self.net.parameters()],
            "other gradients": [each.grad for each in self.other.parameters()],
            "optimiser": self.optimiser.state_dict(),
            "second": self.second.state_dict(),
            "scaler": self.scaler.state_dict(),
            "notes": len(getattr(self.scaler, "_per_optimizer_states", ())),
        }


def plain(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own.optimiser.zero_grad()
    loss = functional.mse_loss(own.net(x), y)
    own.scaler.scale(loss).backward()
    own.scaler.step(own.optimiser)
    own.scaler.update()
    return loss.detach()


def mixed(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own.optimiser.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = functional.mse_loss(own.net(x), y.bfloat16())
    own.scaler.scale(loss).backward()
    own.scaler.step(own.optimiser)
    own.scaler.update()
    return loss.detach()


def clipped(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own.optimiser.zero_grad()
    loss = functional.mse_loss(own.net(x), y)
    own.scaler.scale(loss).backward()
    own.scaler.unscale_(own.optimiser)
    nn.utils.clip_grad_norm_(own.net.parameters(), 0.5)
    own.scaler.step(own.optimiser)
    own.scaler.update()
    return loss.detach()


def of_two(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own.optimiser.zero_grad()
    own.second.zero_grad()
    loss = functional.mse_loss(own.net(x) + own.other(x), y)
    own.scaler.scale(loss).backward()
    own.scaler.step(own.optimiser)
    own.scaler.step(own.second)
    own.scaler.update()
    return loss.detach()


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    x, y = (
        torch.randn(2 + number % 4, 4, generator=generator),
        torch.randn(2 + number % 4, 1, generator=generator),
    )
    if number in OVERFLOWS:
        x[0] = float("inf")
    return x, y


def compared(step: Callable[..., Any], make: Callable[[], Trainer]) -> Any:
    """Fifty steps beside eager's; the compiled step."""
    ours, theirs = make(), make()
    compiled: Any = symshape.compile(lambda x, y: step(ours, x, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(STEPS):
            found, expected = compiled(*batch(number)), step(theirs, *batch(number))
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(ours.seen(), theirs.seen(), rtol=0, atol=0, equal_nan=True)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
@pytest.mark.parametrize("step", [plain, mixed, clipped])
def test_steps_are_eagers(step: Callable[..., Any], kind: type[Any]) -> None:
    stats = compared(step, lambda: Trainer(kind)).stats()
    assert stats.traces <= 4
    assert stats.fallbacks == 0  # a step that overflows runs again, by itself


def test_a_fused_optimiser_looks_for_itself() -> None:
    stats = compared(plain, lambda: Trainer(torch.optim.AdamW, fused=True)).stats()
    assert stats.traces <= 4


def test_gradients_that_were_there_before_are_refused() -> None:
    """Unscaling writes to them in place: what is presumed could not be taken back."""

    def accumulated(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(own.net(x), y)
        own.scaler.scale(loss).backward()
        own.scaler.step(own.optimiser)
        own.scaler.update()
        own.optimiser.zero_grad(set_to_none=False)
        return loss.detach()

    compiled = compared(accumulated, Trainer)
    assert "known only at run time" in compiled.explain_fallback()


def unscaled_first(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own.optimiser.zero_grad()
    own.second.zero_grad()
    loss = functional.mse_loss(own.net(x) + own.other(x), y)
    own.scaler.scale(loss).backward()
    own.scaler.unscale_(own.optimiser)
    own.scaler.unscale_(own.second)
    nn.utils.clip_grad_norm_([*own.net.parameters(), *own.other.parameters()], 0.5)
    own.scaler.step(own.second)
    own.scaler.step(own.optimiser)
    own.scaler.update()
    return loss.detach()


def apart(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two losses: where the input overflows, the gradients of the second one alone do."""
    own.optimiser.zero_grad()
    own.second.zero_grad()
    first, second = (
        functional.mse_loss(own.net(x.nan_to_num(0, 0, 0)), y),
        functional.mse_loss(own.other(x), y),
    )
    own.scaler.scale(first).backward()
    own.scaler.scale(second).backward()
    own.scaler.step(own.optimiser)
    own.scaler.step(own.second)
    own.scaler.update()
    return first.detach()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("step", [of_two, unscaled_first, apart])
def test_two_optimisers(step: Callable[..., Any], kind: type[Any]) -> None:
    """Before the first one steps it is presumed that the second one's gradients are finite, too."""
    stats = compared(step, lambda: Trainer(kind)).stats()
    assert stats.traces <= 5
    assert stats.fallbacks == 0


def test_one_of_them_steps_where_the_gradients_of_the_other_overflow() -> None:
    ours = Trainer()
    compiled: Any = symshape.compile(lambda x, y: apart(ours, x, y))
    for number in range(10):
        before = [[each.clone() for each in net.parameters()] for net in (ours.net, ours.other)]
        compiled(*batch(number))
        moved = [
            any(not torch.equal(one, two) for one, two in zip(each, net.parameters(), strict=True))
            for each, net in zip(before, (ours.net, ours.other), strict=True)
        ]
        assert moved == [True, number not in OVERFLOWS]


def _scaled_again(own: Trainer) -> None:
    for each in own.other.parameters():
        assert each.grad is not None
        each.grad.mul_(float("inf"))


def _set_anew(own: Trainer) -> None:
    for each in own.other.parameters():
        each.grad = torch.full_like(each, float("inf"))


def _shares_a_weight(own: Trainer) -> None:
    own.second.param_groups[0]["params"] = [*own.other.parameters(), own.net[0].weight]


@pytest.mark.parametrize("between", [_scaled_again, _set_anew, _shares_a_weight])
def test_gradients_that_are_others_since_are_not_presumed(
    between: Callable[[Trainer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before the first step says nothing of what is unscaled behind it."""
    monkeypatch.setattr(Account, "has_credit", lambda *_: False)  # which depends on measured time

    def step(own: Trainer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own.optimiser.zero_grad()
        own.second.zero_grad()
        loss = functional.mse_loss(own.net(x) + own.other(x), y)
        own.scaler.scale(loss).backward()
        own.scaler.step(own.optimiser)
        between(own)
        own.scaler.step(own.second)
        own.scaler.update()
        return loss.detach()

    compiled = compared(step, Trainer)
    assert "known only at run time" in compiled.explain_fallback()
    assert compiled.stats().refusals <= 4


def test_one_that_is_switched_off() -> None:
    def make() -> Trainer:
        made = Trainer()
        made.scaler = torch.amp.GradScaler("cpu", enabled=False)
        return made

    assert compared(plain, make).stats().fallbacks == 0


def test_what_is_compiled_is_the_forward_alone() -> None:
    ours, theirs = Trainer(), Trainer()
    compiled: Any = symshape.compile(ours.net)
    for number in range(STEPS):
        for own, net in ((ours, compiled), (theirs, theirs.net)):
            x, y = batch(number)
            own.optimiser.zero_grad()
            own.scaler.scale(functional.mse_loss(net(x), y)).backward()
            own.scaler.step(own.optimiser)
            own.scaler.update()
        torch.testing.assert_close(ours.seen(), theirs.seen(), rtol=0, atol=0, equal_nan=True)
    assert symshape.compiled_of(compiled).stats().fallbacks == 0


def test_a_number_that_was_written_to_since_is_not_presumed() -> None:
    """What was read is another number than the one that is there now."""

    def read_before(x: torch.Tensor) -> torch.Tensor:
        found, scale = torch.zeros(()), torch.ones(())
        gradients = [x * 2]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)
        number = found.item()
        found.fill_(3.0)
        return gradients[0] if number == 0.0 else gradients[0] * 0

    with pytest.raises(symshape.DataDependentError):
        symshape.compile(read_before, fullgraph=True)(torch.ones(3))


def test_states_are_taken_from_a_copy() -> None:
    """A scaler that goes on from a saved state is followed."""
    ours, theirs = Trainer(), Trainer()
    compiled: Any = symshape.compile(lambda x, y: plain(ours, x, y))
    saved: dict[str, Any] = {}
    for number in range(7):
        compiled(*batch(number)), plain(theirs, *batch(number))
        if number == 2:
            saved = copy.deepcopy(theirs.scaler.state_dict())
        if number == 4:
            ours.scaler.load_state_dict(saved)
            theirs.scaler.load_state_dict(saved)
        torch.testing.assert_close(ours.seen(), theirs.seen(), rtol=0, atol=0)
