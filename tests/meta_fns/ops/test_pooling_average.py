"""Average pooling against eager."""

from __future__ import annotations

import torch

from tests.meta_fns.eager import check_call


def test_adaptive_average_of_nothing() -> None:
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64):
        for sizes in ((0, 3, 4, 5), (2, 0, 4, 5), (0, 4, 5), (2, 3, 4, 5), (2, 3, 0, 5), (2, 3, 4)):
            for size in ([2, 3], [0, 2], [1, 1]):
                check_call(
                    "aten._adaptive_avg_pool2d.default", torch.ones(sizes, dtype=dtype), size
                )
            if len(sizes) == 4:
                check_call(
                    "aten._adaptive_avg_pool3d.default", torch.ones(sizes, dtype=dtype), [1, 2, 0]
                )
