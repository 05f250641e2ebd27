"""When a refused call is tried again: what is new, what is earned, what is remembered."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape import FallbackWarning, UnsupportedError, events
from symshape.runtime import refusals as module
from symshape.runtime.refusals import FREE, FREE_IN_ALL, SHARE, Refusal, Refusals


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
def refusals(clock: Clock) -> Refusals:
    return Refusals(fn, clock=clock)


def refuse(refusals: Refusals, structure: Any = "s", values: tuple[int, ...] = (3,), state: Any = None) -> Refusal:
    return refusals.add(structure, values, UnsupportedError("no"), 1.0, state=state)


def serve(refusals: Refusals, refusal: Refusal, clock: Clock, seconds: float) -> None:
    with pytest.warns(FallbackWarning) if not refusals._warned else pytest.MonkeyPatch.context():  # type: ignore[attr-defined]
        refusals.run(refusal, lambda: setattr(clock, "now", clock.now + seconds), (), {})


def test_the_same_call_stands_and_other_sizes_are_free_a_few_times(refusals: Refusals) -> None:
    for size in range(FREE):
        assert refusals.of_structure("s", (size,)) is None
        refuse(refusals, values=(size,))
        found = refusals.of_structure("s", (size,))
        assert found is not None
        assert found[1] is False
    found = refusals.of_structure("s", (100,))
    assert found is not None, "no more attempts are free"
    assert found[1] is True
    assert refusals.of_structure("another", (100,)) is None


def test_later_attempts_are_earned(refusals: Refusals, clock: Clock) -> None:
    for size in range(FREE):
        refusal = refuse(refusals, values=(size,))
    attempts = 0
    for call in range(4000):
        serve(refusals, refusal, clock, 0.1)
        if refusals.of_structure("s", (1000 + call,)) is None:
            refusal = refuse(refusals, values=(1000 + call,))  # takes a second, says refuse()
            attempts += 1
    assert attempts > 5
    assert attempts <= SHARE * refusals.served + 1


def test_what_is_free_is_bounded_for_all_structures(refusals: Refusals) -> None:
    for number in range(FREE_IN_ALL):
        refuse(refusals, structure=number)
    refuse(refusals, structure="last")
    assert refusals.of_structure("last", (77,)) is not None


def test_a_changed_state_is_tried_again(refusals: Refusals, clock: Clock) -> None:
    state = Kept(clock)
    refuse(refusals, state=state)
    assert refusals.of_structure("s", (3,)) is not None
    state.same = False
    assert refusals.of_structure("s", (3,)) is None


def test_looks_at_the_state_are_earned(refusals: Refusals, clock: Clock) -> None:
    state = Kept(clock, seconds=0.5)
    refusal = refuse(refusals, state=state)
    refusals.remember("key", refusal, False)
    for _ in range(1000):
        assert refusals.of_call("key") is refusal
        serve(refusals, refusal, clock, 0.1)
    assert state.looks >= 2
    assert state.looks * state.seconds <= SHARE * refusals.served + state.seconds


def test_calls_are_remembered_by_key_and_forgotten(refusals: Refusals) -> None:
    refusal = refuse(refusals)
    refusals.remember("key", refusal, False)
    assert refusals.of_call("key") is refusal
    assert refusals.of_call("other") is None
    refusals.forget_calls()
    assert refusals.of_call("key") is None


def test_an_untried_call_that_is_remembered_is_tried_once_it_is_earned(refusals: Refusals, clock: Clock) -> None:
    for size in range(FREE + 1):
        refusal = refuse(refusals, values=(size,))
    refusals.remember("untried", refusal, True)
    refusals.remember("tried", refusal, False)
    assert refusals.of_call("untried") is refusal
    serve(refusals, refusal, clock, 1.0 / SHARE + 1)
    assert refusals.of_call("untried") is None
    assert refusals.of_call("tried") is refusal


def test_memory_is_bounded(refusals: Refusals) -> None:
    for number in range(3 * module._MOST):
        refusal = refuse(refusals, structure=number)
    for number in range(3 * module._MOST_CALLS):
        refusals.remember(number, refusal, False)
    for number in range(3 * module._MOST_VALUES):
        refuse(refusals, values=(number,))
    long = refusals.add("long", (), UnsupportedError("x" * 100_000), 1.0, state=None)
    assert len(refusals._by_structure) <= module._MOST
    assert len(refusals.by_call) <= module._MOST_CALLS
    assert all(len(each.values) <= module._MOST_VALUES for each in refusals._by_structure.values())
    assert len(long.reason) <= module._LONGEST


def test_arguments_that_cannot_be_read_are_known_by_their_looks(refusals: Refusals) -> None:
    sparse, dense = torch.eye(2).to_sparse(), torch.eye(2)
    assert refusals.of_unreadable((sparse,), {}) is None
    refusal = refusals.add_unreadable((sparse, [1]), {"k": {"a": 1}}, UnsupportedError("sparse"), 1.0)
    for _ in range(FREE):
        refusal = refusals.add_unreadable((sparse, [1]), {"k": {"a": 1}}, UnsupportedError("sparse"), 1.0)
    assert refusals.of_unreadable((sparse, [2]), {"k": {"a": 3}}) is refusal
    for args, kwargs in (
        ((dense, [1]), {"k": {"a": 1}}),
        ((sparse, [1.0]), {"k": {"a": 1}}),
        ((sparse, (1,)), {"k": {"a": 1}}),
        ((sparse, [1]), {"j": {"a": 1}}),
        ((sparse, [1]), {"k": {"a": None}}),
        ((sparse, [1, 1]), {"k": {"a": 1}}),
    ):
        assert refusals.of_unreadable(args, kwargs) is None


def test_what_may_be_the_programs_own_error_is_told_only_if_it_is_not(refusals: Refusals) -> None:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)

    def fails() -> None:
        raise KeyError("own")

    try:
        refusal = refusals.add("s", (), KeyError("own"), 1.0, state=None)
        with pytest.raises(KeyError):
            refusals.run(refusal, fails, (), {})
        assert not seen
        with pytest.warns(FallbackWarning, match="KeyError while it was traced: 'own'"):
            assert refusals.run(refusal, lambda: 3, (), {}) == 3
        assert [type(each) for each in seen] == [events.RanEagerly]
    finally:
        unsubscribe()
    assert refusals.fallbacks == 2


def test_the_first_line_says_what_the_unknown_numbers_are() -> None:
    reason = (
        "the program needs to know whether u0 == 1, but that is known only at run time.\n"
        "  branched at a.py:3 in fn (`if x.any():`)\n"
        "  u0, the bool read by aten::_local_scalar_dense (1 for True), was born at a.py:3; known: 0 <= u0 <= 1"
    )
    assert Refusal(reason, "a.py:3", True).first_line() == (
        "the program needs to know whether u0 == 1, but that is known only at run time: "
        "u0 is the bool read by aten::_local_scalar_dense (1 for True) (at a.py:3)"
    )


def test_the_first_line_says_what_was_taken_for_granted() -> None:
    """Fewer rows than parts that were taken for several each: the program raises what it raises for none."""
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 6, [2, 4])
    compiled: Any = symshape.compile(lambda x, y: layer(x, y).loss)
    x, y = torch.randn(3, 16), torch.tensor([0, 2, 5])
    with pytest.warns(FallbackWarning, match="took for granted"):
        found = compiled(x, y)
    assert torch.equal(found, layer(x, y).loss)
    assert compiled.stats().fallbacks == 1
    said = compiled.explain_fallback()
    assert "(it took for granted what only data tell: what data select is taken for several elements here" in said
