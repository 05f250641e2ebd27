"""Integer arguments that size tensors are padded like sizes of tensors: the same values as in
eager, at any integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.padding.planning import candidates
from symshape.runtime.runners.pieces.runner import padded_parts

Program = Callable[[torch.Tensor, int], Any]


def _made(x: torch.Tensor, n: int) -> Any:
    sums = torch.zeros(n, 2).add(x[:2]).sum(0) / n
    return torch.arange(n) * x.sum() + n, sums, torch.ones(n).cumsum(0)[-1:], torch.full((n,), n)


def _repeated(x: torch.Tensor, n: int) -> Any:
    return x.repeat(n, 1).mean(0), x.sum() * n


def _added_by_index(x: torch.Tensor, n: int) -> Any:
    where = torch.arange(x.size(0)) % max(n, 1)
    zeros = torch.zeros(n, dtype=x.dtype)
    return zeros.index_add(0, where, x) / zeros.index_add(0, where, torch.ones_like(x)).clamp(min=1)


def _sliced(x: torch.Tensor, n: int) -> Any:
    return x.sum() * n, x[:n], torch.zeros(max(n, 2)).exp()


def _half(x: torch.Tensor, n: int) -> Any:
    return torch.linspace(0, 1, n).flip(0).sum() + x.sum(), torch.eye(n).sum(1)


@pytest.mark.parametrize("fn", [_made, _repeated, _added_by_index, _sliced, _half])
def test_results_are_those_of_eager(fn: Program) -> None:
    compiled: Any = symshape.compile(fn, dynamic=True, runner="padded")
    for n in (3, 4, 9, 17, 2, 5, 12, 1, 0, 30, -1, 7, -2):
        x = torch.randn(6)
        expected, got = _outcome(fn, x, n), _outcome(compiled, x, n)
        if isinstance(expected, type):
            assert got == expected, n
        else:
            torch.testing.assert_close(got, expected, equal_nan=True)


def _outcome(fn: Program, x: torch.Tensor, n: int) -> Any:
    try:
        return fn(x, n)
    except Exception as error:
        return type(error)


def test_one_bucket_serves_a_range_of_integers() -> None:
    compiled: Any = symshape.compile(_added_by_index, dynamic=True, runner="padded")
    for n in (9, 10, 11, 12):
        x = torch.randn(6)
        torch.testing.assert_close(compiled(x, n), _added_by_index(x, n))
    buckets = [
        each
        for entry in compiled.entries
        for _, part in padded_parts(entry.runner, entry.program)
        for each in part.buckets
    ]
    assert len(buckets) == 1


def test_an_integer_that_is_only_a_factor_keeps_its_value() -> None:
    program = symshape.trace(lambda x, n: x * n, torch.ones(3), 4, dynamic=True).program
    assert candidates(program) == {"s0"}
