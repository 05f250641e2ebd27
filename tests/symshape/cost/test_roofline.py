"""The least time of a program, against a sum by hand over its ops."""

from __future__ import annotations

import pytest
import torch

import symshape
from symshape import DevicePeaks, Roofline
from symshape.errors import InputError

PEAKS = DevicePeaks("made up", {"float32": 1e9}, 1e8)


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x)


def test_against_a_sum_by_hand() -> None:
    """A product of n by n takes 2n^3 operations and 12n^2 bytes, what follows 8n^2 bytes."""
    roofline = Roofline(
        symshape.trace(program, torch.ones(4, 4), dynamic={"x": {0: "n", 1: "n"}}).cost(), PEAKS
    )
    for n in (8, 59, 61, 500):
        at = roofline.at(n=n)
        product, moved = 2 * n**3 / 1e9, 12 * n**2 / 1e8
        assert at.computing == pytest.approx(product if product > moved else 0)
        assert at.moving == pytest.approx((0 if product > moved else moved) + 8 * n**2 / 1e8)
        assert at.share(2 * at.seconds) == pytest.approx(0.5)
    assert "bound by operations" in str(roofline.at(n=5000))
    assert "bound by memory" in str(roofline.at(n=8))
    assert roofline.at(n=500).achieved(roofline.at(n=500).seconds).endswith("100% of attainable")


def test_without_the_peak_of_a_dtype_memory_alone_counts() -> None:
    cost = symshape.trace(
        program, torch.ones(4, 4, dtype=torch.float64), dynamic={"x": {0: "n", 1: "n"}}
    ).cost()
    at = Roofline(cost, PEAKS).at(n=1000)
    assert at.computing == 0
    assert at.moving == pytest.approx(2 * 20 * 1000**2 / 1e8)
    with pytest.raises(InputError, match="no symbol 'm'"):
        Roofline(cost, PEAKS).at(m=3)


def test_a_program_is_never_faster_than_its_roofline() -> None:
    """On this machine, with generous peaks."""
    import timeit

    n = 256
    x = torch.ones(n, n)
    traced = symshape.trace(program, x, dynamic={"x": {0: "n", 1: "n"}})
    least = Roofline(traced.cost(), DevicePeaks("cpu", {"float32": 1e13}, 1e13)).at(n=n).seconds
    assert min(timeit.repeat(lambda: program(x), number=5, repeat=3)) / 5 >= least > 0
