"""No stream of calls pays for useless traces for ever: what is free, what is earned, what is tried
again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest
import torch

import symshape
from symshape import FallbackWarning, InputError, Options, UnsupportedError, events
from symshape.runtime.policy.programs import FRUITLESS, GROWN, LOOKS, STRUCTURES, Programs
from symshape.runtime.policy.promise import GRACE, SHARE
from symshape.tracing.state.compare.state import State

FREE = 4
TRACE, CALL = 0.1, 0.01  # seconds


_HAS_ROOM = Programs.has_room  # as it is before the tests' own takes its place


@pytest.fixture(autouse=True)
def the_promise_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Programs, "has_room", _HAS_ROOM)


def pinned(x: torch.Tensor) -> torch.Tensor:
    return x * hash(x.shape[0]) + 1


def branching(x: torch.Tensor) -> torch.Tensor:
    for size in range(210):
        if x.shape[0] == size:
            return x * size
    return x


@attrs.define(eq=False)
class Clock:
    """Moves by what a call takes whenever it is read twice, and by what a trace takes when told."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += CALL
        return self.now


def compiled(
    fn: Callable[..., Any], free: int | None = FREE, trace: float = TRACE, **kwargs: Any
) -> Any:
    """A compiled function whose traces and calls take the same on any machine."""
    found = symshape.compile(fn, options=Options(free_traces=free), **kwargs)
    clock = found._eager.clock = Clock()
    program = found._source.program

    def slow(*args: Any, **others: Any) -> Any:
        clock.now += trace - CALL
        return program(*args, **others)

    found._source.program = slow
    return found


def run(f: Any, sizes: Sequence[int], fn: Callable[..., Any] | None = None) -> None:
    """Calls with these sizes, each compared with eager; warnings are not looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for size in sizes:
            x = torch.arange(float(size * 2)).view(size, 2)
            assert torch.equal(f(x), (fn or f.fn)(x))


@pytest.fixture
def told() -> Iterator[list[events.Event]]:
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    yield seen
    unsubscribe()


@pytest.mark.parametrize("fn", [pinned, branching])
def test_a_stream_of_sizes_that_are_all_fixed_is_traced_a_few_times(fn: Any) -> None:
    f = compiled(fn)
    run(f, range(2, 202))
    stats = f.stats()
    assert FREE < stats.traces <= FREE + 2 + 6, (
        "the free ones, those that tell constants apart, and log2(200 / 4)"
    )
    assert stats.untraced == 200 - stats.traces
    assert (stats.calls, stats.hits, stats.fallbacks) == (200, 0, 0)
    assert f._graphs.promise.spent <= SHARE * f._eager.programs.eager + GRACE + TRACE * 1e3
    traces = stats.traces
    run(f, [2, 3, 4])
    assert f.stats().hits == 3, "known sizes are served by their entries"
    assert f.stats().traces == traces


def test_traces_never_take_more_than_their_share() -> None:
    f = compiled(pinned)
    for size in (*range(2, 40), *range(2, 40)) * 4:
        run(f, [size])
        served = f._eager.programs.eager + f.stats().hits * CALL * 1e3
        assert f._graphs.promise.spent <= SHARE * served + GRACE


def test_sizes_that_come_often_are_traced_after_all() -> None:
    f = compiled(pinned)
    run(f, [*range(2, 22)] * 120)
    assert len(f.entries) >= 20
    before = f.stats()
    run(f, [*range(2, 22)])
    after = f.stats()
    assert after.hits - before.hits == 20
    assert after.untraced == before.untraced


def test_a_program_that_becomes_steady_is_served_again() -> None:
    fixed = [True]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * hash(x.shape[0]) if fixed[0] else x * x.shape[0]

    f = compiled(fn)
    run(f, range(2, 102))
    fixed[0] = False
    run(f, range(102, 402))
    before = f.stats()
    run(f, range(402, 442))
    assert f.stats().hits - before.hits == 40
    assert f.stats().traces == before.traces


def test_state_that_is_another_at_each_call_is_bounded_too() -> None:
    sizes: list[tuple[int, ...]] = [()]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * len(sizes[0])

    f = compiled(fn)
    for step in range(60):
        sizes[0] = (0,) * step
        run(f, [3])
    assert f.stats().traces <= FREE + 8
    assert "traced again: the nearest entry" in f.explain_fallback()


class Reading:
    """A program that reads a text, which no symbol can stand for, and how often programs' states
    were compared.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        self.compared = 0
        unchanged = State.unchanged

        def counted(state: State) -> bool:
            self.compared += 1
            return unchanged(state)

        monkeypatch.setattr(State, "unchanged", counted)
        self.f = compiled(lambda x: x * len(self.text))

    def call(self, text: str, sizes: Sequence[int] = (3,)) -> None:
        """A call in this state."""
        self.text = text
        run(self.f, sizes)

    def never_settles(self, calls: int) -> None:
        """Calls in states that never come again."""
        for number in range(calls):
            self.call(f"{number} of {calls}")


