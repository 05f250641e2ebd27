"""Ops under ``vmap``, and ``grad`` inside of it: eager's results for all batches, in one program or two."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, vmap

import symshape

Function = Callable[[torch.Tensor], Any]
BATCHES = (3, 5, 7, 2, 1, 9)
KERNEL, LINE = torch.randn(4, 3, 3, 3), torch.randn(6, 3, 3)

OPS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "conv1d": (lambda x: F.conv1d(x, LINE, torch.ones(6), padding=1), (3, 8)),
    "conv2d": (lambda x: F.conv2d(x, KERNEL, stride=2), (3, 8, 8)),
    "conv2d of a batch of one": (lambda x: F.conv2d(x[None], KERNEL, padding="same"), (3, 8, 8)),
    "conv2d of groups": (lambda x: F.conv2d(x[None], KERNEL[:3, :1], groups=3), (3, 8, 8)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (3, 8)),
    "max_pool2d": (lambda x: F.max_pool2d(x[None], 2), (3, 8, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, stride=2, count_include_pad=False), (3, 8, 8)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x[None], 2), (3, 8, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (3, 8, 8)),
    "gather": (lambda x: x.gather(0, torch.tensor([0, 2, 2])), (8,)),
    "gather of positions of each": (lambda x: torch.gather(x, -1, x.detach().argsort(-1)), (2, 8)),
    "index_select": (lambda x: x.index_select(-1, torch.tensor([1, 1, 0])), (4, 8)),
    "cat": (lambda x: torch.cat([x, x * 2, torch.ones(1, 2)]), (8, 2)),
    "cat along the last": (lambda x: torch.cat((x, torch.ones(8, 1)), dim=-1), (8, 2)),
    "topk": (lambda x: x.topk(3)[0], (8,)),
    "the least of topk": (lambda x: torch.topk(x, 2, 0, False).values, (8, 3)),
    "sort": (lambda x: x.sort(descending=True).values * torch.arange(8), (8,)),
    "max": (lambda x: x.max(0).values, (4, 8)),
    "min, kept": (lambda x: torch.min(x, -1, keepdim=True)[0], (4, 8)),
    "median": (lambda x: x.median(0)[0], (5, 3)),
    "prod": (lambda x: x.prod(-1), (4, 8)),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), (8,)),
    "glu": (lambda x: F.glu(x, 0), (8, 2)),
}


def served(program: Callable[..., Any], calls: Sequence[tuple[torch.Tensor, ...]], most: int = 2) -> None:
    compiled = symshape.compile(program, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", symshape.FallbackWarning)
        for call in calls:
            torch.testing.assert_close(compiled(*call), program(*call))
    assert symshape.compiled_of(compiled).stats().traces <= most


def batches(*sizes: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(n, *sizes),) for n in BATCHES]


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_each_example(name: str) -> None:
    op, sizes = OPS[name]
    served(vmap(grad(lambda x: (op(x) ** 2).sum())), batches(*sizes))


@pytest.mark.parametrize("name", ["conv2d", "gather", "cat", "topk", "sort", "max_pool2d", "glu"])
def test_results_of_each_example(name: str) -> None:
    op, sizes = OPS[name]
    served(vmap(op, in_dims=1), [(call.movedim(0, 1),) for (call,) in batches(*sizes)])
    served(grad(lambda x: (vmap(op)(x) ** 2).sum()), batches(*sizes))


def test_results_have_names() -> None:
    program = vmap(lambda x: (x.sort().indices, torch.max(x, 0).indices, x.topk(2).indices))
    served(program, batches(8))


def test_gradients_that_autograd_records() -> None:
    """Outside of the transforms: of an argument that requires gradients, or of a weight that only the loss has."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return vmap(grad(lambda row: (torch.cat([row, row]) ** 3 * w).sum()))(x)

    compiled = symshape.compile(program)
    for n in BATCHES:
        for wanted in (True, False):
            x, w = torch.randn(n, 4, requires_grad=wanted), torch.randn(8, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", symshape.FallbackWarning)
                got = torch.autograd.grad(compiled(x, w).square().sum(), [x, w] if wanted else [w])
            expected = torch.autograd.grad(program(x, w).square().sum(), [x, w] if wanted else [w])
            torch.testing.assert_close(got, expected)


def test_weights_have_gradients_of_each_example() -> None:
    """A weight has no batch, but each example has its own gradient of it: torch's rules serve these."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.GELU(), torch.nn.Flatten(0), torch.nn.Linear(64, 2))
    weights = {name: each.detach() for name, each in module.named_parameters()}

    def program(x: torch.Tensor) -> Any:
        return vmap(grad_and_value(lambda w, x: functional_call(module, w, (x,)).sum()), (None, 0))(weights, x)

    served(program, batches(3, 6, 6), most=len(BATCHES))


def test_nested_transforms_are_left_to_torch() -> None:
    program = vmap(vmap(grad(lambda a, b: (torch.cat([a, b]) ** 2).sum()), (None, 0)), (0, None))
    calls = [(torch.randn(n, 4), torch.randn(n + 1, 4)) for n in BATCHES]
    served(program, calls, most=len(BATCHES))
    served(vmap(hessian(lambda x: (torch.cat([x, x]) ** 3).sum())), batches(3), most=len(BATCHES))


def test_a_tensor_is_written_to_after_it_was_read() -> None:
    """Eager does not need what ``cat`` has read; our gradient computes it once more, and must not read what is new."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        made = torch.cat([y, y])
        y.mul_(3)
        return (made**2).sum() + y.sum()

    program = vmap(grad(loss))
    compiled = symshape.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for call in batches(4):
            torch.testing.assert_close(compiled(*call), program(*call))


def test_results_are_written_to() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        made = torch.cat([x, x.sort().values])
        made.mul_(2)
        made[1:3].add_(x[:2])
        return (made**2).sum()

    program = vmap(grad(loss))
    served(program, batches(4), most=len(BATCHES))


def test_errors_are_eagers() -> None:
    program = vmap(lambda x: torch.cat([x, x], 3))
    for (call,) in batches(4):
        with pytest.raises((IndexError, RuntimeError)):
            program(call)
        with pytest.raises((IndexError, RuntimeError, symshape.SymShapeError)):
            symshape.compile(program)(call)


def test_under_autocast() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return vmap(grad(lambda x: F.conv2d(x[None], KERNEL).float().sum()))(x)

    served(program, batches(3, 6, 6), most=len(BATCHES))


@pytest.mark.parametrize("wrong", [lambda x: torch.cat([x, 3]), lambda x: x.sort("no dimension"), lambda x: x.topk(99)])  # type: ignore[list-item]
def test_arguments_that_no_rule_knows(wrong: Function) -> None:
    (call,) = batches(4)[0]
    with pytest.raises((TypeError, RuntimeError)) as eager:
        vmap(wrong)(call)
    with pytest.raises((type(eager.value), symshape.SymShapeError)):
        symshape.compile(vmap(wrong))(call)
