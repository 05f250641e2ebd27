"""Pools whose windows are as large as sizes are: eager's results and gradients, in two programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the whole": lambda x: F.avg_pool2d(x, x.shape[2:]),
    "margins": lambda x: F.avg_pool2d(
        x, kernel_size=x.size(2), stride=1, padding=1, count_include_pad=False
    ),
    "half": lambda x: F.avg_pool2d(x, x.shape[2] // 2, ceil_mode=True),
    "volume": lambda x: F.avg_pool3d(x[None], (1, x.size(2), x.size(3))),
    "maximum": lambda x: F.max_pool2d(x, kernel_size=x.size()[2:]),
    "maximum of half": lambda x: F.max_pool2d(x, x.shape[2] // 2, x.shape[2] // 3, 1),
    "positions": lambda x: F.max_pool2d(x, x.shape[2:], return_indices=True)[1],
    "of channels last": lambda x: F.avg_pool2d(
        x.to(memory_format=torch.channels_last), x.shape[2:]
    ),
}
FIXED = {"positions"}


@pytest.mark.parametrize("runner", ["auto", "padded"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, runner: Any) -> None:
    fn = PROGRAMS[name]
    for tracked in (False, True):
        fast = symshape.compile(fn, runner=runner, fullgraph=True)
        for n in (6, 8, 10, 7, 9, 12):
            x = torch.randn(3, 2, n, n + 1, requires_grad=tracked)
            y = x.detach().clone().requires_grad_(tracked)
            expected, got = fn(x), fast(y)
            assert torch.equal(expected, got)
            assert runner == "padded" or expected.stride() == got.stride()
            if tracked and expected.is_floating_point():
                expected.square().sum().backward()
                got.square().sum().backward()
                assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]
        assert fast.stats().traces <= (6 if name in FIXED else 2)


def test_errors_are_those_of_eager() -> None:
    def large(x: torch.Tensor) -> Any:
        return F.avg_pool2d(x, x.shape[2] + 1)

    for fn in (large, lambda x: F.avg_pool2d(x, x.shape[2:], divisor_override=0)):
        for n in (4, 5):
            with pytest.raises(RuntimeError) as expected:
                fn(torch.ones(1, 1, n, n))
            with pytest.raises(RuntimeError) as got:
                symshape.compile(fn, dynamic=True)(torch.ones(1, 1, n, n))
            assert str(got.value) == str(expected.value)


def test_windows_that_vary_are_not_padded() -> None:
    """Of two windows, at a capacity that is larger: their number would be the same, what they hold
    not.
    """
    fast = symshape.compile(
        lambda x, y: F.max_pool1d(y, x.shape[0], stride=50), runner="padded", fullgraph=True
    )
    y = torch.randn(1, 1, 100)
    for n in (5, 6, 7, 9, 11, 13):
        assert torch.equal(fast(torch.ones(n), y), F.max_pool1d(y, n, stride=50))


@pytest.mark.parametrize("runner", ["auto", "padded"])
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool1d(x, 2),
        lambda x: torch.max_pool1d(x, 3, 2, 1),
        torch.nn.MaxPool1d(2, ceil_mode=True),
        lambda x: F.max_pool1d(x, 3, 1, 1, return_indices=True)[0],
        lambda x: F.max_pool1d(x[0], 2, dilation=2),
        lambda x: F.max_pool2d(x[:, None], (1, 2)),
        lambda x: F.adaptive_max_pool1d(x, 1),
    ],
)
def test_gradients_of_maxima_keep_their_sizes(pool: Callable[..., Any], runner: Any) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.detach().requires_grad_()
        out = pool(leaf)
        return out.detach(), torch.autograd.grad(out.square().sum(), [leaf])[0]

    fast = symshape.compile(fn, dynamic=True, runner=runner, fullgraph=True)
    for n, m in ((5, 8), (5, 9), (4, 8), (7, 11), (7, 12), (3, 7)):
        x = torch.randn(n, 4, m)
        for expected, got in zip(fn(x), fast(x), strict=True):
            assert torch.equal(expected, got)
            assert runner == "padded" or expected.stride() == got.stride()
    assert fast.stats().traces == 1


@pytest.mark.parametrize(
    ("pool", "sizes"),
    [
        (lambda x: F.max_pool1d(x, 9), (2, 3, 4)),
        (lambda x: F.max_pool1d(x, 2), (2, 0, 4)),
        (lambda x: F.max_pool1d(x, 2), (0, 4)),
        (lambda x: F.max_pool1d(x, 2), (4,)),
        (lambda x: F.max_pool1d(x, 2, padding=2), (2, 3, 4)),
        (lambda x: F.max_pool1d(x, 0), (2, 3, 4)),
    ],
)
def test_errors_of_maxima_with_gradients_are_those_of_eager(
    pool: Callable[..., Any], sizes: tuple[int, ...]
) -> None:
    with pytest.raises(RuntimeError) as expected:
        pool(torch.ones(sizes, requires_grad=True))
    fast = symshape.compile(lambda x: pool(x.detach().requires_grad_()), dynamic=True)
    with pytest.raises(RuntimeError) as got:
        fast(torch.ones(sizes))
    assert str(got.value) == str(expected.value)
