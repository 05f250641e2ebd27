"""Views of examples inside ``vmap(grad(...))``: eager's gradients for all batches, in one program
or two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, vmap

import symshape

BATCHES = (3, 5, 7, 2, 1, 9)
Function = Callable[[torch.Tensor], Any]

VIEWS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "slice": (lambda x: x[1:3], (8,)),
    "slice from the end": (lambda x: x[-2:], (8,)),
    "slice by steps": (lambda x: x[::2], (8,)),
    "slice of two dimensions": (lambda x: x[1:3, ::2], (4, 8)),
    "slice up to a size": (lambda x: x[..., : x.shape[0] - 1, None], (4, 8)),
    "slice and number": (lambda x: x[0, 2:], (4, 8)),
    "narrow": (lambda x: x.narrow(-1, 1, 2), (3, 8)),
    "split": (lambda x: torch.split(x, 2)[1], (8,)),
    "split by sizes": (lambda x: x.split([1, 3, 4], dim=1)[1] * 2, (2, 8)),
    "chunk": (lambda x: x.chunk(2, -1)[0], (3, 8)),
    "tensor_split": (lambda x: x.tensor_split(3)[2], (8,)),
    "diagonal": (lambda x: x.diagonal(1), (4, 4)),
    "diagonal of the last": (lambda x: x.diagonal(0, -2, -1), (2, 3, 4)),
    "windows": (lambda x: x.unfold(0, 3, 1), (8,)),
}


def served(program: Callable[..., Any], *sizes: int, most: int = 3) -> None:
    compiled = symshape.compile(program, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        # torch's, of its own vmap
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        for n in BATCHES:
            x = torch.randn(n, *sizes)
            torch.testing.assert_close(compiled(x.clone()), program(x.clone()), check_stride=True)
    assert compiled.stats().traces <= most


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_each_example(name: str) -> None:
    view, sizes = VIEWS[name]
    served(vmap(grad(lambda x: (view(x) ** 2).sum())), *sizes)
    served(vmap(grad(lambda x: (view(x * 2).sin() * view(x)).sum())), *sizes)


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_of_a_weight_for_each_example(name: str) -> None:
    """Of a tensor without a batch: each example has its own gradient of it."""
    view, sizes = VIEWS[name]
    weight = torch.randn(sizes)
    own = vmap(grad(lambda w, x: (view(w).sin() * x.sum() + view(w)).sum()), (None, 0))
    served(lambda x: own(weight, x), 3)
    compiled = symshape.compile(own, dynamic=True)
    for n in BATCHES:
        x = torch.randn(n, 3)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            torch.testing.assert_close(compiled(weight, x), own(weight, x))
    assert compiled.stats().traces <= 2


def test_a_weight_is_written_to_after_a_view() -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = w * 2
        before = y[:4] * 3
        y[1:3].mul_(3)
        return (before.sum() + y**3 * x.sum() + y[:1]).sum()

    weight, own = torch.randn(8), vmap(grad(loss), (None, 0))
    served(lambda x: own(weight, x), 3, most=len(BATCHES) + 1)


WRITES: dict[str, Function] = {
    "into the view": lambda y: y[1:3].mul_(3),
    "into the tensor": lambda y: y.mul_(y[1:3].sum()),
    "into another view": lambda y: (y[1:3], y[2:5].add_(1)),
    "by an index": lambda y: y.__setitem__(slice(1, 3), y[4:6]),
    "into a part": lambda y: y.narrow(0, 0, 4).mul_(2),
    "into a view of the view": lambda y: y[1:5][1:3].neg_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_memory_of_a_view_is_written_to(name: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        before = y[:4] * 3
        WRITES[name](y)
        return (before.sum() + y**3 + y[:1]).sum()

    served(vmap(grad(loss)), 8, most=len(BATCHES) + 1)


def test_views_that_are_returned() -> None:
    """A view of the argument shares its memory, as in eager."""
    program = vmap(grad(lambda x: (x[1:3].sum(), x[1:3]), has_aux=True))
    compiled = symshape.compile(program, dynamic=True)
    for n in BATCHES:
        x = torch.randn(n, 8)
        y = x.clone()
        (gradient, view), (expected, of_eager) = compiled(x), program(y)
        torch.testing.assert_close((gradient, view), (expected, of_eager))
        x.add_(1), y.add_(1)
        torch.testing.assert_close(view, of_eager)
    assert compiled.stats().traces <= 2


def test_views_of_a_tensor_without_a_batch() -> None:
    weight = torch.randn(8)
    program = vmap(grad(lambda x: (x[1:3] * weight[2:4] + weight.split(2)[0]).sin().sum()))
    served(program, 8)


@pytest.mark.parametrize(
    "wrong", [lambda x: x[1:3, 1:], lambda x: x.narrow(0, 7, 4), lambda x: x.diagonal()]
)
def test_errors_are_eagers(wrong: Function) -> None:
    program = vmap(grad(lambda x: wrong(x).sum()))
    x = torch.randn(4, 8)
    with pytest.raises((IndexError, RuntimeError)):
        program(x)
    with pytest.raises((IndexError, RuntimeError, symshape.SymShapeError)):
        symshape.compile(program)(x)
