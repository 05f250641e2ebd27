"""``Traced.to_fx``: the same values at other sizes, through plain FX."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import symshape
from symshape.errors import UnsupportedError


def _run(
    fn: Callable[..., torch.Tensor], example: tuple[object, ...], *others: tuple[object, ...]
) -> None:
    module = symshape.trace(fn, *example, dynamic=True).to_fx()
    for args in (example, *others):
        (result,) = module(*args)
        torch.testing.assert_close(result, fn(*args))


def test_sizes_are_computed_from_the_inputs() -> None:
    _run(
        lambda x, y: torch.cat([x, y]).view(x.size(0) + y.size(0), 2, -1),
        (torch.randn(3, 4), torch.randn(5, 4)),
        (torch.randn(1, 6), torch.randn(2, 6)),
    )


def test_floor_division_minimum_and_constants() -> None:
    _run(
        lambda x: x[: torch.sym_min(x.size(0) // 2 + 1, 4)] * x.size(1),
        (torch.randn(5, 3),),
        (torch.randn(9, 2),),
    )


def test_integer_arguments_are_placeholders() -> None:
    _run(lambda x, n: x.repeat(n), (torch.randn(3), 2), (torch.randn(4), 5))


def test_floats_of_sizes() -> None:
    _run(lambda x: x / (x.size(0) / 2), (torch.randn(4),), (torch.randn(7),))
    _run(
        lambda x: x * float(x.size(0)) / float(x.size(0) + 1), (torch.randn(4),), (torch.randn(7),)
    )
    _run(
        lambda x: x[: int(x.size(0) * 0.3)] * float(x.size(0)),
        (torch.randn(14),),
        (torch.randn(17),),
    )
    _run(
        lambda x: x * math.sqrt(x.size(0)) + math.log2(x.size(0)),
        (torch.randn(4),),
        (torch.randn(7),),
    )
    _run(
        lambda x: x * math.cos(x.size(0)) + math.sin(x.size(0)),
        (torch.randn(4),),
        (torch.randn(7),),
    )
    _run(
        lambda x: x * math.tanh(x.size(0)) + math.atan(x.size(0)),
        (torch.randn(4),),
        (torch.randn(7),),
    )


def test_parameters_are_attributes() -> None:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        module = symshape.trace(layer, torch.randn(3, 4)).to_fx()
        x = torch.randn(8, 4)
        torch.testing.assert_close(module(x)[0], layer(x))
    assert {id(p) for p in module.parameters()} == {id(p) for p in layer.parameters()}


def test_constants_start_afresh_in_each_run() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.0, 2.0]).add_(1)

    module = symshape.trace(f, torch.zeros(2)).to_fx()
    for _ in range(2):
        assert torch.equal(module(torch.zeros(2))[0], torch.tensor([2.0, 3.0]))


def test_data_dependent_sizes_and_assertions() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.size(0) >= 2)
        return torch.zeros(found.size(0) - 1)

    module = symshape.trace(f, torch.ones(3)).to_fx()
    assert module(torch.ones(5))[0].shape == (4,)
    with pytest.raises(RuntimeError):
        module(torch.zeros(5))


def test_gradient_switches_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        return x + y

    with pytest.raises(UnsupportedError, match="switches gradients or inference mode on or off"):
        symshape.trace(f, torch.randn(3)).to_fx()


def test_inference_mode_inside_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return x * 2

    with torch.no_grad(), pytest.raises(UnsupportedError, match="inference mode"):
        symshape.trace(f, torch.randn(3)).to_fx()
