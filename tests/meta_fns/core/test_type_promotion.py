"""Type promotion against eager, for every pair of dtypes and every kind of number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from meta_fns import TensorSpec
from meta_fns.core import type_promotion
from tests.meta_fns.eager import ALL_DTYPES
from tests.meta_fns.symbolic import symbols

NUMBERS = (2, 2.5, True, 2j)


def operands(sizes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.ones(sizes, dtype=dtype) for dtype in ALL_DTYPES]


def as_spec(value: Any) -> Any:
    return TensorSpec.of(value) if isinstance(value, torch.Tensor) else value


def test_result_type_of_two() -> None:
    tensors = [*operands((2,)), *operands(())]
    for a, b in itertools.product(tensors, [*tensors, *NUMBERS]):
        assert type_promotion.result_type(map(as_spec, (a, b))) is torch.result_type(a, b), (a, b)


def test_result_type_of_three() -> None:
    """A 0-d tensor and a number together, beside a tensor with dimensions: each category yields to
    the one before.
    """
    for a, b, number in itertools.product(operands((1,)), operands(()), NUMBERS):
        found = type_promotion.result_type((as_spec(a), as_spec(b), number))
        if (common := torch.result_type(b, number)).is_complex and common.itemsize == 4:
            continue  # torch warns of every tensor of it
        lower = torch.ones((), dtype=common)
        assert found is torch.result_type(a, lower), (a.dtype, b.dtype, number)


def test_result_type_of_nothing() -> None:
    with pytest.raises(ValueError, match="no operands"):
        type_promotion.result_type(())


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_numbers_are_of_the_default_dtypes(default: torch.dtype) -> None:
    torch.set_default_dtype(default)
    try:
        for number in NUMBERS:
            assert type_promotion.number_dtype(number) is torch.tensor(number).dtype
        for dtype in ALL_DTYPES:
            ones = torch.ones(2, dtype=dtype)
            assert type_promotion.int_to_float(dtype) is torch.sin(ones).dtype
            assert (
                type_promotion.int_to_float(type_promotion.result_type((TensorSpec.of(ones), 1)))
                is torch.true_divide(ones, 1).dtype
            )
    finally:
        torch.set_default_dtype(torch.float32)


def test_symbolic_numbers() -> None:
    _, (size,) = symbols(3)
    assert type_promotion.number_dtype(size) is torch.int64
    assert type_promotion.number_dtype(size == 3) is torch.bool
    assert (
        type_promotion.number_dtype(type("Number", (), {"scalar_type": float})())
        is torch.get_default_dtype()
    )


def test_complex_and_back() -> None:
    for dtype in ALL_DTYPES:
        assert type_promotion.to_real(dtype) is (
            torch.ones(2, dtype=dtype).abs().dtype if dtype.is_complex else dtype
        )
        if dtype.is_floating_point:
            assert type_promotion.to_complex(dtype) is torch.result_type(
                torch.ones(2, dtype=dtype), 1j
            )
        assert type_promotion.is_float(dtype) is (dtype.is_floating_point or dtype.is_complex)
    for half in (torch.float16, torch.float32, torch.float64):
        assert type_promotion.to_real(type_promotion.to_complex(half)) is half


def test_sums() -> None:
    for dtype in ALL_DTYPES:
        assert type_promotion.sum_dtype(dtype) is torch.ones(2, dtype=dtype).sum().dtype
        assert type_promotion.sum_dtype(dtype, torch.float64) is torch.float64
