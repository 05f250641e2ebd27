"""A step of training as one program: its peak against live bytes in eager, its gradients,
refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.optim.optimizer import Optimizer

import symshape
from symshape.cost.live_bytes import LiveBytes
from symshape.errors import InputError
from tests.symshape.cost.programs import SIZES, programs, sizes_of
from tests.training import loss_of

PROGRAMS = programs()
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adamw at once": lambda p: torch.optim.AdamW(p, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
}


def kept_by(optimizer: Optimizer | None) -> Iterable[torch.Tensor]:
    states = optimizer.state.values() if optimizer is not None else ()
    return (
        value for state in states for value in state.values() if isinstance(value, torch.Tensor)
    )


def measured(
    module: torch.nn.Module, call: dict[str, torch.Tensor], optimizer: Optimizer | None
) -> int:
    """The most live bytes of a step as people write it."""

    def step() -> None:
        result = module(**call)
        loss = loss_of(result)
        loss.backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()

    gradients = [each.grad for each in module.parameters() if each.grad is not None]
    with LiveBytes(
        [*call.values(), *module.parameters(), *module.buffers(), *gradients, *kept_by(optimizer)]
    ) as seen:
        step()
    return seen.peak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "accumulated"), [("gpt2", False), ("vit", True), ("lstm", False), ("lstm", True)]
)
def test_peak_of_a_step(name: str, accumulated: bool) -> None:
    """Within 10% of what eager holds, at five sizes, for each optimizer."""
    model = PROGRAMS[name]
    module = model.build()
    forward = symshape.trace_training(
        module, loss=loss_of, accumulated=accumulated, **model.call(3, 12)
    )
    compared = 0
    for make in (None, *OPTIMIZERS.values()):
        optimizer = None if make is None else make(module.parameters())
        peak = symshape.TracedTraining(forward, optimizer, accumulated).peak_memory()
        measured(module, model.call(2, 9), optimizer)  # the first step makes the state
        for batch, size in SIZES:
            if not accumulated:
                module.zero_grad()
            call = model.call(batch, size)
            found = peak.at(**sizes_of(forward, call)).total
            assert 0.995 <= found / measured(module, call, optimizer) <= 1.1, (batch, size)
            compared += 1
    assert compared == 20


def test_the_program_answers_loss_and_gradients() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    step = symshape.trace_training(model, torch.randn(5, 4), loss=torch.mean)
    x = torch.randn(7, 4)
    loss, gradients = step(x)
    expected = model(x).mean()
    assert torch.equal(loss, expected.detach())
    for ours, theirs in zip(
        gradients, torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    assert all(each.grad is None for each in model.parameters())
    assert repr(step).startswith("<Traced Sequential: ")


def test_parts_of_a_step() -> None:
    """A layer of 9 parameters: its optimizer keeps 18 more, and its step comes last where the batch
    is small.
    """
    model = torch.nn.Linear(8, 1)
    step = symshape.trace_training(
        model,
        torch.ones(4, 8),
        loss=torch.mean,
        optimizer=torch.optim.AdamW,
        dynamic={"input": {0: "batch"}},
    )
    peak = step.peak_memory()
    at = peak.at(batch=2)
    assert (at.parameters, at.gradients, at.inputs, at.place) == (36, 36, 64, "AdamW.step()")
    assert at.optimizer > 72  # with what the step needs
    assert "optimizer" in peak.table().columns
    assert "gradients 36 B" in str(at)
    assert peak.largest("batch", bytes="1 MB") == max(
        n for n in range(2, 40_000) if peak.at(batch=n).total <= 10**6
    )


def test_a_function_with_the_parameters_of_an_optimizer() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), target)

    step = symshape.trace_training(
        loss, torch.randn(5, 3), torch.zeros(5, dtype=torch.long), optimizer=optimizer
    )
    sizes = {"s0": 50, "s1": 3, "s2": 50}
    assert len(step(torch.randn(4, 3), torch.ones(4, dtype=torch.long))[1]) == 2
    assert step.peak_memory().at(**sizes).optimizer == 0
    assert (
        step.peak_memory(schedule="graph").at(**sizes).total <= step.peak_memory().at(**sizes).total
    )


def test_refusals() -> None:
    model = torch.nn.Linear(3, 2)
    x = torch.ones(5, 3)
    with pytest.raises(
        InputError, match=r"\(a tensor of 2 dimensions\) is not a scalar loss .* pass loss=…"
    ):
        symshape.trace_training(model, x)
    with pytest.raises(InputError, match=r"\(dict\) is not a scalar loss"):
        symshape.trace_training(lambda x: {"y": model(x)}, x, parameters=model.parameters())
    with pytest.raises(
        InputError, match=r"loss=… returns .*a tensor of 2 dimensions, which is not one number"
    ):
        symshape.trace_training(model, x, loss=lambda y: y)
    with pytest.raises(InputError, match="there is no parameter to train: pass parameters="):
        symshape.trace_training(lambda x: x.sum(), x)
    with pytest.raises(InputError, match="needs a function or a module, not a int"):
        symshape.trace_training(3, x)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="optimizer='adamw' must be"):
        symshape.trace_training(model, x, loss=torch.mean, optimizer="adamw")  # type: ignore[arg-type]
