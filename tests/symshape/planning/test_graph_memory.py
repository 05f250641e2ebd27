"""Plans whose graphs stay within a budget of memory on the device."""

from __future__ import annotations

import pytest
import torch

import symshape
from symshape.errors import InputError

LENGTHS = [5, 5, 7, 30, 31, 200, 1000, 2000, 4000]


def _traced() -> symshape.Traced:
    def scores(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(1, 2), -1)

    return symshape.trace(scores, torch.ones(3, 5, 64), dynamic={"x": {0: "batch", 1: "length"}})


def _traffic() -> symshape.Traffic:
    return symshape.Traffic.of(LENGTHS * 20, ("length",)).having(batch=8)


def _total(found: symshape.BucketPlan) -> int:
    memory = found.graph_memory()
    assert memory is not None
    return memory.total


def test_the_largest_graphs_are_left_out() -> None:
    whole = symshape.plan(_traced(), _traffic(), max_graphs=32)
    need = _total(whole)
    kept = symshape.plan(_traced(), _traffic(), max_graphs=32, graph_memory=need)
    assert kept.caps == whole.caps
    less = symshape.plan(_traced(), _traffic(), max_graphs=32, graph_memory=need - 1)
    assert _total(less) < need
    assert less.caps == whole.caps[:-1]
    assert less.hit_rate < 1


def test_nothing_fits() -> None:
    with pytest.raises(
        InputError, match=r"no graph fits in graph_memory=5.00 MB; all of the best plan: "
    ):
        symshape.plan(_traced(), _traffic(), graph_memory="5 MB")
    with pytest.raises(InputError, match="graph_memory=… needs a traced program"):
        symshape.plan(None, _traffic(), graph_memory="5 MB")


def test_a_plan_without_a_program_does_not_know() -> None:
    assert symshape.plan(None, _traffic(), max_graphs=2).graph_memory() is None
    read = symshape.BucketPlan.from_json(
        symshape.plan(_traced(), _traffic(), max_graphs=2).to_json()
    )
    assert read.graph_memory() is None