def test_state_that_never_settles_is_hardly_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.never_settles(60)
    before, compared = reading.f.stats(), reading.compared
    reading.never_settles(400)
    after = reading.f.stats()
    looks = 1 + 400 * LOOKS + FRUITLESS * (after.traces - before.traces)
    assert reading.compared - compared <= looks * after.entries
    assert after.untraced - before.untraced >= 380
    assert after.hits == 0


def test_state_that_settles_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.call("a")
    reading.never_settles(101)
    traces = reading.f.stats().traces
    for _ in range(round(1 / LOOKS) + 1):
        reading.call("a")  # a state of which there is a program
    before = reading.f.stats()
    for _ in range(50):
        reading.call("a")
    assert reading.f.stats().hits - before.hits == 50
    assert before.traces == traces
    for _ in range(400):
        reading.call("new")
    before = reading.f.stats()
    for _ in range(50):
        reading.call("new")
    assert reading.f.stats().hits - before.hits == 50


def test_states_that_come_back_in_between_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.call("a")
    for number in range(40):
        before = reading.f.stats().hits
        for _ in range(FRUITLESS - 2):
            reading.call(f"state {number}")
        for _ in range(3):
            reading.call("a")
        assert reading.f.stats().hits - before >= 3, number


def test_structures_without_end_share_what_is_free() -> None:
    def fn(x: torch.Tensor, factor: str) -> torch.Tensor:
        return x * len(factor)

    f = compiled(fn)
    for number in range(80):
        run(lambda x, n=number: f(x, "a" * n), [3], lambda x, n=number: fn(x, "a" * n))
    assert f.stats().traces <= STRUCTURES * FREE + 8
    assert f.stats().untraced > 30


def _append(x: torch.Tensor, held: list[torch.Tensor]) -> torch.Tensor:
    held.append(x.sum())
    return x + len(held)


def test_a_list_among_the_arguments_that_grows_is_not_traced_for_ever() -> None:
    f = compiled(_append, free=16, trace=2 * CALL)
    held: list[torch.Tensor] = []
    twin: list[torch.Tensor] = []
    for number in range(80):
        run(lambda x: f(x, held), [3 + number % 2], lambda x: _append(x, twin))
        assert len(held) == len(twin) == number + 1
    stats = f.stats()
    assert stats.traces <= GROWN + 4
    assert stats.traces + stats.untraced + stats.hits == stats.calls == 80
    assert "a list that grows" in f.report()


