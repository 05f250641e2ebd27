"""Loops of training as people write them: averages, checkpoints, counters; equal to eager, in two
or three programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import symshape
from tests.symshape.frontends.recipes import Wrap, agree, layers, rows

# -- averages of weights
_AVERAGES: dict[str, dict[str, Any]] = {
    "mean": {},
    "mean, buffers too": {"use_buffers": True},
    "exponential": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
    "exponential, buffers too": {
        "multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9),
        "use_buffers": True,
    },
    "mean, of lists": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
    "exponential, one by one": {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
    "by hand": {"avg_fn": lambda mean, new, number: 0.1 * new + 0.9 * mean},
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", _AVERAGES)
def test_averages_of_weights(name: str, inside: bool) -> None:
    def loop(wrap: Wrap) -> Iterator[Any]:
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        averaged = swa_utils.AveragedModel(net, **_AVERAGES[name])

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                averaged.update_parameters(net)
            return loss.detach()

        step = wrap(step)
        for number in range(20):
            loss = step(*rows(number))
            if not inside:
                averaged.update_parameters(net)
            yield loss, net, averaged

    agree(loop, traces=2)


# -- checkpoints
class Blocks(nn.Module):
    """Layers behind checkpoints."""

    def __init__(
        self, reentrant: bool, dropout: float = 0.0, norm: bool = False, nested: bool = False
    ) -> None:
        super().__init__()
        self.first, self.reentrant, self.nested = nn.Linear(8, 8), reentrant, nested
        parts: list[list[nn.Module]] = [[nn.Linear(8, 8), nn.GELU()] for _ in range(2)]
        more = [nn.Dropout(dropout)] * (dropout > 0) + [nn.BatchNorm1d(8)] * norm
        self.blocks = nn.ModuleList(nn.Sequential(*each, *more) for each in parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        x = self.first(x)
        for block in self.blocks:
            x = self._again(self._twice(block) if self.nested else block, x)
        return x

    def _twice(self, block: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: self._again(block, x) + x

    def _again(self, block: Any, x: torch.Tensor) -> Any:
        return checkpoint(block, x, use_reentrant=self.reentrant)


_BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"dropout": 0.2},
    "batch norm": {"norm": True},
    "nested": {"nested": True},
    "nested, dropout": {"nested": True, "dropout": 0.2},
}


def _checkpointed(net: Callable[[], nn.Module]) -> Callable[[Wrap], Iterator[Any]]:
    def loop(wrap: Wrap) -> Iterator[Any]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        for number in range(20):
            yield step(rows(number)[0]), model, optimizer

    return loop


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", _BLOCKS)
def test_checkpoints_in_a_whole_step(name: str, reentrant: bool) -> None:
    agree(_checkpointed(lambda: Blocks(reentrant, **_BLOCKS[name])), traces=2)


def test_a_checkpointed_sequence_in_a_whole_step() -> None:
    class Sequence(nn.Sequential):
        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint_sequential(self, 2, x, use_reentrant=False)

    agree(_checkpointed(lambda: Sequence(*[nn.Linear(8, 8) for _ in range(4)])), traces=2)


def test_a_checkpoint_computes_again_in_the_graph_too() -> None:
    """So it saves the memory that it saves in eager."""
    ran = agree(_checkpointed(lambda: Blocks(False, dropout=0.2)), traces=2)
    text = str(ran.compiled[0].entries[-1].program.graph)
    assert text.count("gelu.default") == 4, "twice for each block"
    assert text.count("get_state()\n") == text.count("set_state(v") == 4
    ran = agree(_checkpointed(lambda: Blocks(False)), traces=2)
    assert "_state(" not in str(ran.compiled[0].entries[-1].program.graph), "nothing is drawn"


def test_seeding_beside_a_checkpoint_is_refused() -> None:
    block = nn.Dropout(0.5)

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return checkpoint(block, x, use_reentrant=False)  # type: ignore[no-any-return]

    compiled = symshape.compile(step, fullgraph=True)
    with pytest.raises(symshape.UnsupportedError, match="seeds or reads"):
        compiled(torch.ones(3, requires_grad=True))


# -- numbers in tensors
class Initialised(nn.Module):
    """Takes its shift from the first rows that it sees, as activation norms and codebooks do."""

    def __init__(self, flag: torch.Tensor) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(8))
        self.flag: torch.Tensor
        self.register_buffer("flag", flag)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shifted rows."""
        if not self.flag:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.flag.fill_(1)
        return x + self.shift


@pytest.mark.parametrize(
    "flag",
    [
        torch.tensor(False),
        torch.tensor(0, dtype=torch.uint8),
        torch.tensor([False]),
        torch.tensor([[0]]),
    ],
)
def test_what_the_first_call_initialises(flag: torch.Tensor) -> None:
    def loop(wrap: Wrap) -> Iterator[Any]:
        net = Initialised(flag.clone())
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        compiled = wrap(net)
        for number in range(12):
            optimizer.zero_grad()
            loss = compiled(rows(number)[0]).square().mean()
            loss.backward()
            optimizer.step()
            yield loss, net

    agree(loop, traces=2)


# -- layers that are frozen and thawed inside
def _told(module: nn.Module, required: bool) -> None:
    for each in module.parameters():
        each.requires_grad = required


