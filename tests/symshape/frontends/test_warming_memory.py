"""The memory of a warm-up, foretold before its first capture, and its budget."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape import InputError, Options

SIZES = [{"length": n} for n in (4000, 2000, 1000, 100)]


def _compiled(**options: Any) -> Any:
    compiled = symshape.compile(
        lambda x: torch.exp(x) + 1,
        dynamic={"x": {0: "length"}},
        runner="padded",
        options=Options(**options),
    )
    compiled(torch.ones(3, 1024))
    return compiled


def test_nothing_is_made_for_a_forecast() -> None:
    compiled = _compiled()
    buckets = compiled.entries[0].runner.buckets
    found = compiled.graph_memory(SIZES)
    assert compiled.entries[0].runner.buckets == buckets
    assert [each.sizes["length"] for each in found.buckets] == [4000, 2000, 1000, 100]
    assert found.pool >= found.buckets[0].pool == 32 * 2**20
    assert found.total > found.reserved == found.pool + found.buffers + found.workspaces


def test_a_forecast_takes_what_warm_up_takes() -> None:
    compiled = _compiled()
    plan = symshape.plan(compiled, [(100,), (4000,)], max_graphs=2)
    assert len(compiled.graph_memory(plan).buckets) == 2
    planned = plan.graph_memory()
    assert planned is not None
    assert planned.pool == compiled.graph_memory(plan).pool
    with pytest.raises(InputError, match="sizes of length are needed"):
        compiled.graph_memory([{"rows": 3}])
    with pytest.raises(InputError, match="no program yet"):
        symshape.compile(torch.relu, runner="padded").graph_memory(SIZES)


def test_a_budget_is_kept() -> None:
    compiled = _compiled()
    need = compiled.graph_memory(SIZES).total
    warm = compiled.warm_up(SIZES, progress=False, memory=need)
    assert warm.graphs == 4
    assert warm.foretold is not None
    assert warm.foretold.total == need


def test_a_budget_is_refused_before_anything_is_made() -> None:
    compiled = _compiled()
    before = compiled.entries[0].runner.buckets
    need = compiled.graph_memory(SIZES).total
    with pytest.raises(InputError, match=r"4 graphs take .*; the 3 up to length=2000 fit, in "):
        compiled.warm_up(SIZES, progress=False, memory=need - 1)
    assert compiled.entries[0].runner.buckets == before
    assert compiled.warm_up(SIZES[1:], progress=False, memory=need - 1).graphs == 3
    with pytest.raises(InputError, match="memory='much' is no amount"):
        compiled.warm_up(SIZES, progress=False, memory="much")


def test_lent_results_count_for_each_graph() -> None:
    sizes = [{"length": 4000 - n} for n in range(3)]
    assert (
        _compiled(outputs="borrow").graph_memory(sizes).pool > _compiled().graph_memory(sizes).pool
    )