def test_lists_of_more_lengths_than_that_are_traced_where_they_come_again() -> None:
    def fn(held: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(held).sum(0)

    f = compiled(fn, free=16, trace=2 * CALL)
    for most in (*range(2, 3 * GROWN), 3 * GROWN):  # one more each time, those before it in between
        for count in (most, most // 2 + 1):
            held = [torch.ones(3)] * count
            assert torch.equal(f(held), fn(held))
    assert f.stats().untraced == 0


def test_the_advice_for_a_list_that_grows_is_about_the_list() -> None:
    f = compiled(_append, free=16, trace=2 * CALL)
    held: list[torch.Tensor] = []
    with pytest.warns(FallbackWarning) as caught:
        results = [f(torch.ones(3), held) for _ in range(80)]
    assert [int(each[0]) for each in results] == list(range(2, 82))
    [text] = [str(each.message) for each in caught if "new containers" in str(each.message)]
    assert "append to such a list outside of the function" in text
    assert "plain number" not in text
    assert len(text) < 1000


def test_it_warns_once_with_the_line_and_what_to_do(told: list[events.Event]) -> None:
    f = compiled(pinned)
    with pytest.warns(FallbackWarning) as caught:
        results = [f(torch.ones(size, 2)) for size in range(2, 20)]
    assert all(
        torch.equal(each, pinned(torch.ones(size, 2))) for size, each in enumerate(results, 2)
    )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    for part in (
        "pinned was traced",
        "x.size(0) == ",
        "test_eager_calls.py",
        "hash(x.shape[0])",
        "free_traces",
        "plain number",
    ):
        assert part in text
    [paused] = [each for each in told if isinstance(each, events.TracingPaused)]
    assert (paused.function, paused.reason) == ("pinned", text.partition("\n")[0])
    assert "hash(x.shape[0])" in paused.place
    assert sum(isinstance(each, events.RanEagerly) for each in told) == f.stats().untraced > 0
    for shown in (f.report(), f.explain_fallback()):
        calls = f.stats().untraced
        assert f"{calls:,} calls ran eagerly since a trace would not pay: pinned was" in shown
        assert "hash(x.shape[0])" in shown
    assert f'symshape_untraced_total{{function="pinned"}} {f.stats().untraced}' in f.metrics()
    [noted] = [each for each in f._cache.history.moments() if each.kind == "fallback"]
    assert "hash(x.shape[0])" in noted.text
    f.reset()
    assert f.stats().untraced == 0
    assert "none fell back" in f.explain_fallback()


def test_calls_of_many_structures_with_one_reason_make_one_line() -> None:
    f = compiled(lambda batch: batch["x"] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for number in range(300):
            f({"x": torch.ones(3), "name": f"picture {number}"})
    waiting = [line for line in f.explain_fallback().splitlines() if "pay for it" in line]
    assert len(waiting) == 1
    assert waiting[0].startswith(
        tuple(f"{calls:,} calls ran eagerly" for calls in range(2, 1 + f.stats().untraced))
    )


@pytest.mark.parametrize(
    ("free", "kwargs"),
    [(None, {}), (FREE, {"fullgraph": True}), (FREE, {"dynamic": False}), (FREE, {"dynamic": {}})],
)
def test_who_asks_for_a_trace_for_every_size_has_one(free: int | None, kwargs: Any) -> None:
    f = compiled(pinned, free, **kwargs)
    run(f, range(2, 26))
    assert (f.stats().traces, f.stats().untraced) == (24, 0)


def test_sizes_marked_static_are_told_apart() -> None:
    f = compiled(pinned)
    for size in range(2, 26):
        x = torch.ones(size, 2)
        torch._dynamo.mark_static(x, 0)
        f(x)
    assert f.stats().traces == 24


def test_entries_that_serve_ranges_are_all_made() -> None:
    """Each of many branches is a guard, and every entry serves the sizes of its range."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for bound in range(10, 110, 10):
            if x.shape[0] < bound:
                return x + bound
        return x

    f = compiled(fn)
    run(f, [*range(2, 100)] * 8)
    assert len(f.entries) >= 10
    before = f.stats()
    run(f, [*range(2, 100)])
    assert f.stats().hits - before.hits == 98


def test_errors_and_effects_are_eager_s_and_happen_once() -> None:
    seen: list[int] = []

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            seen.append(1)
            if x.shape[0] == 77:
                raise KeyError("seventy-seven")
            return x * hash(x.shape[0])

    module = Counting()
    f = symshape.compile(module, options=Options(free_traces=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for size in range(2, 30):
            f(torch.ones(size))
        assert (module.calls, len(seen)) == (28, 28)
        with pytest.raises(KeyError, match="seventy-seven"):
            f(torch.ones(77))
    assert (module.calls, len(seen)) == (29, 29)


def test_verified_calls_too() -> None:
    f = symshape.compile(pinned, options=Options(free_traces=FREE, verify=1.0))
    run(f, range(2, 42))
    assert f.stats().untraced > 20
    assert f.stats().calls == 40


def test_the_option_is_checked() -> None:
    for wrong in (0, -1, 1.5, True):
        with pytest.raises((InputError, UnsupportedError), match="free_traces"):
            Options(free_traces=wrong)  # type: ignore[arg-type]
