"""Numbers that padding has to hold, and that its dtype may not."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from meta_fns.padding.fills import FINITE, GARBAGE, constant, holds, of_dtype
from tests.meta_fns.padding.poison import Arg, floats, ints, poisoned

BYTES = ints(9, high=200, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (torch.float32, 1e8 - 1, False),
        (torch.float64, 1e8 - 1, True),
        (torch.float32, 0.1, False),
        (torch.float32, -math.inf, True),
        (torch.float32, math.nan, True),
        (torch.float16, 65_505, False),
        (torch.float16, 1e39, False),
        (torch.bool, 2, False),
        (torch.uint8, -100, False),
        (torch.int64, 0.5, False),
        (torch.int64, math.inf, False),
        (torch.int64, math.nan, False),
        (torch.int64, 2.0, True),
        (torch.complex64, 3, True),
    ],
)
def test_what_a_dtype_holds(dtype: torch.dtype, value: float, held: bool) -> None:
    assert holds(dtype, value) is held
    if value == value:
        assert (of_dtype(constant(value), dtype) == constant(value)) is held


def test_a_constant_that_is_not_held_is_another_number() -> None:
    assert of_dtype(constant(0.1), torch.float32) == FINITE
    assert of_dtype(constant(1e39), torch.float16) == GARBAGE
    assert of_dtype(constant(0.5), torch.int32) == FINITE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low", [-1.0, 0.0, 2.0**24, 1e8, 1e30])
def test_a_histogram_of_large_numbers(low: float, dtype: torch.dtype) -> None:
    """One less than the range is a number of it where floats are far apart."""
    high = low + 1 if abs(low) < 2 else 2 * low

    def counted(x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x.clamp(0, 1) * (high - low) + low, 4, min=low, max=high)

    outcome = poisoned(counted, Arg((9,), dtype))
    assert outcome.compared >= 4
    assert not outcome.plan.refusals
    padding_at_the_end = poisoned(
        lambda x: torch.histc(torch.where(x < 2, low, high), 4, min=low, max=high),
        Arg((9,), dtype, positive=True),
    )
    assert padding_at_the_end.compared >= 4


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.float32, 1e8, 1e8 + 1),  # one number of float32: the range of the data is meant
        (torch.float32, 0.0, 0.0),
        (torch.bfloat16, 0.0, 4.0),  # counts above 256 are rounded
        (torch.float16, 0.0, 4.0),
    ],
)
def test_histograms_that_keep_their_size(dtype: torch.dtype, low: float, high: float) -> None:
    outcome = poisoned(lambda x: torch.histc(x, 4, min=low, max=high), Arg((9,), dtype))
    assert {each.op for each in outcome.plan.refusals.values()} == {"aten.histc.default"}


def test_a_class_to_ignore_that_bytes_do_not_hold() -> None:
    """-100 as a byte is the class 156."""
    outcome = poisoned(
        lambda x, i: F.nll_loss(x, i), floats(9, 200, static=(1,)), BYTES, tolerance=1e-4
    )
    (refusal,) = {each.reason for each in outcome.plan.refusals.values()}
    assert "-100" in refusal
    assert "uint8" in refusal
    held = poisoned(
        lambda x, i: F.nll_loss(x, i, ignore_index=7),
        floats(9, 200, static=(1,)),
        BYTES,
        tolerance=1e-4,
    )
    assert held.compared >= 4
    assert not held.plan.refusals


@pytest.mark.parametrize("value", [0.1, 7, -1.5, math.inf, -math.inf])
def test_a_margin_is_rounded_as_eager_does(value: float) -> None:
    for x in (floats(3, 4), Arg((3, 4), torch.bfloat16)):
        outcome = poisoned(lambda x: (F.pad(x, (1, 2), value=value) * 2).clamp(-9, 9).sum(1), x)
        assert outcome.compared >= 4
        assert not outcome.plan.refusals


def test_a_margin_of_integers() -> None:
    outcome = poisoned(
        lambda i: (F.pad(i, (1, 2), value=0.5), F.pad(i > 1, (0, 1), value=2)), ints(3, 4)
    )
    assert outcome.compared >= 4
    assert not outcome.plan.refusals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_that_is_a_root(dtype: torch.dtype) -> None:
    """Eager's kernel takes the root where the exponent is a half, which has other signs and NaN."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[1]
        edges = torch.tensor([[-0.0], [-math.inf], [math.inf], [4.0], [-4.0]], dtype=dtype)
        wide = edges + x * 0
        powers = wide ** (1 / n), wide ** (-1 / n), wide ** (n / 4)
        return *powers, *(1 / each for each in powers)

    finite = Arg((5, 3), dtype, positive=True, static=(0,))
    outcome = poisoned(fn, finite, samples=24)
    assert not outcome.plan.refusals
    assert outcome.compared >= 12
