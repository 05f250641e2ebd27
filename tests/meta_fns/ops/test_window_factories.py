"""Windows against eager."""

from __future__ import annotations

import pytest
import torch

from tests.meta_fns.eager import check_call


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name: str) -> None:
    for n in (0, 1, 2, 7, 16, -1):
        for dtype in (None, torch.float64, torch.float16, torch.int64):
            check_call(f"aten.{name}_window.default", n, dtype=dtype)
            for periodic in (False, True):
                check_call(f"aten.{name}_window.periodic", n, periodic, dtype=dtype)
    check_call("aten.hamming_window.periodic_alpha", 5, True, 0.5)
    check_call("aten.hamming_window.periodic_alpha_beta", 5, False, 0.5, 0.25)
    check_call("aten.kaiser_window.beta", 5, True, 3.0)
