"""Metering: what is counted is what happened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from symshape.exploring.metering import (
    Arguments,
    Lane,
    Meter,
    MeteredRunner,
    Summary,
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


def summaries(
    model: torch.nn.Module, lanes: Sequence[Lane], calls: Sequence[Arguments]
) -> list[Summary]:
    with closing(lanes):
        run_stream(model, lanes, calls)
    return [Summary.of(lane, len(calls)) for lane in lanes]


def test_a_wrong_result_is_a_mismatch() -> None:
    model = Net().eval()
    wrong = Lane("wrong", lambda x: {"y": model(x)["y"] + (1 if x.size(0) == 9 else 0)}, Meter())
    (found,) = summaries(model, [wrong], stream(8, 9, 10))
    assert found.mismatches == 2
    assert found.problem.startswith("9: ")
    assert found.fallbacks == 6, "no graph ran"
    assert found.new_us is None


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


def test_a_meter_counts_what_it_is_put_around() -> None:
    model = Net().eval()
    meter = Meter()
    run = meter.metered(model)
    lane = Lane("metered", lambda x: run(x), meter)
    (found,) = summaries(model, [lane], stream(8, 9))
    assert (found.compiles, found.fallbacks, found.mismatches) == (0, 0, 0)
    assert meter.runs == 4
    assert all(0 < record.inside_us < record.host_us <= record.total_us for record in lane.records)


def test_a_metered_run_that_fails_is_counted_too() -> None:
    meter = Meter()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        meter.metered(fails)()
    assert meter.runs == 1
    assert meter.inside_ns > 0


def test_a_metered_runner_is_released_and_described_as_the_one_inside() -> None:
    released: list[str] = []

    class Inside:
        def run(self, leaves: Sequence[object], values: Sequence[int], /) -> list[object]:
            return [*leaves, *values]

        def release(self) -> None:
            released.append("inside")

        def describe(self) -> str:
            return "inside"

    meter = Meter()
    outer = MeteredRunner(MeteredRunner(Inside(), meter), meter)
    assert outer.run(["a"], (3,)) == ["a", 3]
    assert meter.runs == 2
    assert outer.describe() == "inside"
    outer.release()
    assert released == ["inside"]
