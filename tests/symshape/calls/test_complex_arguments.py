"""Lazily conjugated arguments of every complex dtype of this torch: never served by a program for
plain ones.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import symshape
from symshape.calls.call_key import FLAT, read_usual

COMPLEX = sorted(
    (d for d in vars(torch).values() if isinstance(d, torch.dtype) and d.is_complex), key=str
)


pytestmark = pytest.mark.filterwarnings("ignore:.*omplex.* support is experimental")


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_keys_of_lazy_conjugates(dtype: torch.dtype) -> None:
    numbers = torch.ones(2, dtype=torch.complex64).to(dtype)
    assert not FLAT.lasts((1, numbers)), (
        "a key that holds for the lazy conjugate, too, is not remembered"
    )
    assert read_usual((numbers,), {}) is not None
    assert read_usual((numbers.conj(),), {}) is None


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_lazy_conjugates(dtype: torch.dtype) -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return x.imag.float() + 1

    numbers = torch.complex(torch.arange(4.0), torch.arange(4.0) + 2).to(dtype)
    compiled = symshape.compile(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for _ in range(4):
            for argument in (numbers, numbers.conj(), numbers[:3], numbers[:3].conj()):
                assert torch.equal(compiled(argument), parts(argument))
