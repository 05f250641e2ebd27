"""When a refused call is tried again: what is new, what is earned, what is remembered."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape import FallbackWarning, UnsupportedError, events
from symshape.runtime import eager_calls as module
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.policy.ledger import DEARER, EARLY
from symshape.runtime.policy.programs import HOPED, LOOKS, TRIES, Programs
from symshape.runtime.policy.promise import Promise
from symshape.runtime.refusals import Refusal

ATTEMPT = 0.1  # seconds
_HAS_ROOM = Programs.has_room  # as it is before the tests' own takes its place


@pytest.fixture(autouse=True)
def the_promise_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Programs, "has_room", _HAS_ROOM)


@attrs.define(eq=False)
class Clock:
    """Seconds that only move when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@attrs.define(eq=False)
class Kept:
    """A state that says whether it has changed, and takes its time."""

    clock: Clock
    same: bool = True
    seconds: float = 0.0
    looks: int = 0
    empty: bool = False

    def unchanged(self) -> bool:
        self.looks += 1
        self.clock.now += self.seconds
        return self.same

    def covers(self, other: Any) -> bool:
        return False

    def changes(self) -> list[str]:
        return []


def fn(x: Any) -> Any:
    return x


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def eager(clock: Clock) -> EagerCalls:
    found = EagerCalls(fn, Programs(Promise(), 16))
    found.clock = clock
    return found


def refuse(
    eager: EagerCalls, structure: Any = "s", values: tuple[int, ...] = (3,), state: Any = None
) -> EagerCall:
    return eager.refused(structure, values, UnsupportedError("no"), ATTEMPT, state=state)


def serve(eager: EagerCalls, call: EagerCall, clock: Clock, seconds: float) -> None:
    with pytest.warns(FallbackWarning) if not eager._warned else pytest.MonkeyPatch.context():
        eager.run(call, lambda: setattr(clock, "now", clock.now + seconds), (), {})


def test_the_same_call_stands_and_other_sizes_are_tried_a_few_times(eager: EagerCalls) -> None:
    for size in range(TRIES):
        assert eager.of_miss("s", (size,)) is None
        refuse(eager, values=(size,))
        found = eager.of_miss("s", (size,))
        assert found is not None
        assert found.untried is False
    found = eager.of_miss("s", (100,))
    assert found is not None, "the next attempt needs credit"
    assert found.untried is True
    assert eager.of_miss("another", (100,)) is None


def test_later_attempts_need_credit(eager: EagerCalls, clock: Clock) -> None:
    for size in range(TRIES):
        call = refuse(eager, values=(size,))
    waited, before, attempts = [], 0.0, 0
    for number in range(40_000):
        serve(eager, call, clock, 0.01)
        if eager.of_miss("s", (1000 + number,)) is None:
            call = refuse(eager, values=(1000 + number,))
            waited.append(clock.now - before)
            before, attempts = clock.now, attempts + 1
    assert attempts >= 2
    for place, seconds in enumerate(waited):
        assert seconds >= EARLY / HOPED * ATTEMPT * DEARER ** (TRIES + place) - 0.02


def test_what_is_tried_is_bounded_for_all_structures(eager: EagerCalls) -> None:
    tried = 0
    for number in range(100):
        if eager.of_miss(number, (1,)) is None:
            refuse(eager, structure=number, values=(1,))
            tried += 1
    assert tried <= 0.9 / ATTEMPT, "the promise has no more room"
    assert eager.of_miss("last", (77,)) is not None


def test_a_changed_state_is_tried_again(eager: EagerCalls, clock: Clock) -> None:
    state = Kept(clock)
    refuse(eager, state=state)
    assert eager.of_miss("s", (3,)) is not None
    state.same = False
    assert eager.of_miss("s", (3,)) is None


def test_looks_at_the_state_take_a_share_of_the_time(eager: EagerCalls, clock: Clock) -> None:
    state = Kept(clock, seconds=0.5)
    call = refuse(eager, state=state)
    eager.remember("key", call)
    for _ in range(1000):
        assert eager.of_call("key") is call
        serve(eager, call, clock, 0.1)
    assert state.looks >= 2
    assert state.looks * state.seconds <= LOOKS * eager.programs.eager / 1e3 + state.seconds


def test_calls_are_remembered_by_key_and_forgotten(eager: EagerCalls) -> None:
    call = refuse(eager)
    eager.remember("key", call)
    assert eager.of_call("key") is call
    assert eager.of_call("other") is None
    eager.forget_calls()
    assert eager.of_call("key") is None


