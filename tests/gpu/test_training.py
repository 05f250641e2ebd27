"""Training on a device: losses and parameters of eager, through the backend and as one compiled
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.frontends.dynamo import symshape_backend
from tests.training import TRAINED, Trained, loss_of, sizes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
STEPS = 12
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4, fused=True),
    "one by one": lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3, eps=1e-4, foreach=False
    ),
    "capturable": lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3, eps=1e-4, capturable=True
    ),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
}


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """Convolutions round as they do elsewhere, and the same way each time: a difference would grow
    with each step.

    By `flags`, since `torch.testing._internal`, where something imports it, freezes the settings
    themselves.
    """
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, deterministic=True):
        yield


def _calls(trained: Trained) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    return [{k: v.cuda() for k, v in trained.call(*each).items()} for each in sizes(STEPS)]


def _step(
    run: Callable[..., Any], optimizer: torch.optim.Optimizer, call: dict[str, torch.Tensor]
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(run(**call))
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def _same(
    ours: nn.Module, theirs: nn.Module, mine: list[torch.Tensor], its: list[torch.Tensor]
) -> None:
    torch.testing.assert_close(torch.stack(mine), torch.stack(its), atol=1e-4, rtol=1e-3)
    for (name, one), (_, other) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        torch.testing.assert_close(
            one, other, atol=3e-3, rtol=3e-3, msg=lambda text, name=name: f"{name}: {text}"
        )  # type: ignore[misc]


@pytest.mark.parametrize("trained", TRAINED, ids=lambda each: each.name)
@pytest.mark.parametrize("runner", ["auto", "padded"])
def test_the_backend(trained: Trained, runner: str) -> None:
    torch._dynamo.reset()
    theirs, ours = (trained.build().cuda() for _ in range(2))
    run = torch.compile(ours, backend=symshape_backend, options={"runner": runner})
    calls = _calls(trained)
    by_eager, by_us = (torch.optim.SGD(each.parameters(), lr=1e-2) for each in (theirs, ours))
    _same(
        ours,
        theirs,
        [_step(run, by_us, call) for call in calls],
        [_step(theirs, by_eager, call) for call in calls],
    )


def _again(calls: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """Sizes that come again are captured, and served from then on."""
    return [*calls, *calls[:4], *calls[:4], *calls[:4], *calls]


@pytest.mark.parametrize("runner", ["auto", "padded", "cudagraph"])
@pytest.mark.parametrize("trained", TRAINED, ids=lambda each: each.name)
def test_a_whole_step(trained: Trained, runner: Any) -> None:
    theirs, ours = (trained.build().cuda() for _ in range(2))
    # Gradients that are 0 but for rounding are no steps: padded sums round otherwise.
    by_eager, by_us = (
        torch.optim.AdamW(each.parameters(), lr=1e-3, eps=1e-4) for each in (theirs, ours)
    )
    step: Any = symshape.compile(lambda call: _step(ours, by_us, call), runner=runner)
    calls = _again(_calls(trained))
    _same(
        ours,
        theirs,
        [step(call) for call in calls],
        [_step(theirs, by_eager, call) for call in calls],
    )
    assert step.stats().fallbacks == 0
    assert step.stats().traces <= 4


@pytest.mark.parametrize("runner", ["auto", "padded", "cudagraph"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, runner: Any) -> None:
    (trained,) = (each for each in TRAINED if each.name == "encoder")
    theirs, ours = (trained.build().cuda() for _ in range(2))
    by_eager, by_us = (OPTIMIZERS[name](each.parameters()) for each in (theirs, ours))

    def train(
        model: nn.Module, optimizer: torch.optim.Optimizer, call: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(**call))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    step: Any = symshape.compile(lambda call: train(ours, by_us, call), runner=runner)
    calls = _again(_calls(trained))
    _same(
        ours,
        theirs,
        [step(call) for call in calls],
        [train(theirs, by_eager, call) for call in calls],
    )
    assert step.stats().fallbacks == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(dtype: torch.dtype) -> None:
    (trained,) = (each for each in TRAINED if each.name == "gpt2")
    theirs, ours = (trained.build().cuda() for _ in range(2))

    def steps(model: nn.Module, compiles: bool) -> tuple[list[torch.Tensor], Any]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16, init_scale=2.0**10)

        def train(call: dict[str, torch.Tensor]) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype):
                loss = loss_of(model(**call))
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        run: Any = symshape.compile(train) if compiles else train
        return [run(call) for call in _calls(trained)], run

    (mine, run), (its, _) = steps(ours, True), steps(theirs, False)
    torch.testing.assert_close(torch.stack(mine), torch.stack(its), atol=2e-2, rtol=2e-2)
    assert run.stats().fallbacks == 0
