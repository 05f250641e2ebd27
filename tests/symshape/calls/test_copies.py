"""Copies of a call: other memory, the same layout and sharing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from symshape.calls.copies import copy_call


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4),
        lambda: torch.randn(3, 4).t()[1:],
        lambda: torch.randn(4).expand(3, 4),
        lambda: torch.randn(0, 4),
        lambda: torch.randn(3, dtype=torch.complex64).conj(),
        lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
        lambda: torch.randn(3, requires_grad=True),
        lambda: torch.nn.Parameter(torch.randn(3), requires_grad=False),
        lambda: torch.arange(5, dtype=torch.int8)[::2],
    ],
)
def test_a_copy_is_the_same_on_other_memory(make: Any) -> None:
    original = make()
    original.mark = "kept"
    ((copy,), _) = copy_call((original,), {})
    assert torch.equal(copy, original)
    for what in (
        torch.Tensor.stride,
        torch.Tensor.storage_offset,
        torch.Tensor.is_conj,
        torch.Tensor.is_neg,
        type,
    ):
        assert what(copy) == what(original)
    assert copy.requires_grad == original.requires_grad
    assert copy.mark == "kept"
    if original.numel():
        assert copy.untyped_storage().data_ptr() != original.untyped_storage().data_ptr()


def test_sharing_is_kept() -> None:
    base = torch.arange(8.0)
    (((a, again), b), named) = copy_call(([base[:4], base[:4]], base[2:]), {"base": base})
    a.fill_(7)
    assert b[:2].tolist() == [7, 7]
    assert again.tolist() == named["base"][:4].tolist() == [7] * 4
    assert base.tolist() == list(range(8))


def test_one_tensor_twice_is_one_copy_twice() -> None:
    x = torch.ones(2)
    ((a, b), _) = copy_call((x, x), {})
    assert a is b


def test_what_is_no_tensor_passes() -> None:
    generator = torch.Generator()
    given = {"n": 3, "generator": generator, "list": [1, "two"]}
    _, copied = copy_call((), given)
    assert copied == given
    assert copied["list"] is not given["list"]
