"""The strides of results on CUDA where they differ from the CPU's, as eager gave them on an H200
(torch 2.11).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta_fns
from meta_fns import TensorSpec

aten = torch.ops.aten


def on_cuda(sizes: Any, strides: Any, dtype: torch.dtype = torch.float32) -> TensorSpec:
    return TensorSpec(sizes, strides, 0, dtype, torch.device("cuda", 0))


LAST = (3, 3, 5, 5), (75, 1, 15, 3)
CASES: dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...]]] = {
    "roll": (aten.roll.default, (on_cuda((1, 2, 2, 6), (24, 1, 12, 2)), [1], [1]), (24, 12, 6, 1)),
    "batch norm": (
        aten.native_batch_norm.default,
        (on_cuda((4, 2), (1, 4)), None, None, None, None, True, 0.1, 1e-5),
        (1, 4),
    ),
    "max_unpool2d": (
        aten.max_unpool2d.default,
        (
            on_cuda((1, 2, 1, 3), (6, 1, 6, 2)),
            on_cuda((1, 2, 1, 3), (6, 1, 6, 2), torch.int64),
            [3, 6],
        ),
        (36, 18, 6, 1),
    ),
    "dropout's gradient": (
        aten.native_dropout_backward.default,
        (
            on_cuda((5, 5, 5, 5), (5, 125, 25, 1)),
            on_cuda((5, 5, 5, 5), (125, 25, 5, 1), torch.bool),
            0.0,
        ),
        (125, 25, 5, 1),
    ),
    "reflection_pad2d": (
        aten.reflection_pad2d.default,
        (on_cuda(*LAST), [0, 2, 0, 1]),
        (126, 42, 7, 1),
    ),
    "reflection_pad3d": (
        aten.reflection_pad3d.default,
        (on_cuda(*LAST), [1] * 6),
        (245, 49, 7, 1),
    ),
    "replication_pad3d": (
        aten.replication_pad3d.default,
        (on_cuda(*LAST), [1] * 6),
        (245, 49, 7, 1),
    ),
    "reflection_pad2d's gradient": (
        aten.reflection_pad2d_backward.default,
        (on_cuda((3, 3, 6, 7), (126, 42, 7, 1)), on_cuda(*LAST), [0, 2, 0, 1]),
        (75, 25, 5, 1),
    ),
    "channel_shuffle": (
        aten.channel_shuffle.default,
        (on_cuda((2, 6, 8, 8), (384, 1, 48, 6)), 3),
        (384, 64, 8, 1),
    ),
    "a transposed convolution that cuDNN does not take": (
        aten.convolution.default,
        (
            *(on_cuda((2, 2, 4, 4), (32, 1, 8, 2)), on_cuda((2, 2, 4, 5), (40, 20, 5, 1))),
            *(on_cuda((4,), (1,)), [3, 2], [1, 2], [4, 4], True, [2, 3], 2),
        ),
        (1936, 484, 22, 1),
    ),
    "real to complex": (
        aten._fft_r2c.default,
        (on_cuda((5, 6, 7), (42, 7, 1)), [0, 1, 2], 1, True),
        (6, 1, 30),
    ),
    "complex to real": (
        aten._fft_c2r.default,
        (on_cuda((5, 6, 7), (1, 35, 5), torch.complex64), [2], 0, 12),
        (72, 12, 1),
    ),
    "complex to real of a transposed tensor": (
        aten._fft_c2r.default,
        (on_cuda((5, 6, 4), (4, 20, 1), torch.complex64), [2], 0, 7),
        (42, 7, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_strides_on_cuda(name: str) -> None:
    op, args, strides = CASES[name]
    found = meta_fns.infer(op, args, {})
    assert (found[0] if isinstance(found, tuple) else found).strides == strides


def test_channels_without_a_view_are_refused_on_cuda() -> None:
    with pytest.raises(meta_fns.ShapeError, match="contiguous"):
        meta_fns.infer(
            aten.channel_shuffle.default, (on_cuda((2, 6, 8, 8), (384, 8, 1, 48)), 2), {}
        )
