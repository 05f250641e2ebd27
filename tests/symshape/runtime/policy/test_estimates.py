"""Guesses are corrected by what was measured, near it more than far from it."""

from __future__ import annotations

import pytest

from symshape.runtime.policy.estimates import HOPE, Estimates, Slack


def _estimates(host: float = 5.0) -> Estimates:
    found = Estimates(floor=1.0, rate=0.01, price=100.0)
    found.eager_host.saw(host)
    return found


def test_before_a_measurement_the_guess_counts_in_part() -> None:
    estimates = _estimates()
    assert estimates.device(100.0) == pytest.approx(HOPE * 2.0)
    assert estimates.bucket_price() == 100.0
    assert estimates.eager(1000.0) == pytest.approx(HOPE * 11.0)


def test_a_device_that_waited_needs_no_longer_than_that() -> None:
    estimates = _estimates()
    estimates.ran(10_000.0, 5.0)  # guessed 50
    assert estimates.device(10_000.0) == pytest.approx(5.0)


def test_a_device_that_was_busy_needs_as_long_as_that() -> None:
    estimates = _estimates()
    estimates.ran(1000.0, 80.0)
    assert estimates.device(1000.0) == pytest.approx(80.0)
    assert estimates.device(2000.0) > 100.0


def test_between_replays_time_grows_evenly() -> None:
    estimates = _estimates()
    estimates.replayed(100.0, 2.0)
    estimates.replayed(200.0, 4.0)
    assert [estimates.device(each) for each in (100.0, 150.0, 200.0)] == [2.0, 3.0, 4.0]
    assert estimates.device(400.0) > 4.0
    assert estimates.device(50.0) < 2.0


def test_a_small_replay_says_little_of_large_sizes() -> None:
    """At small sizes launches count; taking them for a rate would forbid every wide bucket."""
    estimates = _estimates()
    estimates.replayed(1.0, 1.2)
    assert estimates.device(1000.0) == pytest.approx(11.0 * 1.2 / 1.01)


def test_nothing_is_ready_before_an_eager_call_was_timed() -> None:
    assert not Estimates(1.0, 1.0, 1.0).ready
    assert str(Estimates(1.0, 1.0, 1.0)) == "nothing is timed yet"
    assert "eager 5 ms, padded not timed yet; a bucket costs 100 ms" in str(_estimates())


def test_an_eager_call_is_not_priced_by_replays_of_slower_kernels() -> None:
    estimates = Estimates(floor=0.0, rate=1.0, price=1.0)
    estimates.eager_host.saw(5.0)
    estimates.ran(10.0, 12.0)
    estimates.replayed(10.0, 30.0)
    assert estimates.bucket(10.0) == 30.0
    assert estimates.eager(10.0) == pytest.approx(12.0)
    assert estimates.eager(20.0) == pytest.approx(24.0)
    assert estimates.eager(1.0) == 5.0


def test_the_first_calls_do_not_price_the_later_ones() -> None:
    estimates = Estimates(floor=0.0, rate=1.0, price=1.0)
    for milliseconds in (870.0, 285.0, 12.0):
        estimates.eager_host.saw(milliseconds)
    assert estimates.eager(1.0) == 12.0


def test_what_follows_a_call_counts_as_often() -> None:
    estimates = _estimates()
    alone = estimates.eager(10.0), estimates.bucket(10.0)
    estimates.times = 3.0
    assert (estimates.eager(10.0), estimates.bucket(10.0)) == pytest.approx([3 * e for e in alone])
    estimates.beside = 2.0  # what the loop does besides is not repeated
    assert estimates.eager(10.0) == pytest.approx(3 * 5.0 + 2.0)


def _loop(slack: Slack, host: float, device: float, meanwhile: float, after: float) -> float:
    """Return the slack after a step whose loop does a part of its work while the device may work
    on the program, and waits for the device before the rest.
    """
    return slack.saw(max(host + meanwhile, device) + after, host, device)


@pytest.mark.parametrize("meanwhile", [0.0, 2.0, 6.0])
@pytest.mark.parametrize("after", [0.0, 4.0, 25.0])
def test_slack_is_what_runs_while_the_device_works(meanwhile: float, after: float) -> None:
    slack = Slack()
    for _ in range(4):
        assert _loop(slack, 10.0, 9.0, meanwhile, after) == pytest.approx(meanwhile + after)
    # a larger bucket: less for the host, more for the device
    assert _loop(slack, 3.0, 20.0, meanwhile, after) == pytest.approx(meanwhile)
    # what the host alone decides tells nothing else
    assert _loop(slack, 10.0, 9.0, meanwhile, after) == pytest.approx(meanwhile)
    for _ in range(9):  # what is hidden is no more than it could be
        assert _loop(slack, 3.0, 5.0 + meanwhile / 3, meanwhile, after) <= meanwhile + 0.1


def test_a_device_that_is_behind_has_no_slack() -> None:
    slack = Slack()
    _loop(slack, 10.0, 9.0, 6.0, 0.0)
    assert slack.saw(12.0, 3.0, None) == 0.0


def test_what_hardly_depends_on_the_overlap_tells_nothing_of_it() -> None:
    slack = Slack()
    assert slack.saw(30.0, 3.0, 20.0) == 0.0  # the rest is not known yet
    _loop(slack, 10.0, 9.0, 6.0, 20.0)
    assert _loop(slack, 10.0, 12.6, 0.0, 26.0) == pytest.approx(26.0)


def test_steps_that_waited_for_something_else_are_outvoted() -> None:
    slack = Slack()
    for late in (0.0, 0.0, 300.0, 0.0, 0.0, 0.0):
        _loop(slack, 10.0, 9.0, 6.0, late)
    assert slack() == pytest.approx(6.0)
    for late in (0.0, 0.0, 0.0, 0.0, 0.0, 300.0):
        _loop(slack, 3.0, 12.0, 6.0, late)
    assert slack() == pytest.approx(6.0)


@pytest.mark.parametrize("meanwhile", [0.0, 6.0])
def test_a_bucket_is_not_thought_faster_for_what_the_loop_does_after_it(meanwhile: float) -> None:
    """Two models in turns, each compiled: the one's step is no time for the other's kernels."""
    estimates, slack = _estimates(), Slack()
    estimates.bucket_host.saw(1.0)
    estimates.replayed(1000.0, 20.0)
    for _ in range(4):
        estimates.beside = _loop(slack, 5.0, 5.0, meanwhile, 25.0)
    assert estimates.bucket(1000.0) < estimates.eager(10.0)  # not known yet
    estimates.beside = _loop(slack, 1.0, 20.0, meanwhile, 25.0)
    assert estimates.bucket(1000.0) > estimates.eager(10.0)
