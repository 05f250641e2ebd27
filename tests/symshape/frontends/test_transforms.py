"""``torch.func``'s transforms inside compiled functions, and of them: equal to eager at other sizes, in two traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

import symshape

Tensor = torch.Tensor
Transform = Callable[[Callable[..., Any], Tensor], Any]

_model = nn.Linear(4, 3)
_parameters = dict(_model.named_parameters())


def _square(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def _wave(x: Tensor) -> Tensor:
    return x.sin() * x.shape[0]


def _loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(_model, parameters, (x,)).pow(2).mean()


OF_ONE_NUMBER: dict[str, Transform] = {
    "grad": lambda f, x: grad(f)(x),
    "grad and value": lambda f, x: grad_and_value(f)(x),
    "grad of each row": lambda f, x: vmap(grad(f))(x),
    "second derivatives": lambda f, x: hessian(f)(x[0]),
    "a gradient's gradient": lambda f, x: grad(lambda y: grad(f)(y).sum())(x),
}
OF_TENSORS: dict[str, Transform] = {
    "vmap": lambda f, x: vmap(f)(x),
    "vmap in vmap": lambda f, x: vmap(vmap(lambda y: y * x.shape[0] + x.shape[1] / 3 - 0.1))(f(x).double()),
    "jvp": lambda f, x: jvp(f, (x,), (x * 2,)),
    "vjp": lambda f, x: vjp(f, x)[1](x),
    "jacrev": lambda f, x: jacrev(f)(x[0]),
    "jacfwd": lambda f, x: jacfwd(f)(x[0]),
    "checkpoint": lambda f, x: checkpoint(f, x, use_reentrant=False),
}
TRANSFORMS = {
    **{name: (each, _square) for name, each in OF_ONE_NUMBER.items()},
    **{name: (each, _wave) for name, each in OF_TENSORS.items()},
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_inside_a_compiled_function(name: str) -> None:
    transform, fn = TRANSFORMS[name]
    compiled = symshape.compile(lambda x: transform(fn, x), fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), transform(fn, x))
    assert compiled.stats().traces <= 2


@pytest.mark.parametrize("name", TRANSFORMS)
def test_of_a_compiled_function(name: str) -> None:
    transform, fn = TRANSFORMS[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(transform(compiled, x), transform(fn, x))
        torch.testing.assert_close(compiled(x), fn(x))


def test_gradients_of_each_sample() -> None:
    compiled = symshape.compile(lambda x: vmap(grad(_loss), in_dims=(None, 0))(_parameters, x), fullgraph=True)
    for n in (3, 5, 2):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), vmap(grad(_loss), in_dims=(None, 0))(_parameters, x))
    assert compiled.stats().traces == 2
