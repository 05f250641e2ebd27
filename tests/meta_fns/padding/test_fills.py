"""Fills: what is known of elements that are partly like this and partly like that."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from meta_fns.padding.fills import FINITE, GARBAGE, MINUS_INF, ONE, ZERO, Fill, constant, of_dtype

SAMPLES = (0, 1, -3, 2.5, -0.0, math.inf, -math.inf, math.nan)
FILLS = (GARBAGE, FINITE, *map(constant, SAMPLES))


def _holds(fill: Fill, value: float) -> bool:
    """Whether an element of this value may be in a region with this fill."""
    if fill.kind == "garbage":
        return True
    if fill.kind == "finite":
        return math.isfinite(value)
    assert fill.value is not None
    return value == fill.value and math.copysign(1, value) == math.copysign(1, fill.value)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(FILLS, FILLS)))
def test_a_join_holds_what_both_hold(a: Fill, b: Fill) -> None:
    for value in SAMPLES:
        if _holds(a, value) or _holds(b, value):
            assert _holds(a.join(b), value)
        if a.finite and _holds(a, value):
            assert math.isfinite(value)


def test_zeros_of_either_sign_are_two_numbers() -> None:
    assert constant(0.0).join(constant(-0.0)) == FINITE
    assert not constant(-0.0).is_constant(0)
    assert ZERO.is_constant(False)
    assert not ONE.is_constant(None)


def test_what_the_dtype_tells() -> None:
    assert of_dtype(GARBAGE, torch.int64) == of_dtype(GARBAGE, torch.bool) == FINITE
    assert of_dtype(GARBAGE, torch.float32) == GARBAGE
    assert of_dtype(MINUS_INF, torch.float32) == MINUS_INF
    assert constant(math.nan) == GARBAGE
