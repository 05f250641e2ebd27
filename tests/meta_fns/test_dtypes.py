"""Mixes of dtypes that kernels refuse, or take after all, against eager; of empty tensors too."""

from __future__ import annotations

import pytest
import torch

import meta_fns
from tests.meta_fns.eager import check_call

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SIZES = ((), (0,), (1,), (2,), (0, 3), (2, 3))


def ones(sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_one_tensor(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    tensor = ones(sizes, dtype)
    check_call("aten._conj.default", tensor)
    check_call("aten.bernoulli.default", tensor)
    check_call("aten.rand_like.default", tensor)
    check_call("aten.randn_like.default", tensor)
    for out in (None, *DTYPES):
        check_call("aten._safe_softmax.default", tensor, -1, out)
    for half_to_float in (False, True):
        check_call("aten._softmax.default", tensor, -1, half_to_float)
    if sizes:
        check_call("aten.native_layer_norm.default", tensor, sizes[-1:], None, None, 1e-5)


@pytest.mark.parametrize("one", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_two_tensors(one: torch.dtype, other: torch.dtype) -> None:
    for sizes in SIZES:
        for scale in (2.0, 2):
            check_call(
                "aten.native_dropout_backward.default", ones(sizes, one), ones(sizes, other), scale
            )
        for length in (0, 3):
            check_call("aten.searchsorted.Tensor", ones((length,), one), ones(sizes, other))
            check_call("aten.bucketize.Tensor", ones(sizes, one), ones((length,), other))
        if one in (torch.float32, torch.float64) and other is not torch.float16:
            for training in (False, True):
                check_call(
                    "aten.rrelu_with_noise.default",
                    ones(sizes, one),
                    ones(sizes, other),
                    0.1,
                    0.3,
                    training,
                )
            check_call(
                "aten.soft_margin_loss_backward.default",
                ones((), one),
                ones(sizes, other),
                ones(sizes, one),
                1,
            )
            check_call(
                "aten.soft_margin_loss_backward.default",
                ones((), one),
                ones(sizes, one),
                ones(sizes, other),
                1,
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_searching_a_number(dtype: torch.dtype) -> None:
    for number in (1.5, 1, True):
        check_call("aten.searchsorted.Scalar", ones((3,), dtype), number)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_of_any_dtypes(dtype: torch.dtype) -> None:
    class Ask:
        def new_bool(self) -> str:
            return "asked"

    for other in DTYPES:
        torch.equal(ones((2,), dtype), ones((2,), other))  # eager takes them
        found = meta_fns.infer(
            "aten.equal.default", (ones((2,), dtype), ones((2,), other)), ctx=Ask()
        )
        assert found == "asked"
        assert (
            meta_fns.infer("aten.equal.default", (ones((2,), dtype), ones((3,), other)), ctx=Ask())
            is False
        )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_classes(dtype: torch.dtype, batch: int) -> None:
    scores, target = ones((batch, 3)), torch.zeros(batch, dtype=dtype)
    image, labels = ones((batch, 3, 1, 2)), torch.zeros(batch, 1, 2, dtype=dtype)
    for total in (torch.float32, torch.float64):
        for name, value, classes in (("nll_loss", scores, target), ("nll_loss2d", image, labels)):
            op, one = f"aten.{name}_backward.default", ones((), total)
            check_call(op, ones(()), value, classes, None, 1, -100, one)
            check_call(op, ones(tuple(classes.size())), value, classes, None, 0, -100, one)
    check_call("aten.multi_margin_loss_backward.default", ones(()), scores, target, 1, 1.0)
    entries = torch.zeros(batch, 3, dtype=dtype)
    check_call(
        "aten.multilabel_margin_loss_backward.default",
        ones(()),
        scores,
        entries,
        1,
        ones((batch, 3)),
    )
