"""Resampling of padded images reads what eager reads: a NaN beside a position that is taken as it
is stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape


def spotted(*sizes: int) -> torch.Tensor:
    """Random numbers and one NaN in each channel."""
    torch.manual_seed(sum(sizes))
    made = torch.randn(*sizes)
    made[..., sizes[-1] // 2] = torch.nan
    return made


def check(fn: Callable[..., Any], calls: Sequence[tuple[torch.Tensor, ...]]) -> Any:
    compiled = symshape.compile(fn, dynamic=True, runner="padded", fullgraph=True)
    for call in calls:
        mine, theirs = compiled(*call), fn(*call)
        torch.testing.assert_close(
            mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True, msg=str([t.shape for t in call])
        )
    return compiled


LIKE = [
    torch.zeros(h, w) for h, w in ((6, 7), (4, 5), (4, 6), (6, 5), (8, 10), (2, 3), (1, 1), (4, 1))
]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_that_keep_a_size(mode: str, corners: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=y.shape[-2:], mode=mode, align_corners=corners)

    compiled = check(fn, [(spotted(1, 2, 4, 5), like) for like in LIKE])
    assert any(entry.runner.buckets for entry in compiled.entries)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
def test_nearest_images_that_keep_a_size(mode: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=y.shape[-2:], mode=mode)

    check(fn, [(spotted(1, 2, 4, 5), like) for like in LIKE])


@pytest.mark.parametrize("mode", ["linear", "nearest", "nearest-exact"])
def test_rows_that_keep_a_size(mode: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=y.size(0), mode=mode)

    check(
        fn,
        [
            (spotted(2, 3, n), torch.zeros(m))
            for n, m in ((5, 7), (5, 5), (4, 4), (4, 8), (6, 3), (1, 1))
        ],
    )


FACTORS = [1.1, 1.2, 2.0, 2.1, 0.95, 0.5, (1.1, 2.1), (1.0, 1.1)]


@pytest.mark.parametrize("factor", FACTORS, ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact"])
def test_factors_that_leave_a_size_as_it_is(mode: str, factor: Any) -> None:
    """1.1 times 5 is 5: linear kernels then take elements as they are, and do not step by the
    factor.
    """
    sizes = ((4, 5), (5, 5), (3, 9), (5, 4), (2, 2))
    check(
        lambda x: F.interpolate(x, scale_factor=factor, mode=mode),
        [(spotted(1, 2, h, w),) for h, w in sizes],
    )


@pytest.mark.parametrize("factor", [1.1, 2.1, 0.95])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_factors_of_rows(mode: str, factor: float) -> None:
    check(
        lambda x: F.interpolate(x, scale_factor=factor, mode=mode),
        [(spotted(1, 2, n),) for n in (5, 4, 9, 2)],
    )


def test_kernels_that_differ_in_what_is_nearest_are_not_guessed() -> None:
    compiled = check(lambda x: F.interpolate(x, scale_factor=2.1), [(spotted(1, 2, 3, 4, 5),)])
    refusals = compiled.entries[0].runner.refusals
    assert any("kernels differ" in str(each) for each in refusals.values())
    fine = check(
        lambda x: F.interpolate(x, scale_factor=1.7),
        [(spotted(1, 2, 3, 4, 5),), (spotted(1, 2, 4, 5, 6),)],
    )
    assert fine.entries[0].runner.buckets


@pytest.mark.parametrize("scale", [1.7, 1.2, 2.0, 2.3, 0.5])
@pytest.mark.parametrize("name", ["upsample_nearest2d", "_upsample_nearest_exact2d"])
def test_sizes_that_do_not_follow_from_the_scale(name: str, scale: float) -> None:
    """The CPU's kernel for two dimensions ignores the scale where a size is kept or doubled."""
    op = getattr(torch.ops.aten, name).default
    calls = [(torch.rand(1, 2, h, w),) for h, w in ((4, 5), (6, 6), (3, 3), (6, 4), (3, 7))]
    for layout in (torch.contiguous_format, torch.channels_last):
        fn = partial(_resized, op, scale, layout)
        assert check(fn, calls).entries[0].runner.buckets
    rows = torch.ops.aten.upsample_nearest3d.default
    check(lambda x: rows(x[:, None], [6, 6, 6], scale, scale, scale), calls)


def _resized(op: Any, scale: float, layout: torch.memory_format, x: torch.Tensor) -> Any:
    return op(x.contiguous(memory_format=layout), [6, 6], scale, scale)
