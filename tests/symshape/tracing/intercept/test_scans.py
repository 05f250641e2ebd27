"""Associative scans: eager's results, bit for bit, in one program; or in a program for each number
of levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, generic_associative_scan
from torch.utils import _pytree as pytree

import symshape
from symshape.tracing.intercept.control_flow import by_levels


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
        for expected, got in zip(
            pytree.tree_leaves(fn(x)), pytree.tree_leaves(fast(x)), strict=True
        ):
            assert torch.equal(expected, got)
            assert expected.stride() == got.stride()


def test_one_program_for_all_lengths() -> None:
    for fn in PROGRAMS:
        fast = symshape.compile(fn, dynamic=True, fullgraph=True)
        for n in (3, 5, 9, 2, 40):
            fast(torch.rand(4, n))
        assert fast.stats().traces == 1
        fast(torch.rand(4, 1))  # a view of the argument
        assert fast.stats().traces == 2


def _asks(x: torch.Tensor) -> Any:
    return by_levels(lambda a, b: _combined(a, b), [x], 0)


def test_a_program_for_each_number_of_levels() -> None:
    """Where the function asks how many rows it gets."""
    fast = symshape.compile(_asks, dynamic=True, fullgraph=True)
    for n in (*range(16, 32), *range(64, 128, 5)):
        x = torch.rand(n, 4)
        assert torch.equal(
            fast(x)[0], generic_associative_scan(lambda a, b: _combined(a, b), [x])[0]
        )
    assert fast.stats().traces > 2


def _combined(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left + right) * (2 if left.size(0) > 2 else 3)


@pytest.mark.parametrize("gated", [False, True])
def test_some_operands_require_gradients(gated: bool) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        def combine(left: Any, right: Any) -> Any:
            return left[0] * right[0], (right[0] * left[1] if gated else left[1]) + right[1]

        return associative_scan(combine, (a, b), dim=0, combine_mode="generic")

    fast = symshape.compile(fn, fullgraph=True, dynamic=True)
    for n in (3, 5, 9, 2, 40, 1):
        a, b = torch.rand(n, 3, requires_grad=True), torch.rand(n, 3)
        for expected, got in zip(fn(a, b), fast(a, b), strict=True):
            assert torch.equal(expected, got)
            assert expected.requires_grad == got.requires_grad


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
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        fast(torch.rand(0, 6))
    try:
        expected = _sums(torch.rand(3, 0))
    except ValueError:
        with pytest.raises(ValueError, match="at least"):
            fast(torch.rand(3, 0))
    else:  # torch 2.14 has nothing to compute there
        assert torch.equal(fast(torch.rand(3, 0)), expected)
