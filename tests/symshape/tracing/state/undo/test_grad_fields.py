"""``.grad`` of tensors around a compiled function: as eager leaves it, also where a trace fails."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.undo.grad_fields import leaves

Step = Callable[[torch.Tensor], Any]
Make = Callable[[nn.Linear], Step]


def _backward(model: nn.Linear) -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return step


def _of_two(model: nn.Linear) -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        torch.autograd.backward(
            [y.sum(), y.square().mean()], inputs=[model.weight], retain_graph=True
        )
        y.mean().backward()
        return y.detach()

    return step


def _by_hand(model: nn.Linear) -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        assert model.weight.grad is None
        model(x).square().mean().backward()
        with torch.no_grad():
            for each in model.parameters():
                if each.grad is not None:
                    each -= 0.1 * each.grad
                    del each.grad
        return model(x).detach()

    return step


def _returned(model: nn.Linear) -> Step:
    def step(x: torch.Tensor) -> Any:
        model(x).square().mean().backward()
        return [each.grad for each in model.parameters()], model.weight.grad

    return step


def _set(model: nn.Linear) -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        model.bias.grad = x.sum(0)[:2]
        old = model.weight.grad
        model.weight.grad = torch.ones_like(model.weight) if old is None else old * 2
        return x

    return step


def _only_read(model: nn.Linear) -> Step:
    return lambda x: x if model.weight.grad is None else x @ model.weight.grad.t()


def _run(
    make: Make, compiled: bool, between: Callable[[nn.Linear, int], object]
) -> tuple[list[Any], int]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    step: Any = make(model)
    if compiled:
        step = symshape.compile(step, fullgraph=True)
    seen = []
    for n in (3, 5, 2, 4, 7, 6):
        result = step(torch.linspace(-1, 1, 3 * n).reshape(n, 3))
        seen.append(copy.deepcopy((result, [(each, each.grad) for each in model.parameters()])))
        between(model, n)
    return seen, step.stats().traces if compiled else 0


def _nothing(model: nn.Linear, n: int) -> None: ...


def _zero(model: nn.Linear, n: int) -> None:
    model.zero_grad()


def _sometimes(model: nn.Linear, n: int) -> None:
    if n % 2 == 0:
        model.weight.grad = None if n == 2 else torch.full((2, 3), float(n))


@pytest.mark.parametrize("make", [_backward, _of_two, _by_hand, _returned, _set, _only_read])
@pytest.mark.parametrize("between", [_nothing, _zero, _sometimes])
def test_gradients_are_eagers(make: Make, between: Callable[[nn.Linear, int], object]) -> None:
    if make is _by_hand and between is _sometimes:
        pytest.skip("asserts that there is none")
    theirs, _ = _run(make, False, between)
    mine, traces = _run(make, True, between)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert traces <= 4


def _triple(weight: Any) -> None:
    weight.grad.mul_(3)


def test_hooks_of_parameters_run_and_are_compared() -> None:
    calls: list[Any] = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        model.weight.register_hook(lambda gradient: gradient * 2)
        step: Any = _backward(model)
        step = symshape.compile(step, fullgraph=True) if compiled else step
        for _ in range(2):
            step(torch.ones(4, 3))
        model.weight.register_post_accumulate_grad_hook(_triple)
        step(torch.ones(4, 3))
        calls.append(model.weight.grad)
    torch.testing.assert_close(calls[1], calls[0], rtol=0, atol=0)


def test_a_gradient_of_an_argument_is_refused_and_nothing_stays() -> None:
    model = nn.Linear(3, 2)
    step = symshape.compile(_backward(model), fullgraph=True)
    x = torch.ones(4, 3, requires_grad=True)
    with pytest.raises(
        UnsupportedError, match=r"calls backward\(\), which sets the gradient of an argument"
    ):
        step(x)
    assert x.grad is model.weight.grad is None
    with pytest.raises(UnsupportedError, match=r"calls backward\(\)"):
        step(x * 2)


def test_what_fails_after_backward_leaves_gradients_as_they_were() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.grad = torch.ones(2, 3)

    def step(x: torch.Tensor) -> torch.Tensor:
        model(x).sum().backward()
        return x if x.sum() > 0 else -x

    with pytest.raises(symshape.SymShapeError):
        symshape.compile(step, fullgraph=True)(torch.ones(4, 3))
    assert model.weight.grad is before
    assert torch.equal(before, torch.ones(2, 3))
    assert model.bias.grad is None


def test_a_compiled_function_does_not_keep_parameters_alive() -> None:
    import gc
    import weakref

    @symshape.compile
    def step(model: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = functional.mse_loss(model(x), x[:, :2])
        loss.backward()
        return loss.detach()

    model = nn.Linear(3, 2)
    for n in (3, 4, 5):
        step(model, torch.ones(n, 3))
    assert step.stats().fallbacks == 0
    gone = weakref.ref(model.weight)
    del model
    other = nn.Linear(3, 2)
    step(other, torch.ones(3, 3))
    gc.collect()
    assert gone() is None


def test_leaves() -> None:
    a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
    assert {id(each) for each in leaves([(a * b).sum(), c])} == {id(a), id(b), id(c)}
