"""Rules whose answer differs between versions of torch, against the eager of the torch that is
installed.
"""

from __future__ import annotations

import random
import warnings

import pytest
import torch

from meta_fns import TensorSpec, infer
from meta_fns.core import type_promotion
from meta_fns.errors import ShapeError
from tests.meta_fns.eager import check_call, odd_tensor

COMPLEX = sorted(
    (d for d in vars(torch).values() if isinstance(d, torch.dtype) and d.is_complex), key=str
)


def _zeros(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some complex dtypes
        return torch.zeros(sizes, dtype=dtype)


def test_complex_dtypes_of_this_torch() -> None:
    assert frozenset(COMPLEX) == type_promotion.COMPLEX_DTYPES
    for dtype in COMPLEX:
        assert type_promotion.to_real(dtype) is _zeros(dtype, 2).real.dtype


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_views_of_complex_tensors(dtype: torch.dtype) -> None:
    tensor = _zeros(dtype, 4, 3)
    for view in (tensor, tensor.t(), tensor[1:], tensor[:, ::2]):
        check_call("aten.view_as_real.default", view)
        check_call("aten._conj.default", view)
        check_call("aten.clone.default", view)
        check_call("aten.cat.default", [view, view.real])
        for op in ("isnan", "abs", "neg", "sin", "sgn"):
            check_call(f"aten.{op}.default", view)
        for op in ("eq", "ne", "add", "mul", "div", "pow"):
            check_call(f"aten.{op}.Tensor{'_Tensor' * (op == 'pow')}", view, view)
        check_call("aten.float_power.Tensor_Tensor", view, view)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64], ids=str
)
def test_pairs_as_complex_numbers(dtype: torch.dtype) -> None:
    check_call("aten.view_as_complex.default", torch.zeros(4, 3, 2, dtype=dtype))


@pytest.mark.parametrize(
    "op", ["aten.add.Tensor", "aten.mul.Tensor", "aten.pow.Tensor_Scalar", "aten.eq.Scalar"]
)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool], ids=str
)
def test_complex_numbers_beside_tensors(op: str, dtype: torch.dtype) -> None:
    check_call(op, torch.ones(3, dtype=dtype), 2j)


def test_fractions_in_ranges_of_integers() -> None:
    rng = random.Random(0)
    numbers = (0, 1, 3, -4, 2.5, 0.1, -0.9, 2.0, 7.5)
    steps = (1, 2, -1, 0.5, 1.5, -0.5, 2.0, -1.5)
    for _ in range(1000):
        start, end, step = rng.choice(numbers), rng.choice(numbers), rng.choice(steps)
        # before, eager divides by zero, and the process dies
        if int(step) or torch.__version__ >= "2.13":
            check_call(
                "aten.arange.start_step",
                start,
                end,
                step,
                dtype=rng.choice((torch.int64, torch.int32)),
            )


def test_group_norm_of_any_layout() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(400):
        sizes = [
            rng.choice((0, 1, 2, 3)),
            rng.choice((0, 2, 4)),
            *rng.choices((0, 1, 1, 3, 5), k=rng.choice((1, 2, 3))),
        ]
        tensor = odd_tensor(rng, sizes)
        if rng.random() < 0.3:  # a stride of a dimension of one may be anything
            strides = [
                stride if size != 1 else rng.choice((1, 7))
                for size, stride in zip(sizes, tensor.stride(), strict=True)
            ]
            tensor = tensor.as_strided(sizes, strides)
        places = 1
        for size in sizes[2:]:
            places *= size
        weight = torch.ones(sizes[1]) if rng.random() < 0.5 else None
        accepted += check_call(
            "aten.native_group_norm.default", tensor, weight, None, *sizes[:2], places, 2, 1e-5
        )
    assert accepted > 50


def test_gradient_of_grid_sampler_has_the_sizes_of_its_result() -> None:
    """Before 2.14, torch reads beyond a gradient that is too small."""
    input, grid = TensorSpec.of(torch.ones(2, 3, 5, 5)), TensorSpec.of(torch.ones(2, 4, 4, 2))
    for sizes, fits in (
        ((2, 3, 4, 4), True),
        ((1, 3, 4, 4), False),
        ((2, 3, 4, 5), False),
        ((2, 3, 16), False),
    ):
        arguments = (TensorSpec.of(torch.ones(sizes)), input, grid, 0, 0, False, [True, True])
        if fits:
            assert infer("aten.grid_sampler_2d_backward.default", arguments)[0].sizes == (
                2,
                3,
                5,
                5,
            )
        else:
            with pytest.raises(ShapeError):
                infer("aten.grid_sampler_2d_backward.default", arguments)
