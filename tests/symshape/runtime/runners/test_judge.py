"""Whether padding pays: decided by what was timed and by how full the capacities are."""

from __future__ import annotations

import time
from typing import Any

import pytest

from symshape.runtime.runners.capture import Recording
from symshape.runtime.runners.judge import Judge
from symshape.runtime.runners.variants import Variant


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def _variants(**milliseconds: float) -> list[Variant]:
    made = [Variant(name, Recording(list), taken) for name, taken in milliseconds.items()]
    return sorted(made, key=lambda each: each.milliseconds or 0.0)


def _judge(clock: Clock, eager: list[float], padded: float) -> Judge:
    judge = Judge()
    times = iter(eager)

    def run(leaves: Any, values: Any) -> list[Any]:
        clock.now += next(times) / 1e3
        return [leaves, values]

    assert judge.time_eager(run, (1,), (2,)) == [(1,), (2,)]
    for _ in range(3):
        assert not judge.settled
        start = clock.now
        clock.now += padded / 1e3
        judge.time_padded(start)
    assert judge.settled
    return judge


def test_the_first_eager_call_may_be_slow(clock: Clock) -> None:
    assert _judge(clock, [80.0, 5.0, 6.0], 0.2).eager == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("eager", "padded", "variants", "fill", "pays"),
    [
        (5.0, 0.2, {"eager": 1.0}, 0.1, True),  # the host is what eager waits for
        (0.1, 0.2, {"eager": 0.05}, 1.0, False),  # so little work that the host's part of a padded call is more
        (1.0, 0.2, {"eager": 10.0}, 0.99, False),  # the device is busy, and padding is work for it
        (1.0, 0.2, {"eager": 10.0}, 1.0, True),
        (1.0, 0.2, {"eager": 10.0, "inductor": 5.0}, 0.6, True),  # faster kernels make up for the padding
        (1.0, 0.2, {"eager": 10.0, "inductor": 5.0}, 0.4, False),
    ],
)
def test_the_faster_one_serves(
    clock: Clock, eager: float, padded: float, variants: dict[str, float], fill: float, pays: bool
) -> None:
    judge = _judge(clock, [eager] * 3, padded)
    assert judge.prefers(_variants(**variants), fill) is pays


def test_finer_steps_are_wanted_where_the_device_is_busy(clock: Clock) -> None:
    judge = _judge(clock, [1.0] * 3, 0.2)
    assert judge.device_bound(_variants(eager=0.5))
    assert not judge.device_bound(_variants(eager=0.1))
    assert not Judge().device_bound(_variants(eager=10.0))


@pytest.mark.parametrize(
    ("eager", "padded", "variants", "fill", "share", "lost"),
    [
        (1.0, 0.2, {"eager": 10.0}, 0.5, 0.6, 0.0),  # eager's kernels need 5 ms for what is full, the nearer ones 6
        (1.0, 0.2, {"eager": 10.0}, 0.7, 0.6, 1.0),
        (9.0, 0.2, {"eager": 10.0}, 0.5, 0.6, 3.0),  # eager waits for the host
        (20.0, 0.2, {"eager": 10.0}, 0.5, 0.6, 4.0),  # the padded program serves
        (20.0, 0.2, {"eager": 10.0, "inductor": 5.0}, 0.5, 0.6, 2.0),
        (20.0, 4.0, {"inductor": 5.0}, 0.5, 0.6, 1.0),
    ],
)
def test_what_a_nearer_bucket_would_save(
    clock: Clock, eager: float, padded: float, variants: dict[str, float], fill: float, share: float, lost: float
) -> None:
    judge = _judge(clock, [eager] * 3, padded)
    assert judge.lost(_variants(**variants), fill, share) == pytest.approx(lost)
    assert Judge().lost(_variants(**variants), fill, share) == 0


def test_nothing_is_refused_before_it_was_timed() -> None:
    assert Judge().prefers(_variants(eager=10.0), 0.1)


def test_it_says_what_it_rests_on(clock: Clock) -> None:
    assert str(Judge()) == "nothing is timed yet"
    told = str(_judge(clock, [5.0] * 3, 0.25))
    assert told == "host time a call: eager 5 ms, padded 0.25 ms; the faster serves each size"


def test_a_call_with_effects_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 9.0, 10.0, 12.0, 20.0, 25.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    made: list[int] = []
    judge = Judge(repeats=False)
    for number in range(3):
        assert judge.eager is None
        judge.time_eager(lambda leaves, values: made.append(number) or [number], (), ())  # type: ignore[func-returns-value]  # noqa: B023
    assert made == [0, 1, 2]
    assert judge.eager == 2000.0
