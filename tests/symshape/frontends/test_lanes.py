"""The lanes of the demo: what is counted is what happened, and metered entries are released like
all others.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo

import symshape
from symshape import events
from symshape.exploring.metering import MeteredRunner, run_stream
from symshape.frontends.cli.demo import DynamoLane, SymShapeLane
from tests.symshape.exploring.test_metering import Net, stream, summaries
from tests.symshape.runtime.runners.fakes import noted_runners


def test_compiles_hits_and_results() -> None:
    model = Net().eval()
    lane = SymShapeLane(model, "eager")
    (found,) = summaries(model, [lane], stream(8, 9, 10, 9, 200))
    assert found.compiles == lane.compiled.stats().traces == 3
    assert found.fallbacks == 0
    assert found.mismatches == 0
    assert [record.compiled for record in lane.records] == [
        True,
        True,
        False,
        False,
        True,
        *[False] * 5,
    ]
    assert [record.again for record in lane.records] == [
        False,
        False,
        False,
        True,
        False,
        *[True] * 5,
    ]
    assert lane.meter.runs == 7, "every hit runs a metered graph"
    assert all(record.inside_us > 0 for record in lane.records if not record.compiled)
    assert all(
        0 < record.dispatch_us < record.host_us <= record.total_us for record in lane.records[5:]
    )


def test_calls_beyond_dynamos_limit_count_as_fallbacks() -> None:
    model = Net().eval()
    with torch._dynamo.config.patch(recompile_limit=2, automatic_dynamic_shapes=False):
        ours, theirs = summaries(
            model, [SymShapeLane(model, "eager"), DynamoLane(model)], stream(8, 9, 10, 11)
        )
    assert (theirs.compiles, theirs.fallbacks, theirs.mismatches) == (2, 4, 0)
    assert (ours.compiles, ours.fallbacks, ours.mismatches) == (2, 0, 0)


def test_a_runner_that_is_not_there_is_a_fallback() -> None:
    if torch.cuda.is_available():
        pytest.skip("CUDA graphs are there")
    model = Net().eval()
    lane = SymShapeLane(model, "cudagraph")
    (found,) = summaries(model, [lane], stream(8, 9, 10))
    assert found.mismatches == 0
    assert found.fallbacks == len(lane.fallbacks) == 2
    assert "CUDA" in lane.fallbacks[0].reason


def test_nothing_stays_subscribed() -> None:
    before = events._subscribers
    lane = SymShapeLane(Net(), "eager")
    assert events._subscribers != before
    lane.close()
    assert events._subscribers == before


def test_metered_runners_are_released_with_their_entries() -> None:
    model = Net().eval()
    with noted_runners() as made:
        lane = SymShapeLane(model, "cudagraph")
        run_stream(model, [lane], stream(8, 9, 10))
        assert all(isinstance(entry.runner, MeteredRunner) for entry in lane.compiled.entries)
        assert lane.meter.runs == sum(each.runs for each in made) - len(made), (
            "all but the runs that followed a trace"
        )
        assert [entry.runner.describe() for entry in lane.compiled.entries] == [
            "noted, 2 runs",
            "noted, 4 runs",
        ]
        lane.compiled.reset()
        assert [each.releases for each in made] == [1, 1]
        lane.close()


def test_metered_runners_are_released_when_evicted() -> None:
    model = Net().eval()
    with noted_runners() as made:
        lane = SymShapeLane(model, "cudagraph")
        symshape.compiled_of(lane.compiled)._cache._max_entries = 1
        run_stream(model, [lane], stream(8, 9, 200), passes=1)
        lane.close()
    assert [each.releases for each in made] == [1, 1, 0]
