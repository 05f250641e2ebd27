"""Integers that are read from tensors lie between sizes, by the way the tensors were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError
from tests.symshape.eager import bits

R = torch.randn
SHAPES = ((9, 8), (12, 9), (8, 11), (20, 7))


def _agree(fn: Callable[[torch.Tensor], Any], traces: int = 2) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for shape in SHAPES:
        x = R(shape)
        found = []
        for served in (compiled, fn):
            torch.manual_seed(shape[0])
            found.append(served(x))
        assert bits(found[0]) == bits(found[1])
    assert compiled.stats().traces == traces


def _crop(x: torch.Tensor) -> torch.Tensor:
    i = torch.randint(0, x.size(0) - 5, (1,)).item()
    j = torch.randint(x.size(1) - 5, size=()).item()
    return x[i : i + 6, j : j + 6] * 2


def _random_length(x: torch.Tensor) -> torch.Tensor:
    n = torch.randint(2, x.size(0) + 1, (2, 1))[1].item()
    return x[:n].sum(0) / n


def _by_contents(x: torch.Tensor) -> torch.Tensor:
    rows, columns = (x > 0.5).any(1).nonzero()[:, 0], (x > 0.5).nonzero()[:, 1]
    return x[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]


@pytest.mark.parametrize(
    "fn",
    [
        _crop,
        _random_length,
        _by_contents,
        lambda x: x[x.sum(1).argmax().item()],
        lambda x: x[: x.argmin(0).max().item() + 1],
        lambda x: x[x.sum(1).argmax().item() :],
        lambda x: x[torch.randperm(x.size(0))[0].item()],
        lambda x: x[x.sum(1).sort().indices[-1].item()],
        lambda x: x.narrow(0, x.sum(1).topk(2).indices[1].item(), 1),
        lambda x: x[: x[:, 0].max(0).indices.item()],
        lambda x: x[torch.randint(3, x.size(0), (1,)).item() - 3 :],
    ],
)
def test_between_sizes(fn: Callable[[torch.Tensor], Any]) -> None:
    _agree(fn)
    asserted = "assert" in str(symshape.trace(fn, R(9, 8), dynamic=True).graph)
    assert asserted is (fn is _by_contents)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[torch.randint(0, x.size(0), (1,)).add_(1).item()],
        lambda x: x[(torch.randint(0, x.size(0), (1,)) * 2).item()],
        lambda x: x[torch.randint(-2, x.size(0), (1,)).item()],
        lambda x: x[(torch.randint(0, x.size(0), (1,), dtype=torch.int32) + 2**31 - 1).item()],
        lambda x: x[torch.randint(0, x.size(0) + 1, (1,)).item() - 1],
        lambda x: x[3 - x.argmax().item()],
        lambda x: x[x.nonzero()[0, 1].item() - 1],
    ],
)
def test_what_may_lie_outside_is_asserted(fn: Callable[[torch.Tensor], Any]) -> None:
    assert "assert" in str(symshape.trace(fn, R(4, 5), dynamic=True).graph)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[torch.randint(0, x.size(0) + 1, (1,)).item() - 1 :],
        lambda x: x[: 3 - x.argmax().item()],
        lambda x: x[x.nonzero()[0, 1].item() - 1 :] if len(x) else x,
    ],
)
def test_what_may_lie_outside_is_a_slice_all_the_same(fn: Callable[[torch.Tensor], Any]) -> None:
    _agree(fn)


def test_a_tensor_that_changes_its_shape_in_place() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = (x > 0) & True
        y.t_()
        return x[y.nonzero()[:, 0].max().item()]

    assert "assert" in str(symshape.trace(fn, R(3, 5).abs(), dynamic=True).graph)


def test_integers_of_any_size_may_wrap_around() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        i = (torch.randint(n - 1, n, (1,)) + 1).item()
        return x * 2 if i > 0 else x

    with pytest.raises(DataDependentError):
        symshape.trace(fn, R(3), 5, dynamic=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, k: x[:, : k.max().item()] * 2,
        lambda x, k: x[:, : int(k.min())] + 1,
        lambda x, k: x[:, int(k.max()) :].sum(1),
        lambda x, k: x[:, int(k.min()) : int(k.max())].clone(),
        lambda x, k: x[:, : int(k[0]) : 2] * 3,
        lambda x, k: x[:, 1 : int(k[0])],
        lambda x, k: x[:, int(k[0]) : -1] * 2,
        lambda x, k: torch.cat([x[:, : int(k[0])], x[:, int(k[0]) :]], 1),
        lambda x, k: x[:, : k[0]].mean(),
    ],
)
def test_slices_at_numbers_of_either_sign(fn: Any) -> None:
    """Whether a bound counts from the end is no branch of the program: it is a part of the size."""
    compiled: Any = symshape.compile(fn, fullgraph=True)
    for n, m in ((3, 7), (2, 5), (4, 0), (1, 1)):
        for first in (0, 1, 3, 6, 7, 9, -1, -3, -7, -8, 2**62, -(2**62)):
            for second in (0, 4, -2):
                x, k = torch.arange(n * m * 1.0).view(n, m), torch.tensor([first, second])
                got, want = compiled(x, k), fn(x, k)
                assert torch.equal(got.isnan(), want.isnan())
                assert torch.equal(got.nan_to_num(), want.nan_to_num()), (n, m, first, second)
                assert got.stride() == want.stride()
    assert compiled.stats().traces <= 5


def _by_expert(x: torch.Tensor) -> list[torch.Tensor]:
    chosen = x[:, :4].topk(2, 1).indices.view(-1)
    counts = torch.bincount(chosen, minlength=4)
    pieces = x.repeat_interleave(2, 0)[chosen.argsort(stable=True)].split(counts.tolist())
    return [piece.sum(0) for piece in pieces]


@pytest.mark.parametrize(
    "fn",
    [
        _by_expert,
        lambda x: torch.bincount(x[:, :4].argmax(1), minlength=6).tolist(),
        lambda x: torch.bincount(
            x[:, :4].argmax(1)[x[:, 0] > 0], weights=x[x[:, 0] > 0, 1], minlength=4
        ).tolist(),
        lambda x: torch.bincount((x[:, 0] * 3).long().clamp(0, 2), minlength=3).tolist(),
        lambda x: torch.bincount((x[:, 0] * 3).long() % 3, minlength=3).tolist(),
        lambda x: torch.bincount((x[:, 0] * 3).long().clamp(5, 2), minlength=3).tolist(),
    ],
)
def test_as_many_counts_as_there_are_numbers(fn: Callable[[torch.Tensor], Any]) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for shape in (*SHAPES, (1, 7)):
        x = R(shape)
        found, expected = compiled(x), fn(x)
        assert len(found) == len(expected)
        assert all(
            torch.equal(torch.as_tensor(a), torch.as_tensor(b))
            for a, b in zip(found, expected, strict=True)
        )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.bincount(x[:, :4].argmax(1), minlength=2).tolist(),
        lambda x: torch.bincount(x[:, :4].argmax(1).add_(1), minlength=4).tolist(),
        lambda x: torch.bincount((x[:, 0] * 3).long().abs(), minlength=4).tolist(),
    ],
)
def test_other_counts_are_of_an_unknown_number(fn: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(DataDependentError):
        symshape.trace(fn, R(5, 6), dynamic=True)
