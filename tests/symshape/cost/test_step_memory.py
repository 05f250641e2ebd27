"""The memory that calls and steps of training reserve, against their live bytes in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.cost import step_memory
from symshape.cost.allocator import OutOfMemory, rounded
from symshape.cost.graph_memory import DeviceMemory
from symshape.cost.live_bytes import LiveBytes
from symshape.cost.optimizers import OPTIMIZERS, optimizer_memory
from symshape.cost.step_memory import StepMemory

BARE = DeviceMemory(0, 0)


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16))


def _in_blocks(storage: torch.UntypedStorage) -> int:
    """The bytes that the allocator hands out, without numbers: that of an optimizer's step is on
    the CPU.
    """
    return 0 if storage.nbytes() <= 4 else rounded(storage.nbytes())


@pytest.mark.parametrize("batch", [3, 40, 117])
def test_inference_is_what_eager_has_live(batch: int) -> None:
    module = _model()
    with torch.no_grad():
        traced = symshape.trace(module, torch.ones(5, 16), dynamic={"input": {0: "batch"}})
        model = StepMemory(traced.program, device=BARE)
        x = torch.randn(batch, 16)
        with LiveBytes([x, *module.parameters()], lambda s: rounded(s.nbytes())) as seen:
            module(x)
    at = model.at(batch=batch)
    assert at.allocated == seen.peak
    assert at.reserved >= at.allocated


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("batch", [3, 64])
def test_training_is_what_eager_has_live(name: str, batch: int) -> None:
    make: Callable[[Any], Any] = OPTIMIZERS[name]
    module = _model()
    step = symshape.trace_training(
        module,
        torch.ones(5, 16),
        loss=lambda y: y.square().sum(),
        optimizer=make,
        dynamic={"input": {0: "batch"}},
    )
    assert step.optimizer is not None
    model = StepMemory(
        step.program, optimizer=optimizer_memory(step.optimizer), trains=True, device=BARE
    )
    optimizer = make(list(module.parameters()))
    x = torch.randn(batch, 16)
    with LiveBytes([x, *module.parameters()], _in_blocks) as seen:
        for _ in range(2):
            # lives while the step is taken, as in a loop that logs something of it
            result = module(x)
            loss = result.square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del result, loss
    assert 0 <= model.at(batch=batch).allocated - seen.peak <= 3 * 512, (
        "blocks of numbers, which are not counted"
    )


def test_a_limit() -> None:
    traced = symshape.trace(
        lambda x: torch.exp(x) + 1, torch.ones(3, 1024), dynamic={"x": {0: "n"}}
    )
    model = StepMemory(traced.program, device=BARE)
    need = model.at(n=5000).reserved
    assert model.fits(need, {"n": 5000})
    assert not model.fits(need - 1, {"n": 5000})
    with pytest.raises(OutOfMemory):
        model.at(need - 1, n=5000)


def test_the_first_product_allocates_a_workspace() -> None:
    traced = symshape.trace(nn.Linear(16, 4), torch.ones(3, 16), dynamic={"input": {0: "n"}})
    bare, whole = (
        StepMemory(traced.program, device=each).at(n=8) for each in (BARE, DeviceMemory())
    )
    assert whole.reserved == bare.reserved + 32 * 2**20
    assert whole.allocated == bare.allocated + 33 * 2**20


def test_backward_has_a_workspace_of_its_own() -> None:
    """Autograd's thread has its own handle of cuBLAS; its products here have no bias, so cuBLASLt
    is not used there.
    """
    step = symshape.trace_training(
        nn.Linear(16, 4), torch.ones(3, 16), loss=torch.sum, dynamic={"input": {0: "n"}}
    )
    bare, whole = (
        StepMemory(step.program, trains=True, device=each).at(n=8)
        for each in (BARE, DeviceMemory())
    )
    assert whole.allocated == bare.allocated + (33 + 32) * 2**20


def test_partial_sums_are_there_while_a_bias_gets_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = symshape.trace_training(
        _model(),
        torch.ones(5, 16),
        loss=lambda y: y.square().sum(),
        dynamic={"input": {0: "batch"}},
    )
    model = StepMemory(step.program, trains=True, device=BARE)
    without = model.at(batch=64)

    def asked(node: Any, values: Any, device: Any) -> tuple[int, ...]:
        summed = node.op is torch.ops.aten.sum.dim_IntList
        return (2**20 * values["batch"], 512) if summed else ()

    monkeypatch.setattr(step_memory, "partial_sums", asked)
    seen = model.at(batch=64)
    live = seen.allocated - 2**26 - 512
    assert without.allocated // 2 < live <= without.allocated
    assert seen.reserved >= seen.allocated
