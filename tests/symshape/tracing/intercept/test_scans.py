"""Associative scans: eager's results, bit for bit, in a program for each number of levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch.utils import _pytree as pytree

import symshape


def _sums(x: torch.Tensor) -> Any:
    return associative_scan(lambda a, b: a + b, x, dim=1, combine_mode="generic")


def _backwards(x: torch.Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x, dim=1, combine_mode="generic", reverse=True)


def _recurrence(x: torch.Tensor) -> Any:
    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return associative_scan(combine, (x, x + 1), dim=1, combine_mode="generic")


def _matrices(x: torch.Tensor) -> Any:
    each = x[:, :, None, None] * torch.eye(2) + 1
    return associative_scan(lambda a, b: a @ b, each, dim=1, combine_mode="generic")


PROGRAMS = (_sums, _backwards, _recurrence, _matrices)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_every_length(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn, fullgraph=True)
    for n in (8, 12, *range(1, 34)):
        x = torch.rand(3, n)
        for expected, got in zip(pytree.tree_leaves(fn(x)), pytree.tree_leaves(fast(x)), strict=True):
            assert torch.equal(expected, got)
            assert expected.stride() == got.stride()


def test_a_program_for_each_number_of_levels() -> None:
    fast = symshape.compile(lambda x: _sums(x.transpose(0, 1).contiguous().transpose(0, 1)), dynamic=True)
    for n in (*range(16, 32), *range(64, 128, 5)):
        fast(torch.rand(4, n))
    assert fast.stats().traces == 2


@pytest.mark.parametrize("fn", PROGRAMS)
def test_gradients(fn: Callable[..., Any]) -> None:
    fast = symshape.compile(fn, fullgraph=True)
    for n in (8, 9, 12, 15, 30):
        x = torch.rand(3, n, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for run, at in ((fn, x), (fast, y)):
            sum((each**2).sum() for each in pytree.tree_leaves(run(at))).backward()  # type: ignore[union-attr]
        assert x.grad is not None
        assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]


def test_nothing_to_scan_raises_as_in_eager() -> None:
    fast = symshape.compile(_sums)
    fast(torch.rand(3, 8))
    fast(torch.rand(4, 9))
    for x, said in ((torch.rand(0, 6), "same size in the mapped dimension"), (torch.rand(3, 0), "at least")):
        for run in (_sums, fast):
            with pytest.raises(ValueError, match=said):
                run(x)
