"""Functional collectives are traced; what exchanges gradients or writes through a process group is
refused by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import symshape
from tests.discovery import REPOSITORY

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from tests.symshape.tracing.collectives_in_use import PROGRAMS, flat, reduced


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        dist.destroy_process_group()


def _compiled(fn: Callable[..., Any]) -> Any:
    return symshape.compile(fn, dynamic=True, fullgraph=True)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_one_trace_serves_all_sizes(program: Callable[[torch.Tensor], Any]) -> None:
    compiled = _compiled(program)
    for n in (3, 5, 4):
        x = torch.arange(2.0 * n).reshape(n, 2)
        for one, other in zip(flat(program(x)), flat(compiled(x)), strict=True):
            torch.testing.assert_close(other + 0, one + 0)
    assert compiled.stats().traces == 1


def test_gradients_through_a_collective_are_refused() -> None:
    compiled = _compiled(reduced)
    with pytest.raises(symshape.UnsupportedError, match="tensors that require gradients"):
        compiled(torch.ones(3, 2, requires_grad=True))


def test_a_collective_in_place_is_refused_by_name() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        dist.all_reduce(made)
        return made

    with pytest.raises(symshape.UnsupportedError, match="call the functional one"):
        _compiled(fn)(torch.ones(3, 2))


def test_data_parallel_is_refused_where_it_exchanges_gradients() -> None:
    """Its reducer is readied at each call, which a graph would not do: gradients would stay those
    of one rank.
    """
    model = torch.nn.Linear(4, 4)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    compiled, x = _compiled(parallel), torch.ones(3, 4)
    with pytest.raises(
        symshape.UnsupportedError, match=r"DistributedDataParallel\(symshape.compile\(module\)\)"
    ):
        compiled(x)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    inside = torch.nn.parallel.DistributedDataParallel(symshape.compile(model, fullgraph=True))
    torch.testing.assert_close(inside(x), model(x))
    assert symshape.compiled_of(inside.module).stats().traces == 1


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_on_gloo(size: int) -> None:
    """Every rank's results, with uneven sizes too, and gradients with DistributedDataParallel, are
    those of eager.
    """
    words = [sys.executable, "-m", "tests.symshape.tracing.collective_programs", str(size)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    for found in json.loads(run.stdout.splitlines()[-1]):
        assert set(found.values()) == {""}, found
        assert len(found) == len(PROGRAMS) + 2 + 5
