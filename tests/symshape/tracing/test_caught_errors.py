"""Errors of sizes that a program catches: other sizes, at which nothing is raised, have another
program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import symshape

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
OPS: dict[str, Op] = {
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "l1_loss": F.l1_loss,
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x, y)[0],
    "broadcast_shapes": lambda x, y: x.new_zeros(torch.broadcast_shapes(x.shape, y.shape)),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=0),
    "pairwise_distance": F.pairwise_distance,
    "add": torch.add,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "view": lambda x, y: x.view(y.shape),
    "stack": lambda x, y: torch.stack([x, y]),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("first", [(3, 4), (4, 4), (1, 4)])
def test_a_handler_serves_only_sizes_at_which_there_is_an_error(
    name: str, first: tuple[int, int]
) -> None:
    op = OPS[name]

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            return op(x, y)
        except RuntimeError:
            return x.sum() * 0 - 1

    compiled = symshape.compile(fn, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of losses of unequal sizes
        for sizes in (first, (4, 4), (5, 6), (1, 4), (6, 6), (4, 1), (1, 1), (4, 3)):
            x, y = (torch.rand(size) for size in sizes)
            torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert compiled.stats().refusals == 0
