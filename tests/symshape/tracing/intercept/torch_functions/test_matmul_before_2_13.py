"""Matrix products in transforms, in torch's own functions and in whole composites keep their sizes
as symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import symshape
from symshape.tracing.intercept.torch_functions.matmul_before_2_13 import SIZES_ARE_SYMBOLS

torch.manual_seed(0)
R = torch.randn
W, B, SEVERAL = R(4, 6), R(4), R(3, 4, 6)
LAYER = nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True)
Program = Callable[[torch.Tensor], Any]


def _losses(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.linear(x, W, B)).square().sum()


PROGRAMS: dict[str, tuple[Program, tuple[int, ...]]] = {
    "a linear layer of examples": (torch.vmap(lambda x: functional.linear(x, W, B)), (6,)),
    "of several rows each": (torch.vmap(lambda x: functional.linear(x, W, B)), (3, 6)),
    "without a bias": (torch.vmap(lambda x: functional.linear(x, W)), (3, 2, 6)),
    "of rows that lie apart": (torch.vmap(lambda x: functional.linear(x.mT, W, B)), (3, 6, 2)),
    "an ensemble": (lambda x: torch.vmap(lambda w: functional.linear(x, w, B))(SEVERAL), (6,)),
    "an ensemble of batches": (
        lambda x: torch.vmap(lambda w: functional.linear(x, w))(SEVERAL),
        (5, 6),
    ),
    "matmul of batches": (torch.vmap(lambda x: x @ x.mT), (3, 2, 6)),
    "the smaller one first": (torch.vmap(lambda x: W @ x.mT), (3, 2, 6)),
    "a matrix and a vector": (torch.vmap(lambda x: W @ x), (6,)),
    "two vectors": (torch.vmap(lambda x: x @ x), (6,)),
    "from the right": (torch.vmap(lambda x: x.__rmatmul__(W)), (6, 3)),
    "bmm": (torch.vmap(lambda x: torch.bmm(x, x.mT)), (3, 2, 6)),
    "einsum": (torch.vmap(lambda x: torch.einsum("ij,kj->ik", x, W)), (3, 6)),
    "gradients of examples": (torch.vmap(torch.func.grad(_losses)), (3, 6)),
    "a hessian": (torch.func.hessian(_losses), (6,)),
    "a jacobian": (torch.func.jacfwd(lambda x: torch.tanh(functional.linear(x, W, B))), (6,)),
    "a matrix and batches": (lambda x: W @ x.mT, (2, 6)),
    "a layer of attention": (lambda x: LAYER(x, x, x, need_weights=False)[0], (5, 6)),
    "its weights": (lambda x: LAYER(x, x, x), (5, 6)),
    # torch 2.13 hands over a result of other sizes than those of the place, which is refused
    **(
        {}
        if SIZES_ARE_SYMBOLS
        else {
            "into a tensor": (
                lambda x: torch.matmul(x, W.t(), out=x.new_empty(x.size(0), 2, 4)),
                (2, 6),
            )
        }
    ),
}

FORWARD = ("a hessian", "a jacobian")


@pytest.mark.parametrize("around", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name: str, around: Callable[[], Any]) -> None:
    if name in FORWARD and around is torch.inference_mode and not SIZES_ARE_SYMBOLS:
        pytest.skip("torch 2.11 itself has no forward derivatives in inference mode")
    fn, sizes = PROGRAMS[name]
    compiled = symshape.compile(fn, dynamic=True, fullgraph=True)
    with around():
        for n in (5, 3, 7, 4):
            x = R(n, *sizes)
            torch.manual_seed(n)
            expected = fn(x)
            torch.manual_seed(n)
            got = compiled(x)
            torch.testing.assert_close(got, expected)
    assert compiled.stats().traces == 1


def test_under_autocast() -> None:
    compiled = symshape.compile(lambda x: LAYER(x, x, x), dynamic=True, fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for n in (5, 3, 7):
            x = R(n, 2, 6)
            torch.manual_seed(n)
            expected = LAYER(x, x, x)
            torch.manual_seed(n)
            assert all(map(torch.equal, compiled(x), expected))
    assert compiled.stats().traces == 1
