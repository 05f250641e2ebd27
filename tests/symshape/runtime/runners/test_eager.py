"""The runner that all others fall back to."""

from __future__ import annotations

import pytest
import torch

import symshape
from symshape.graph.codegen import compiled
from symshape.runtime.runners.eager import EagerRunner


def test_it_runs_the_programs_own_code_and_holds_nothing() -> None:
    program = symshape.trace(lambda x: (x + 1, x.shape[0]), torch.ones(3)).program
    runner = EagerRunner(program)
    assert runner.run is compiled(program.run), "no frame of its own on a warm call"
    y, n = runner.run([torch.zeros(5)], (5,))
    assert torch.equal(y, torch.ones(5))
    assert n == 5
    runner.release()
    assert runner.run([torch.zeros(5)], (5,))[1] == 5
    assert runner.describe() == "eager"


def test_it_restores_the_grad_mode_on_errors() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x[i]
        return x * y

    f = symshape.compile(fn, dynamic=True)
    f(torch.ones(3), torch.tensor([0, 1, 2]))
    with pytest.raises(IndexError):
        f(torch.ones(3), torch.tensor([0, 1, 9]))
    assert torch.is_grad_enabled()
