"""Which traces are worth making: the first ones, what finds room in the promise, what has credit.
No clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from symshape.runtime.policy import programs as module
from symshape.runtime.policy.programs import FIRST, HOPED, STRUCTURES, Programs
from symshape.runtime.policy.promise import Promise

FREE = 4


_HAS_ROOM = Programs.has_room  # as it is before the tests' own takes its place


@pytest.fixture(autouse=True)
def the_promise_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Programs, "has_room", _HAS_ROOM)


class Stream:
    """Calls of a function: an eager one takes ``eager`` ms, one that a program serves the same, a
    trace ``price``.
    """

    def __init__(self, eager: float, price: float, free: int | None = FREE) -> None:
        self.eager, self.price = eager, price
        self.hits = self.traces = 0
        self.programs = Programs(Promise(), free, lambda: self.hits, accounted=False)
        self.known: set[Any] = set()
        self.time = self.behind = 0.0

    def call(self, structure: Any, values: Any, *, fits: Any = None, refused: bool = False) -> None:
        """Make a call; ``fits`` is what its program serves, these very integers by default."""
        about = (structure, values) if fits is None else fits
        self.time += self.eager
        if about in self.known:
            self.hits += 1
        else:
            account, own = self.programs.account(structure, values)
            if not self.programs.worth(account, own):
                self.programs.ran(account, own, self.eager)
            elif refused:
                self.programs.refused(account, own, self.price)
                self.programs.ran(account, own, self.eager)
                self.traces, self.time = self.traces + 1, self.time + self.price
            else:
                before = self.hits
                self.programs.traced(
                    account, own, self.price, served_again=lambda: self.hits > before
                )
                self.traces, self.time = self.traces + 1, self.time + self.price
                self.known.add(about)
        self.calls = getattr(self, "calls", 0) + 1
        self.behind = max(self.behind, self.time - 1.25 * self.calls * self.eager)


def test_the_first_traces_are_made_whatever_they_take() -> None:
    stream = Stream(eager=20.0, price=5000.0)
    for number in range(FIRST):
        stream.call("s", number)
    assert stream.traces == FIRST
    stream.call("s", 7)
    assert stream.traces == FIRST


@pytest.mark.parametrize("eager", [0.005, 1.0, 20.0, 300.0])
@pytest.mark.parametrize("price", [2.0, 30.0, 300.0])
@pytest.mark.parametrize("kind", ["once", "often", "structures", "refused"])
def test_traces_stay_within_the_promise(eager: float, price: float, kind: str) -> None:
    rng, stream = random.Random(0), Stream(eager, price)
    for number in range(3000):
        structure = number if kind == "structures" else "s"
        stream.call(
            structure, rng.randint(0, 40) if kind == "often" else number, refused=kind == "refused"
        )
    assert stream.behind <= 1000.0


def test_traces_that_serve_one_call_become_rare() -> None:
    stream = Stream(eager=1.0, price=10.0)
    for number in range(20_000):
        stream.call("s", number)
    assert FREE < stream.traces <= FREE + 8


def test_sizes_that_come_again_are_traced() -> None:
    stream = Stream(eager=1.0, price=10.0)
    for _ in range(60):
        for number in range(20):
            stream.call("s", number)
    assert stream.traces >= 20


def test_once_a_program_serves_others_the_next_trace_takes_no_more_credit_than_the_first() -> None:
    stream = Stream(eager=1.0, price=10.0)
    for number in range(2000):
        stream.call("s", number)
    traces = stream.traces
    for number in range(20_000):
        stream.call("s", -number - 1, fits="all")
    assert stream.traces == traces + 1, "the trace that serves them all"
    hits = stream.hits
    for number in range(30):
        stream.call("s", ("new", number), fits="others")
    assert stream.hits > hits, "served again: its failures are forgotten"


@pytest.mark.parametrize("refused", [False, True])
def test_structures_share_what_needs_no_credit(refused: bool) -> None:
    stream = Stream(eager=100.0, price=1.0)
    for number in range(1000):
        stream.call(number, 0, refused=refused)
    assert stream.traces <= STRUCTURES * FREE + 10


def test_who_asks_for_every_trace_has_them() -> None:
    stream = Stream(eager=0.1, price=500.0, free=None)
    for number in range(50):
        stream.call("s", number)
    assert stream.traces == 50


def test_a_later_program_is_expected_to_save_what_the_others_have_saved() -> None:
    """Where runners keep accounts.  A batch of one has a program of its own, which would serve an
    eighth of calls.
    """

    def credit(of: Programs) -> float:
        """The share of an eager call that a program of its own is credited."""
        special, _ = of.account("s", 7, special=(0,))
        before = special.wide.credit
        of.ran(special, 7, 13.0)
        return (special.wide.credit - before) / 13.0

    promise = Promise()
    programs = Programs(promise, FREE, accounted=True)
    account, _ = programs.account("s", 7)
    for _ in range(2):
        programs.traced(account, 7, 400.0)
    assert credit(programs) == HOPED
    for _ in range(31):
        promise.call(13.0, 12.0)
    assert credit(programs) == pytest.approx(1 / 13)
    for _ in range(31):
        promise.call(13.0, 14.0)
    assert credit(programs) == 0.0
    assert credit(programs) == 0.0, "calls that run eagerly say nothing of programs"
    for _ in range(200):
        promise.call(13.0, 1.0)
    assert credit(programs) > HOPED
    alone = Programs(promise, FREE, accounted=False)
    alone.traced(alone.account("s", 7)[0], 7, 400.0)
    assert credit(alone) == HOPED


def _no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Programs, "has_room", lambda self, account: True)


def _no_price(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "EARLY", 0.0)


def _no_failures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "DEARER", 1.0)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (_no_room, lambda: test_traces_stay_within_the_promise(0.005, 300.0, "once")),
        (_no_price, test_traces_that_serve_one_call_become_rare),
        (_no_failures, test_traces_that_serve_one_call_become_rare),
    ],
)
def test_a_broken_policy_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check()
