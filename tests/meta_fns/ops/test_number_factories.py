"""Ranges of numbers against eager."""

from __future__ import annotations

import random

import pytest
import torch

from tests.meta_fns.eager import check_call


@pytest.mark.slow
def test_arange() -> None:
    rng = random.Random(0)
    for _ in range(1500):
        start, end = (rng.choice((0, 1, 3, 10, -4, 2.5, 0.1)) for _ in range(2))
        step = rng.choice((1, 1, 2, 3, -1, -2, 0.5, 0, -1.0, -0.5, 2.0))
        dtype = rng.choice((None, None, torch.int64, torch.float32, torch.int32, torch.float16))
        if not int(step) and torch.__version__ < "2.13":
            continue  # eager divides by zero there, and the process dies
        check_call("aten.arange.start_step", start, end, step, dtype=dtype)
        check_call("aten.arange.start", start, end, dtype=dtype)
        check_call("aten.arange.default", end, dtype=dtype)


def test_frequencies() -> None:
    for n in range(9):
        for dtype in (None, torch.float64, torch.float16, torch.int64, torch.complex64, torch.bool):
            for apart in ((), (0.1,), (2,)):
                check_call("aten.fft_fftfreq.default", n, *apart, dtype=dtype)
                check_call("aten.fft_rfftfreq.default", n, *apart, dtype=dtype)
    check_call("aten.fft_fftfreq.default", -1)
