"""Indices that are tensors without dimensions: C++ reads a number from them, and so does the graph
when it runs.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import symshape
from tests.symshape.eager import call_seen

R, T = torch.randn, torch.tensor
TABLE = R(6, 4)
CALLS = (
    (R(4, 5), T(2)),
    (R(6, 5), T(-1)),
    (R(7, 3), T(0)),
    (R(1, 2), T(0)),
    (R(9, 2), T(3, dtype=torch.int32)),
)


def _written(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[i] = 1.0
    x[i, T([0, 1])] = x[i - i, :2] + 1
    x[i, x[0] > 0] = 0.0
    x[i] += 1
    return x


def _written_outside(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    before = TABLE.clone()
    TABLE[i] = x[i, 0]
    found = TABLE.clone()
    TABLE.copy_(before)
    return found


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, None, i - i],
        lambda x, i: (x[i, i - i], x[i, ..., None], x[..., i - i], x[None, i, None], x[True, i]),
        lambda x, i: (
            x[T([0, 0]), i - i],
            x[i, T([0, 1])],
            x[i, x[0] > 0],
            x[..., T([0]), i - i],
            x[i, None, T([1])],
        ),
        lambda x, i: x[x.sum(1).argmax()] + x[x.max(0).indices[0]],
        lambda x, i: (x[i], x[i - i], (x + 1)[i], x[i - i]),
        lambda x, i: (TABLE[i], TABLE[:, i], TABLE[i, T([0, 1])], TABLE[x.size(0) // x.size(0)]),
        lambda x, i: x[i].sum() + x[i : i + 1].sum(),
        lambda x, i: (
            x[[0, 0], i - i],
            x[i, [0, 1]],
            x[..., [1], i - i] if x.dim() > 2 else x[i, :, None],
        ),
        _written,
        _written_outside,
    ],
)
def test_a_number_is_read_from_an_index(fn: Any) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for args in CALLS:
        assert call_seen(compiled, args, {}) == call_seen(fn, args, {})
    assert compiled.stats().traces <= 5


def test_an_index_out_of_range_is_an_error_as_in_eager() -> None:
    compiled = symshape.compile(lambda x, i: x[i] * 2, fullgraph=True)
    compiled(R(4, 5), T(1))
    for i in (4, -5):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(R(4, 5), T(i))


def test_gradients_go_through() -> None:
    compiled = symshape.compile(lambda x: x[x.detach().sum(1).argmax()].square(), fullgraph=True)
    for n in (3, 5, 1):
        x = R(n, 2, requires_grad=True)
        compiled(x).sum().backward()
        (expected,) = torch.autograd.grad(x[x.detach().sum(1).argmax()].square().sum(), x)
        assert x.grad is not None
        assert torch.equal(x.grad, expected)


def test_bools_and_bytes_are_masks() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        return x[i > 0], x[T(True)]

    compiled = symshape.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for args in CALLS:
            assert call_seen(compiled, args, {}) == call_seen(fn, args, {})


def _masked_by_a_condition(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x.size(1) > 3] = 5.0
    x[x.size(1) > 2, 0] += 1.0
    return x


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: (x[x.size(0) > 4], x[x.size(0) > 4, 0], x[..., x.size(1) == 3]),
        lambda x, i: (x[(x.size(0) > 4) | False, i], x[(x.size(0) > 4) :], TABLE[x.size(0) > 4]),
        lambda x, i: x[T([0, 0]), x.size(0) > 4] if x.size(0) > 4 else x,
        _masked_by_a_condition,
    ],
)
def test_conditions_on_sizes_are_masks(fn: Any) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for args in CALLS:
        assert call_seen(compiled, args, {}) == call_seen(fn, args, {})


def test_elements_that_are_found_one_after_the_other() -> None:
    def farthest(x: torch.Tensor, k: int) -> torch.Tensor:
        distance, far, found = (
            torch.full((x.shape[0],), 1e10),
            torch.zeros((), dtype=torch.long),
            [],
        )
        for _ in range(k):
            found.append(far)
            distance = torch.minimum(distance, (x - x[far]).square().sum(-1))
            far = distance.argmax()
        return torch.stack(found)

    def path(scores: torch.Tensor, back: torch.Tensor) -> list[int]:
        best = scores.argmax().item()
        found = [best]
        for each in back:
            best = each[best].item()
            found.append(best)
        return found  # type: ignore[return-value]

    points, paths = (
        symshape.compile(farthest, fullgraph=True),
        symshape.compile(path, fullgraph=True),
    )
    for n in (5, 7, 1, 9):
        x, back = R(n, 3), torch.randint(0, n, (3, n))
        assert torch.equal(points(x, 3), farthest(x, 3))
        assert paths(x[:, 0], back) == path(x[:, 0], back)
    assert points.stats().traces == paths.stats().traces == 2


def test_what_is_beside_a_size_in_other_indices_fixes_it() -> None:
    def fn(x: torch.Tensor) -> Any:
        last = torch.tensor(x.size(1) - 1)
        return x[[[0], [1]], x.size(1) - 1], x[[True] + [False] * (len(x) - 1), last], x[[0], last]

    compiled = symshape.compile(fn, fullgraph=True)
    for shape in ((4, 3), (5, 3), (4, 2), (2, 2)):
        x = R(shape)
        assert all(map(torch.equal, compiled(x), fn(x)))
