"""The work of a graph at given sizes: bytes, and matrix products as bytes that take as long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.runners.work import Work


def _work(fn: Callable[..., Any], *arguments: torch.Tensor) -> tuple[Work, tuple[str, ...]]:
    program = symshape.trace(fn, *arguments).program
    names = tuple(program.positions)
    return Work(program.graph, names), names


def test_a_pointwise_op_is_the_bytes_that_it_moves() -> None:
    work, _ = _work(lambda x: x * 2, torch.randn(3, 4))
    assert work((10, 20)) == 2 * 200 * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_product_of_large_matrices_is_its_operations(dtype: torch.dtype) -> None:
    work, names = _work(
        lambda a, b: a @ b, torch.randn(3, 4, dtype=dtype), torch.randn(4, 5, dtype=dtype)
    )
    per_flop = 0.04 if dtype is torch.float32 else 0.003
    n = 4096
    assert work((n,) * len(names)) == pytest.approx(2 * n**3 * per_flop + 3 * n**2 * dtype.itemsize)


def _attend(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x * 2, x + 1)


def _convolve(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, torch.ones(8, 4, 3, 3))


def _gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad((F.conv2d(x, torch.ones(8, 4, 3, 3)) ** 2).sum(), x)[0]


@pytest.mark.parametrize("fn", [_attend, _convolve, _gradient])
def test_operations_count(
    fn: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(2, 4, 9, 11)
    work, names = _work(fn, x)
    larger = {2: 16, 4: 4, 9: 512, 11: 64}
    values = (
        tuple(larger[x.size(names.index(name))] for name in names)
        if len(names) == 4
        else (16, 512, 64)
    )
    found = work(values)
    monkeypatch.setattr("symshape.runtime.runners.work._products", lambda node: ((), 0.0))
    without, _ = _work(fn, x)
    assert found > 1.1 * without(values)


def test_tensor_cores_where_they_were_asked_for() -> None:
    fn, arguments = lambda a, b: a @ b, (torch.randn(3, 4), torch.randn(4, 5))
    before = torch.get_float32_matmul_precision()
    plain, names = _work(fn, *arguments)
    slow = plain((4096,) * len(names))
    try:
        torch.set_float32_matmul_precision("high")
        quick, _ = _work(fn, *arguments)
        assert quick((4096,) * len(names)) < slow / 4
    finally:
        torch.set_float32_matmul_precision(before)
