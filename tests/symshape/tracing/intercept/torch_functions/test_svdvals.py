"""Singular values and eigenvalues without vectors: bit by bit those of eager, which LAPACK finds in
another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from tests.symshape.eager import agree

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "svdvals": torch.linalg.svdvals,
    "eigvals": lambda x: torch.linalg.eigvals(x @ x.t()),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.t(), UPLO="U"),
    "spectral norm": lambda x: torch.linalg.matrix_norm(x, 2),
    "nuclear norm": lambda x: (
        torch.linalg.norm(x, "nuc"),
        torch.norm(x, "nuc"),
        x.norm("nuc"),
        torch.nuclear_norm(x),
    ),
    "condition": torch.linalg.cond,
    "rank": torch.linalg.matrix_rank,
    "with vectors beside it": lambda x: (
        torch.linalg.svd(x, full_matrices=False)[1],
        torch.linalg.svdvals(x),
    ),
}


# torch calls its own function deprecated, once in a process
@pytest.mark.filterwarnings("ignore:at..nuclear_norm is deprecated:UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    calls = [
        (torch.randn(*sizes, generator=torch.Generator().manual_seed(7)),)
        for sizes in ((6, 4), (5, 3), (7, 4))
    ]
    _, seen = agree(FUNCTIONS[name], *calls, dynamic=True)
    assert seen[0] == "equal"


def test_gradients_need_the_vectors() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    traced = symshape.trace(torch.linalg.svdvals, x, dynamic=True)
    found = [torch.autograd.grad(run(x).sum(), x)[0] for run in (torch.linalg.svdvals, traced)]
    assert torch.equal(*found)
