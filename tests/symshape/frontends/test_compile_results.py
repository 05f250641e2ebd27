"""What a call answers: eager's values, aliasing, mutation, random numbers, gradients."""

from __future__ import annotations

import copy

import torch
from torch import nn

import symshape
from tests.symshape.frontends.calling import same, traces


class TestResults:
    def test_mutated_inputs(self) -> None:
        def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            y[1:] *= 2
            return x * y

        f = symshape.compile(fn)
        for size in (3, 5, 1):
            x, y = torch.randn(size), torch.randn(size)
            x2, y2 = x.clone(), y.clone()
            assert same(f(x, y), fn(x2, y2))
            assert same(x, x2)
            assert same(y, y2)

    def test_outputs_that_are_or_share_inputs(self) -> None:
        def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x + 1
            return x, x.view(-1), x[1:], y, y, y[0]

        f = symshape.compile(fn)
        for size in (3, 4, 5):
            x = torch.randn(size, 2)
            now = f(x)
            assert now[0] is x
            assert now[1].data_ptr() == x.data_ptr()
            assert now[2].data_ptr() == x[1:].data_ptr()
            assert now[3] is now[4]
            assert now[5].data_ptr() == now[3].data_ptr()
            x.fill_(7)
            assert (now[2] == 7).all()

    def test_outputs_that_are_parameters_or_constants(self) -> None:
        module = nn.Linear(2, 2)
        f = symshape.compile(lambda x: (module.weight, x.shape[0], "text", None, 2.5, True))
        for size in (3, 4):
            weight, *rest = f(torch.ones(size))
            assert weight is module.weight
            assert rest == [size, "text", None, 2.5, True]

    def test_constants_are_fresh_in_each_call(self) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            y = torch.tensor([1.0, 2.0])
            y += x
            return y

        f = symshape.compile(fn)
        for _ in range(3):
            assert f(torch.ones(2)).tolist() == [2.0, 3.0]

    def test_random_numbers_are_drawn_anew(self) -> None:
        f = symshape.compile(lambda x: x + torch.rand(x.shape[0]))
        x = torch.zeros(5)
        f(x)
        torch.manual_seed(3)
        now = (f(x), f(x))
        torch.manual_seed(3)
        assert same(now[0], torch.rand(5))
        assert same(now[1], torch.rand(5))

    def test_data_dependent_sizes(self) -> None:
        f = symshape.compile(lambda x: x[x > 0] * 2)
        for size in (4, 9, 0, 1):
            x = torch.randn(size)
            assert same(f(x), x[x > 0] * 2)
        assert traces(f) <= 2

    def test_training_equals_eager(self) -> None:
        torch.manual_seed(0)
        eager = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))
        ours = copy.deepcopy(eager)
        f = symshape.compile(ours)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (eager, ours)]
        for step in range(6):
            x = torch.randn(3 + step, 4)
            for model, optimizer in zip((eager, f), optimizers, strict=True):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        for one, other in zip(eager.parameters(), ours.parameters(), strict=True):
            assert same(one.data, other.data)
        assert traces(f) == 2

    def test_gradients_of_inputs(self) -> None:
        f = symshape.compile(
            lambda x, y: (x * y).detach() + x * 2 + torch.no_grad()(lambda: y * 3)()
        )
        for size in (2, 3, 4):
            x = torch.randn(size, requires_grad=True)
            y = torch.randn(size, requires_grad=True)
            f(x, y).sum().backward()
            assert x.grad is not None
            assert (x.grad == 2).all()
            assert y.grad is None