def test_an_untried_call_that_is_remembered_is_tried_once_it_has_credit(
    eager: EagerCalls, clock: Clock
) -> None:
    for size in range(TRIES + 1):
        call = refuse(eager, values=(size,))
    untried = attrs.evolve(call, about=(100,), untried=True)
    eager.remember("untried", untried)
    eager.remember("tried", call)
    assert eager.of_call("untried") is untried
    serve(eager, call, clock, EARLY / HOPED * ATTEMPT * DEARER ** (TRIES + 1) + 1)
    assert eager.of_call("untried") is None
    assert eager.of_call("tried") is call


def test_memory_is_bounded(eager: EagerCalls) -> None:
    for number in range(200):
        call = refuse(eager, structure=number)
    for number in range(3 * module._MOST_CALLS):
        eager.remember(number, call)
    for number in range(3 * module._MOST_VALUES):
        refuse(eager, values=(number,))
    long = eager.refused("long", (), UnsupportedError("x" * 100_000), 1.0, state=None)
    assert len(eager.programs.accounts) <= 65
    assert len(eager.by_call) <= module._MOST_CALLS
    assert all(
        len(each.refusal.values) <= module._MOST_VALUES
        for each in eager.programs.accounts
        if each.refusal
    )
    assert long.refusal is not None
    assert len(long.refusal.reason) <= module._LONGEST


def test_arguments_that_cannot_be_read_are_known_by_their_looks(eager: EagerCalls) -> None:
    sparse, dense = torch.eye(2).to_sparse(), torch.eye(2)
    assert eager.of_unreadable((sparse,), {}) is None
    for _ in range(TRIES + 1):
        call = eager.unreadable((sparse, [1]), {"k": {"a": 1}}, UnsupportedError("sparse"), 0.1)
    assert eager.of_unreadable((sparse, [2]), {"k": {"a": 3}}) is call
    for args, kwargs in (
        ((dense, [1]), {"k": {"a": 1}}),
        ((sparse, [1.0]), {"k": {"a": 1}}),
        ((sparse, (1,)), {"k": {"a": 1}}),
        ((sparse, [1]), {"j": {"a": 1}}),
        ((sparse, [1]), {"k": {"a": None}}),
        ((sparse, [1, 1]), {"k": {"a": 1}}),
    ):
        assert eager.of_unreadable(args, kwargs) is None


def test_what_may_be_the_programs_own_error_is_told_only_if_it_is_not(eager: EagerCalls) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)

    def fails() -> None:
        raise KeyError("own")

    try:
        call = eager.refused("s", (), KeyError("own"), 1.0, state=None)
        with pytest.raises(KeyError):
            eager.run(call, fails, (), {})
        assert not seen
        with pytest.warns(FallbackWarning, match="KeyError while it was traced: 'own'"):
            assert eager.run(call, lambda: 3, (), {}) == 3
        assert [type(each) for each in seen] == [events.RanEagerly]
    finally:
        unsubscribe()
    assert eager.fallbacks == 2


def test_the_first_line_says_what_the_unknown_numbers_are() -> None:
    reason = (
        "the program needs to know whether u0 == 1, but that is known only at run time.\n"
        "  branched at a.py:3 in fn (`if x.any():`)\n"
        "  u0, the bool read by aten::_local_scalar_dense (1 for True), was born at a.py:3; known: "
        "0 <= u0 <= 1"
    )
    assert Refusal(reason, "a.py:3", True).first_line() == (
        "the program needs to know whether u0 == 1, but that is known only at run time: "
        "u0 is the bool read by aten::_local_scalar_dense (1 for True) (at a.py:3)"
    )


def test_the_first_line_says_what_was_taken_for_granted() -> None:
    """Fewer rows than parts that were taken for several each: the program raises what it raises for
    none.
    """
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 6, [2, 4])
    compiled: Any = symshape.compile(lambda x, y: layer(x, y).loss)
    x, y = torch.randn(3, 16), torch.tensor([0, 2, 5])
    with pytest.warns(FallbackWarning, match="took for granted"):
        found = compiled(x, y)
    assert torch.equal(found, layer(x, y).loss)
    assert compiled.stats().fallbacks == 1
    said = compiled.explain_fallback()
    assert (
        "(it took for granted what only data tell: what data select is taken for several elements "
        "here" in said
    )
