"""A whole step of training in one compiled function: forward, loss, backward, clipping, AdamW;
equal to eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.adamw import adamw
from torch.utils._python_dispatch import TorchDispatchMode

import symshape

Tensors = list[torch.Tensor]


def loss_of(parameters: Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A layer, a norm, a layer, cross entropy."""
    first, bias, scale, shift, second, last = parameters
    hidden = functional.gelu(functional.linear(x, first, bias))
    hidden = functional.layer_norm(hidden, (8,), scale, shift)
    return functional.cross_entropy(functional.linear(hidden, second, last), y)


def clipped(gradients: Tensors) -> torch.Tensor:
    """Scales the gradients in place to a norm of at most 0.5; their norm."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, torch.clamp(0.5 / (norm + 1e-6), max=1.0))
    return norm


def step(
    parameters: Tensors,
    averages: Tensors,
    squares: Tensors,
    steps: Tensors,
    x: torch.Tensor,
    y: torch.Tensor,
    **how: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of training, in place."""
    loss = loss_of(parameters, x, y)
    gradients = list(torch.autograd.grad(loss, parameters))
    with torch.no_grad():
        norm = clipped(gradients)
        adamw(
            *(parameters, gradients, averages, squares, [], steps),
            **({"foreach": False, "fused": False} | how),
            amsgrad=False,
            maximize=False,
            capturable=False,
            beta1=0.9,
            beta2=0.99,
            lr=1e-2,
            weight_decay=0.01,
            eps=1e-8,
        )
    return loss.detach(), norm


def start() -> tuple[Tensors, Tensors, Tensors, Tensors]:
    """Parameters and the state of the optimiser."""
    torch.manual_seed(0)
    shapes = [(8, 4), (8,), (8,), (8,), (3, 8), (3,)]
    parameters = [torch.randn(shape).requires_grad_() for shape in shapes]
    zeros: Callable[[], Tensors] = lambda: [torch.zeros(shape) for shape in shapes]  # noqa: E731
    return parameters, zeros(), zeros(), [torch.tensor(0.0) for _ in shapes]


@pytest.mark.parametrize(
    "how", [{}, {"foreach": True}, {"fused": True}], ids=lambda how: "+".join(how) or "plain"
)
def test_fifty_steps_are_eagers(how: dict[str, bool]) -> None:
    ours, theirs = start(), start()
    compiled = symshape.compile(step, fullgraph=True)
    for number in range(50):
        batch = 2 + (number * 7) % 11
        x, y = torch.randn(batch, 4), torch.randint(0, 3, (batch,))
        torch.testing.assert_close(
            compiled(*ours, x, y, **how), step(*theirs, x, y, **how), rtol=1e-4, atol=1e-6
        )
    for mine, eager in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-5)
    assert compiled.stats().traces <= 3