def _adversaries(wrap: Wrap) -> Iterator[Any]:
    """The critic is frozen while the generator learns, as image translation does."""
    maker, critic = nn.Linear(8, 8), layers()
    makers, critics = (
        torch.optim.Adam(maker.parameters(), 0.01),
        torch.optim.Adam(critic.parameters(), 0.01),
    )

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = maker(x)
        _told(critic, False)
        makers.zero_grad()
        fooled = F.softplus(-critic(made)).mean()
        fooled.backward()
        makers.step()
        _told(critic, True)
        critics.zero_grad()
        found = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(x)).mean()
        found.backward()
        critics.step()
        return fooled.detach(), found.detach()

    step = wrap(step)
    for number in range(20):
        yield step(rows(number)[0]), maker, critic, makers, critics


def _left_frozen(wrap: Wrap) -> Iterator[Any]:
    net = layers()

    def step(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        loss = net(x).square().mean()
        net[0].requires_grad_(requires_grad=False)
        return loss, net[0].weight.requires_grad

    step = wrap(step)
    for number in range(12):
        if number % 3 == 0:
            net.requires_grad_(True)
        loss, flag = step(rows(number)[0])
        loss.backward()
        yield loss, flag, net


def _nothing_to_do(wrap: Wrap) -> Iterator[Any]:
    net, other = layers(), nn.Parameter(torch.ones(2))

    def step(x: torch.Tensor) -> Any:
        other.requires_grad_(True)
        return net(x)

    step = wrap(step)
    for number in range(12):
        if number % 3 == 1:
            other.requires_grad_(False)
        yield step(rows(number)[0]), other


def _written_once_frozen(wrap: Wrap) -> Iterator[Any]:
    weight = nn.Parameter(torch.ones(8))

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.requires_grad_(False)
        weight.add_(x.mean(0))
        return x * weight

    step = wrap(step)
    for number in range(12):
        if number == 4:
            weight.requires_grad_(True)
        yield step(rows(number)[0]), weight


def _thawed_between(wrap: Wrap) -> Iterator[Any]:
    """One loss with a frozen net, one with all of it; backward is the caller's."""
    net = layers()

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        net.requires_grad_(False)
        frozen = net(x).mean()
        net.requires_grad_(True)
        return frozen, net(x).square().mean()

    step = wrap(step)
    for number in range(8):
        frozen, loss = step(rows(number)[0])
        loss.backward()
        yield frozen, loss, net


@pytest.mark.parametrize(
    "loop", [_adversaries, _left_frozen, _nothing_to_do, _written_once_frozen, _thawed_between]
)
def test_parameters_that_are_frozen_inside(loop: Callable[[Wrap], Iterator[Any]]) -> None:
    agree(loop, traces=3)


def test_embeddings_with_a_largest_norm() -> None:
    def loop(wrap: Wrap) -> Iterator[Any]:
        table = nn.Embedding(30, 8, padding_idx=0, max_norm=1.0)
        optimizer = torch.optim.SGD(table.parameters(), 0.5)

        def step(tokens: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = table(tokens).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        for number in range(12):
            yield step(torch.arange(2 + number % 7) * number % 30), table

    agree(loop, traces=2)


# -- what overflows
def _finite(loss: torch.Tensor, norm: torch.Tensor) -> Any:
    return torch.isfinite(loss)


_HEALTHY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "finite": _finite,
    "not a number": lambda loss, norm: not torch.isnan(loss),
    "not itself": lambda loss, norm: loss == loss,
    "infinite": lambda loss, norm: not torch.isinf(norm).any(),
    "both": lambda loss, norm: not torch.isnan(loss) and torch.isfinite(norm).all(),
    "joined": lambda loss, norm: not (loss.isnan() | norm.isinf()),
}


@pytest.mark.parametrize("name", _HEALTHY)
def test_steps_that_overflow_are_skipped(name: str) -> None:
    """That they do not is presumed; where they do, the function runs."""

    def loop(wrap: Wrap) -> Iterator[Any]:
        net = layers()
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, bool]:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if _HEALTHY[name](loss.detach(), norm):
                optimizer.step()
                return loss.detach(), True
            return loss.detach(), False

        step = wrap(step)
        for number in range(24):
            x, y = rows(number)
            bad = float("inf" if name == "infinite" else "nan")
            yield step(x, y * bad if number in (7, 15) else y), net, optimizer

    agree(loop, traces=3)


def test_another_question_is_no_usual_one() -> None:
    for ask in (
        lambda x: x.sum() > 0,
        lambda x: x.sum() == 1.0,
        lambda x: x.isnan().any() | (x.max() > 3),
    ):
        with pytest.raises(symshape.DataDependentError):
            symshape.compile(lambda x, ask=ask: x if ask(x) else -x, fullgraph=True)(torch.ones(3))


def test_what_was_written_to_before_is_not_presumed_about() -> None:
    kept = torch.zeros(3)

    def step(x: torch.Tensor) -> torch.Tensor:
        kept.add_(x)
        return x if torch.isfinite(x).all() else -x

    with pytest.raises(symshape.DataDependentError):
        symshape.compile(step, fullgraph=True)(torch.ones(3))
