"""Side by side: what is counted is what happened, in both ways of compiling."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch._dynamo

from symshape.explore.metering import (
    Arguments,
    DynamoLane,
    Lane,
    Meter,
    Summary,
    SymShapeLane,
    closing,
    difference,
    run_stream,
)


class Net(torch.nn.Module):
    """Another path for long inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((), 3.0))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x * self.scale if x.size(0) < 100 else x + self.scale}


def stream(*sizes: int) -> list[Arguments]:
    return [{"x": torch.arange(float(size))} for size in sizes]


def summaries(model: torch.nn.Module, lanes: Sequence[Lane], calls: Sequence[Arguments]) -> list[Summary]:
    with closing(lanes):
        run_stream(model, lanes, calls)
    return [Summary.of(lane, len(calls)) for lane in lanes]


def test_compiles_hits_and_results() -> None:
    model = Net().eval()
    lane = SymShapeLane(model, "eager")
    (found,) = summaries(model, [lane], stream(8, 9, 10, 9, 200))
    assert found.compiles == lane.compiled.stats().traces == 3
    assert found.fallbacks == 0
    assert found.mismatches == 0
    assert [record.compiled for record in lane.records] == [True, True, False, False, True, *[False] * 5]
    assert [record.again for record in lane.records] == [False, False, False, True, False, *[True] * 5]
    assert lane.meter.runs == 7, "every hit runs a metered graph"
    assert all(record.inside_us > 0 for record in lane.records if not record.compiled)
    assert all(0 < record.dispatch_us < record.host_us <= record.total_us for record in lane.records[5:])


def test_calls_beyond_dynamos_limit_count_as_fallbacks() -> None:
    model = Net().eval()
    with torch._dynamo.config.patch(recompile_limit=2, automatic_dynamic_shapes=False):
        ours, theirs = summaries(model, [SymShapeLane(model, "eager"), DynamoLane(model)], stream(8, 9, 10, 11))
    assert (theirs.compiles, theirs.fallbacks, theirs.mismatches) == (2, 4, 0)
    assert (ours.compiles, ours.fallbacks, ours.mismatches) == (2, 0, 0)


def test_a_wrong_result_is_a_mismatch() -> None:
    model = Net().eval()
    wrong = Lane("wrong", lambda x: {"y": model(x)["y"] + (1 if x.size(0) == 9 else 0)}, Meter())
    (found,) = summaries(model, [wrong], stream(8, 9, 10))
    assert found.mismatches == 2
    assert found.problem.startswith("9: ")
    assert found.fallbacks == 6, "no graph ran"
    assert found.new_us is None


def test_a_runner_that_is_not_there_is_a_fallback() -> None:
    if torch.cuda.is_available():
        pytest.skip("CUDA graphs are there")
    model = Net().eval()
    lane = SymShapeLane(model, "cudagraph")
    (found,) = summaries(model, [lane], stream(8, 9, 10))
    assert found.mismatches == 0
    assert found.fallbacks == len(lane.fallbacks) == 2
    assert "CUDA" in lane.fallbacks[0].reason


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ({"y": torch.ones(3)}, ""),
        ({"y": torch.ones(3) + 1e-6}, ""),
        ({"y": torch.ones(3) + 1e-2}, "not close"),
        ({"y": torch.ones(3, dtype=torch.float64)}, "dtype"),
        ({"y": torch.ones(4)}, "shape"),
        ({"y": torch.ones(6)[::2]}, "stride"),
        ({"y": 1}, "1 instead of"),
        ((torch.ones(3),), "another structure"),
    ],
)
def test_differences(got: object, words: str) -> None:
    found = difference(got, {"y": torch.ones(3)})
    assert words in found
    assert bool(found) == bool(words)


def test_nothing_stays_subscribed() -> None:
    import symshape.events as events

    before = events._subscribers
    lane = SymShapeLane(Net(), "eager")
    assert events._subscribers != before
    lane.close()
    assert events._subscribers == before
