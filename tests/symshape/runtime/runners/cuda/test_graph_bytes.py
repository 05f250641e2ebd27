"""Bytes counted from the sizes of tensors, against what torch allocates while a program runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import symshape
from symshape.runtime.runners.cuda.graph_bytes import weight_of


def test_buffers_and_results_are_its_own() -> None:
    traced = symshape.trace(lambda x: x.view(-1) * 2, torch.ones(4, 8))
    values = {"s0": 10, "s1": 6}
    found = weight_of(traced.program.graph, values)
    assert (found.own, found.shared) == (60 * 4 * 2, 0)


def test_what_comes_and_goes_is_shared() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = (x * 2).exp()
        return x.sum()

    found = weight_of(symshape.trace(program, torch.ones(100)).program.graph, {"s0": 100})
    assert found.own == 404
    assert found.shared == 800, "one is read while the next is written"


def test_views_and_writes_in_place_take_nothing() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.relu(x).t()
        y[1:].add_(1)
        y.mul_(2)
        return y[0].sum()

    found = weight_of(symshape.trace(program, torch.ones(10, 10)).program.graph, {"s0": 10, "s1": 10})
    assert (found.own, found.shared) == (404, 400)


def test_parameters_are_not_counted() -> None:
    linear = torch.nn.Linear(8, 4)
    with torch.no_grad():
        found = weight_of(symshape.trace(linear, torch.ones(3, 8)).program.graph, {"s0": 3, "s1": 8})
    assert (found.own, found.shared) == (3 * 8 * 4 + 3 * 4 * 4, 0)


def test_of_a_bucket_results_are_shared_and_buffers_are_counted_apart() -> None:
    traced = symshape.trace(lambda x, y: (x * 2 + y).exp(), torch.ones(200), torch.ones(200))
    found = weight_of(traced.program.graph, {"s0": 200, "s1": 200}, buffers=1)
    assert found.own == 800  # the other input
    assert found.buffers == 1024  # whole blocks of 512
    assert found.shared == 3 * 800