@pytest.mark.parametrize("name", ["_foreach_addcdiv_", "_foreach_addcmul_"])
def test_numbers_of_a_tensor(name: str) -> None:
    op: Any = getattr(torch, name)

    def f(x: torch.Tensor, y: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        op([x, y], [x + 1, y + 1], [y + 2, x + 2], numbers)
        return x + y

    compiled = symshape.compile(f, fullgraph=True, dynamic=True)
    for n in (3, 5):
        args = [torch.rand(n), torch.rand(n), torch.tensor([2.0, 3.0])]
        copies = [each.clone() for each in args]
        torch.testing.assert_close(compiled(*args), f(*copies))
        torch.testing.assert_close(args, copies)
    assert compiled.stats().traces == 1


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def _whole_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    def whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return whole


def _train(
    make: Callable[..., torch.optim.Optimizer], compiled: bool, steps: int
) -> tuple[list[Any], int]:
    model = _model()
    optimizer = make(model.parameters())
    step: Any = _whole_step(model, optimizer)
    step = symshape.compile(step, fullgraph=True) if compiled else step
    torch.manual_seed(1)
    seen: list[Any] = []
    for number in range(steps):
        batch = 2 + (number * 7) % 11
        seen.append(step(torch.randn(batch, 4), torch.randint(0, 3, (batch,))))
    seen += [[each, each.grad] for each in model.parameters()]
    seen += [
        [optimizer.state[each][key] for key in optimizer.state[each]] for each in model.parameters()
    ]
    return seen, step.stats().traces if compiled else 0


optim = torch.optim
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": lambda p: optim.AdamW(p, lr=1e-2),
    "AdamW, lists": lambda p: optim.AdamW(p, lr=1e-2, foreach=True, amsgrad=True),
    "AdamW, fused": lambda p: optim.AdamW(p, lr=1e-2, fused=True),
    "Adam, a tensor's rate": lambda p: optim.Adam(p, lr=torch.tensor(1e-2)),
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum, lists": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "SGD with momentum, fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-2, momentum=0.5),
    "NAdam, lists": lambda p: optim.NAdam(p, lr=1e-2, foreach=True),
    "Adagrad, fused": lambda p: optim.Adagrad(p, lr=1e-2, fused=True),
    "RAdam": lambda p: optim.RAdam(
        p, lr=1e-2, decoupled_weight_decay=True, weight_decay=0.1, maximize=True
    ),
    "RAdam, lists": lambda p: optim.RAdam(p, lr=1e-2, foreach=True),
    "ASGD": lambda p: optim.ASGD(p, lr=1e-2, foreach=False, t0=2),
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-2, foreach=False),
    "Adafactor, lists": lambda p: optim.Adafactor(p, lr=1e-2, foreach=True, weight_decay=0.1),
}
_BRANCHING = {"RAdam": 3, "RAdam, lists": 3, "ASGD": 4}
"""Those that branch on a counter of steps, with the programs that this makes."""


@pytest.mark.parametrize("name", _OPTIMISERS)
def test_optimisers_step_as_in_eager(name: str) -> None:
    steps = 50 if name in ("AdamW", "SGD") else 8 if name in _BRANCHING else 5
    theirs, _ = _train(_OPTIMISERS[name], False, steps)
    mine, traces = _train(_OPTIMISERS[name], True, steps)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert traces <= _BRANCHING.get(name, 2)


_SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda optimizer: optim.lr_scheduler.CosineAnnealingLR(optimizer, 50),
    "one cycle, of betas too": lambda optimizer: optim.lr_scheduler.OneCycleLR(
        optimizer, 0.2, total_steps=60
    ),
}


