"""The bundled trace, and requests put together into batches."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symshape.errors import InputError
from symshape.exploring.traffic import SAMPLE, Request, batches, bundled_requests, read_requests

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_the_sample_ships_with_its_attribution() -> None:
    folder = resources.files("symshape.data")
    assert len(folder.joinpath(SAMPLE).read_text().splitlines()) == 2001
    readme = folder.joinpath("README.md").read_text()
    for part in (SAMPLE, "Azure Public Dataset", "Microsoft", "CC-BY 4.0", "licenses/by/4.0"):
        assert part in readme


def test_requests_of_the_sample() -> None:
    requests = bundled_requests()
    assert len(requests) == 2000
    assert requests[0] == Request(0.0, 374, 44)
    assert requests[1] == Request(4.314579, 396, 109)
    arrivals = [request.arrival_s for request in requests]
    assert arrivals == sorted(arrivals)
    assert bundled_requests(3) == requests[:3]


@pytest.mark.parametrize(
    "lines",
    [
        ["TIMESTAMP,GeneratedTokens", "2023-11-16 18:15:46.68,5"],
        [HEADER, "yesterday,1,2"],
        [HEADER, "2023-11-16 18:15:46.68,many,2"],
        [HEADER, "2023-11-16 18:15:46.68,1"],
    ],
)
def test_a_bad_trace_is_refused_with_its_line(lines: list[str]) -> None:
    with pytest.raises(InputError, match="line 2 of the trace"):
        read_requests(lines)


def test_windows_batches_and_scaling() -> None:
    requests = [
        Request(t, n, 1)
        for t, n in ((0.0, 100), (0.4, 50), (0.5, 25), (0.6, 1), (0.7, 0), (9.0, 99))
    ]
    assert [b.lengths for b in batches(requests, window_s=0.5)] == [(100, 50, 25), (1, 1), (99,)]
    assert [b.lengths for b in batches(requests, window_s=0.5, max_batch=2)] == [
        (100, 50),
        (25, 1),
        (1,),
        (99,),
    ]
    assert [b.lengths for b in batches(requests, window_s=0.5, longest=10)] == [
        (10, 5, 3),
        (1, 1),
        (10,),
    ]
    assert batches([], window_s=1.0, longest=8) == ()


@pytest.mark.parametrize(
    "bad", [{"window_s": 0}, {"window_s": 1, "max_batch": 0}, {"window_s": 1, "longest": 0}]
)
def test_bounds_are_positive(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be positive"):
        batches([Request(0.0, 1, 1)], **bad)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 5000)), max_size=40),
    st.floats(0.01, 3),
    st.integers(1, 5),
    st.none() | st.integers(1, 300),
)
def test_each_request_is_in_one_batch_of_its_window(
    steps: list[tuple[float, int]], window: float, max_batch: int, longest: int | None
) -> None:
    now, requests = 0.0, []
    for step, tokens in steps:
        now += step
        requests.append(Request(now, tokens, 1))
    found = batches(requests, window_s=window, max_batch=max_batch, longest=longest)
    assert sum(batch.size for batch in found) == len(requests)
    position = 0
    for batch in found:
        members = requests[position : position + batch.size]
        position += batch.size
        assert batch.size <= max_batch
        assert members[-1].arrival_s - members[0].arrival_s <= window
        if batch.size < max_batch and position < len(requests):
            assert requests[position].arrival_s - members[0].arrival_s > window, (
                "the batch was closed too early"
            )
        if longest is None:
            assert batch.lengths == tuple(max(member.context_tokens, 1) for member in members)
        assert all(1 <= length <= (longest or 5000) for length in batch.lengths)
    if longest is not None and any(request.context_tokens for request in requests):
        assert max(batch.longest for batch in found) == longest