def _scheduled(
    schedule: Callable[[Any], Any], compiled: bool, inside: bool = False
) -> tuple[list[Any], int]:
    model = _model()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    scheduler = schedule(optimizer)
    train = _whole_step(model, optimizer)

    def train_and_schedule(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = train(x, y)
        scheduler.step()
        return loss

    step: Any = train_and_schedule if inside else train
    step = symshape.compile(step, fullgraph=True) if compiled else step
    torch.manual_seed(1)
    seen: list[Any] = []
    for number in range(12 if inside else 20):
        batch = 2 + (number * 7) % 11
        seen.append(step(torch.randn(batch, 4), torch.randint(0, 3, (batch,))))
        if not inside:
            scheduler.step()
    seen += [
        scheduler.get_last_lr(),
        getattr(scheduler, "last_epoch", 0),
        optimizer.param_groups[0]["lr"],
    ]
    return [*seen, list(model.parameters())], step.stats().traces if compiled else 0


@pytest.mark.parametrize("name", _SCHEDULES)
def test_one_program_serves_every_rate(name: str) -> None:
    theirs, _ = _scheduled(_SCHEDULES[name], False)
    mine, traces = _scheduled(_SCHEDULES[name], True)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert traces <= 4


rates = optim.lr_scheduler
_INSIDE: dict[str, tuple[Callable[[Any], Any], int]] = {
    "exponential": (lambda o: rates.ExponentialLR(o, 0.9), 3),
    "linear": (lambda o: rates.LinearLR(o, 0.1, total_iters=30), 3),
    "cosine": (_SCHEDULES["cosine"], 3),
    "restarts": (lambda o: rates.CosineAnnealingWarmRestarts(o, 5, 2), 6),
    "one cycle": (lambda o: rates.OneCycleLR(o, 0.1, total_steps=30), 4),
    "a function": (lambda o: rates.LambdaLR(o, lambda epoch: min(1.0, (epoch + 1) / 10)), 4),
    "steps": (lambda o: rates.StepLR(o, 3, 0.5), 5),
    "milestones": (lambda o: rates.MultiStepLR(o, [3, 7], 0.5), 6),
    "polynomial": (lambda o: rates.PolynomialLR(o, total_iters=8, power=2.0), 5),
    "polynomial, a root": (lambda o: rates.PolynomialLR(o, total_iters=8, power=0.9), 6),
    "cycles": (lambda o: rates.CyclicLR(o, 1e-3, 0.1, step_size_up=4), 4),
    "cycles that shrink": (
        lambda o: rates.CyclicLR(o, 1e-3, 0.1, step_size_up=3, mode="triangular2"),
        5,
    ),
    "cycles that decay": (
        lambda o: rates.CyclicLR(o, 1e-3, 0.1, step_size_up=4, mode="exp_range", gamma=0.99),
        4,
    ),
    "one after the other": (
        lambda o: rates.SequentialLR(
            o, [rates.ConstantLR(o, 0.1, 5), rates.ExponentialLR(o, 0.9)], [6]
        ),
        6,
    ),
    "one on the other": (
        lambda o: rates.ChainedScheduler(
            [rates.ConstantLR(o, 0.1, 5), rates.ExponentialLR(o, 0.9)]
        ),
        4,
    ),
}
"""Each schedule, with the programs that it may make: one for each way, two while it is learnt what
varies.
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", _INSIDE)
def test_schedules_inside_the_step(name: str) -> None:
    schedule, most = _INSIDE[name]
    theirs, _ = _scheduled(schedule, False, inside=True)
    mine, traces = _scheduled(schedule, True, inside=True)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert traces <= most


class Scaled(nn.Module):
    """Keeps a plain float that others change."""

    def __init__(self, scale: float, branches: bool) -> None:
        super().__init__()
        self.scale, self.branches = scale, branches

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scaled, perhaps only from some value on."""
        if self.branches and self.scale < 0.3:
            return x
        return x * self.scale + (1 - self.scale) ** 2


@pytest.mark.parametrize("branches", [False, True])
def test_floats_of_modules_that_change(branches: bool) -> None:
    module = Scaled(0.5, branches)
    compiled = symshape.compile(module.forward, fullgraph=True)
    x = torch.arange(3.0)
    for scale in (0.5, 0.6, 0.4, 0.2, 0.1, 0.7, 2, True, -0.0, 0.9, float("inf")):
        module.scale = scale
        torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0, equal_nan=True)
    assert branches or compiled.stats().traces <= 5, "one for each float"


def test_a_float_and_a_size_that_change_together_cost_two_traces() -> None:
    """As with torch.compile: the second trace already reads the float when it runs."""
    module = Scaled(1.0, False)
    compiled = symshape.compile(module.forward, fullgraph=True)
    for n, scale in enumerate((1.0, 0.5, 0.25, 0.75, 0.1), start=2):
        module.scale = scale
        assert torch.equal(compiled(torch.ones(n)), module(torch.ones(n)))
    assert compiled.stats().traces == 2


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_many_tensors_are_clipped_at_once_as_in_eager() -> None:
    """By the class of the gradients: the 77 of GPT-2 were clipped one by one."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        return norm

    with _Ops() as eager:
        step(torch.randn(3, 4))
    compiled: Any = symshape.compile(step, dynamic=True)
    compiled(torch.randn(3, 4))
    mine = [str(node.op) for node in compiled.entries[0].program.graph.nodes]
    assert [name for name in mine if "foreach" in name] == [
        name for name in eager.names if "foreach" in name
    ]
    assert any("_foreach_norm" in name for name in mine)
