"""When the function itself serves calls, since it is faster: by a clock of the tests' own."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape
from symshape import Options
from symshape.runtime import eager_or_program
from symshape.runtime.cache import EntryCache
from symshape.runtime.eager_or_program import EagerOrProgram, may_run_eagerly
from symshape.runtime.trials import EVERY, PAIRS, REST, Times, Verdict

_NOW_AND_THEN = EagerOrProgram.now_and_then  # as it is before the tests' own takes its place


@pytest.fixture(autouse=True)
def trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagerOrProgram, "now_and_then", _NOW_AND_THEN)


class Clock:
    """Time passes where somebody says so.  Units: s."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class World:
    """A function and what is compiled from it: both take the time that they are told to."""

    def __init__(
        self, clock: Clock, plain: Callable[[], float], programs: Callable[[], float]
    ) -> None:
        self.clock, self.costs = clock, {"plain": plain, "programs": programs}
        self.ran: list[str] = []
        self.traces = 0
        self.cache = EntryCache(8, 8)
        self.of = EagerOrProgram(self.fn, self.cache, wanted=True)

    def fn(self, *args: Any) -> Any:
        return self._run("plain", *args)

    def _run(self, who: str, *args: Any) -> Any:
        self.ran.append(who)
        self.clock.now += self.costs[who]()
        return args

    def __call__(self, *args: Any) -> Any:
        """As ``Compiled.__call__`` does it."""
        self.cache.clock = tick = self.cache.clock + 1
        if tick < self.cache.plain_until:
            return self.cache.plain(*args)
        if not tick % EVERY:
            self.of.now_and_then(self, self.traces)
        return self._run("programs", *args)

    def calls(self, count: int) -> list[str]:
        """Who served these calls."""
        before = len(self.ran)
        for number in range(count):
            assert self(number) == (number,)
        return self.ran[before:]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(eager_or_program, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


def test_what_is_faster_serves(clock: Clock) -> None:
    world = World(clock, lambda: 3e-6, lambda: 5e-6)
    assert set(world.calls(EVERY)) == {"programs"}
    assert sorted(world.calls(2 * PAIRS)) == ["plain"] * PAIRS + ["programs"] * PAIRS
    assert world.of.verdict == Verdict(pytest.approx(3), pytest.approx(5), True)
    assert set(world.calls(REST - 2 * EVERY)) == {"plain"}
    assert world.of.calls == PAIRS + REST - 2 * EVERY == world.ran.count("plain")
    assert "3 µs a call, its programs 5 µs" in world.of.lines()[0]


def test_it_is_tried_again_and_again_after_longer(clock: Clock) -> None:
    costs = {"plain": 3e-6, "programs": 5e-6}
    world = World(clock, lambda: costs["plain"], lambda: costs["programs"])
    world.calls(EVERY + 2 * PAIRS)
    costs["programs"] = 2e-6
    served = world.calls(REST + EVERY)
    assert served[-1] == "programs"
    assert world.of.verdict is not None
    assert not world.of.verdict.faster
    assert world.of.calls == world.ran.count("plain")
    assert not world.of.lines()
    assert set(world.calls(REST - EVERY)) == {"programs"}
    costs["programs"] = 9e-6
    assert set(world.calls(2 * REST)[-EVERY:]) == {"plain"}
    assert set(world.calls(10 * REST)) == {"plain"}
    assert world.of.calls == world.ran.count("plain")


def test_what_is_hardly_faster_does_not_serve(clock: Clock) -> None:
    world = World(clock, lambda: 9.8e-6, lambda: 10e-6)
    assert world.calls(4 * EVERY).count("plain") == PAIRS
    assert world.of.verdict is not None
    assert not world.of.verdict.faster


@pytest.mark.parametrize(
    "sizes", [(1, 9), (1, 2, 3), (5, 1, 1, 9), (1, 2, 3, 4, 5, 9), (1, 1, 1, 1, 1, 1, 1, 9)]
)
def test_sizes_that_come_in_turns_favour_nobody(clock: Clock, sizes: tuple[int, ...]) -> None:
    size = cycle(sizes)
    here = [0]

    def cost() -> float:
        return here[0] * 1e-6

    world = World(clock, cost, cost)
    for _ in range(4 * EVERY):
        here[0] = next(size)
        world.calls(1)
    assert world.of.verdict is not None
    assert not world.of.verdict.faster


def test_one_slow_call_decides_nothing(clock: Clock) -> None:
    slow = iter([1.0])
    world = World(
        clock, lambda: 5e-6, lambda: next(slow, 5e-6) if len(world.ran) > EVERY + 5 else 5e-6
    )
    world.calls(4 * EVERY)
    assert world.of.verdict is not None
    assert not world.of.verdict.faster


def test_a_trial_waits_until_nothing_is_traced(clock: Clock) -> None:
    world = World(clock, lambda: 3e-6, lambda: 5e-6)
    for _ in range(5):
        world.traces += 1
        assert set(world.calls(EVERY)) == {"programs"}
    world.calls(EVERY)
    assert "plain" not in world.ran
    assert "plain" in world.calls(EVERY)


def test_an_error_ends_a_trial(clock: Clock) -> None:
    world = World(clock, lambda: 3e-6, lambda: 5e-6)
    world.calls(EVERY + 1)

    def wrong() -> float:
        raise ValueError("of the user's")

    world.costs = dict.fromkeys(world.costs, wrong)
    with pytest.raises(ValueError, match="of the user's"):
        world(0)
    world.costs = dict.fromkeys(world.costs, lambda: 1e-6)
    assert set(world.calls(4 * EVERY)) == {"programs"}
    assert world.of.verdict is None


def test_a_function_that_calls_itself(clock: Clock) -> None:
    world = World(clock, lambda: 3e-6, lambda: 5e-6)
    depth = [0]

    def deeper() -> float:
        depth[0] += 1
        if depth[0] % 4:
            world(0)
        return 1e-6

    world.costs = dict.fromkeys(world.costs, deeper)
    for _ in range(4 * EVERY):
        depth[0] = 0
        assert world(7) == (7,)


def test_whoever_forgets_is_not_told(clock: Clock) -> None:
    world = World(clock, lambda: 3e-6, lambda: 5e-6)
    world.calls(EVERY + 2 * PAIRS - 1)

    def forgets() -> float:
        world.of.clear()
        return 1e-6

    world.costs = dict.fromkeys(world.costs, forgets)
    world.calls(1)
    assert world.of.verdict is None
    assert world.cache.plain_until == 0
    assert world.of.calls == 0


@pytest.mark.parametrize(
    "options",
    [
        Options(plain_calls=False),
        Options(on_miss="error", store="nowhere"),
        Options(outputs="borrow"),
        Options(verify=0.1),
    ],
)
def test_options_that_say_what_runs(options: Options) -> None:
    assert may_run_eagerly(Options())
    assert not may_run_eagerly(options)


def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Verdict(1.0, 2.0, True)
    monkeypatch.setattr(Times, "verdict", lambda self: found)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _served(compiled: Any, count: int = 200) -> int:
    for number in range(count):
        x = torch.randn(number % 7, 3)
        assert torch.equal(compiled(x), x * 2)
    return int(compiled.stats().plain)


def _sparse(compiled: Any) -> None:
    for _ in range(200):
        assert torch.equal(compiled(torch.eye(3).to_sparse()), torch.eye(3) * 2)


def test_a_compiled_function(monkeypatch: pytest.MonkeyPatch) -> None:
    _always(monkeypatch)
    compiled: Any = symshape.compile(_double)
    assert _served(compiled) == 200 - 3 * EVERY + 1 + PAIRS - 1
    stats = compiled.stats()
    assert stats.calls == 200 == stats.hits + stats.traces + stats.plain
    assert "ran eagerly, which is faster here: 1 µs a call" in compiled.report()
    assert 'symshape_plain_total{function="_double"}' in compiled.metrics()
    compiled.reset()
    assert compiled.stats().plain == 0
    assert "faster here" not in compiled.report()
    assert _served(compiled) > 0


@pytest.mark.parametrize(
    "asked",
    [{"runner": "eager"}, {"fullgraph": True}, {"options": Options(plain_calls=False)}],
    ids=str,
)
def test_where_programs_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    _always(monkeypatch)
    assert _served(symshape.compile(_double, **asked)) == 0


def test_a_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    _always(monkeypatch)

    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("sum", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.sum += x.sum()
            return x * 2

    module = Counts()
    compiled = symshape.compile(module)
    expected = torch.zeros(())
    for number in range(200):
        x = torch.ones(number % 5, 3)
        expected += x.sum()
        assert torch.equal(compiled(x), x * 2)
    assert module.calls == 200
    assert torch.equal(module.sum, expected)
    assert symshape.compiled_of(compiled).stats().plain > 0


def test_what_is_refused_runs_without_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    _always(monkeypatch)
    compiled: Any = symshape.compile(lambda x: x.to_dense() * 2)
    with pytest.warns(symshape.FallbackWarning):
        _sparse(compiled)
    assert compiled.stats().plain > 0
    assert compiled.stats().traces == 0


class TestOtherDevices:
    """Where there is another device, only programs of the CPU alone are timed by the host."""

    @pytest.fixture(autouse=True)
    def there_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _always(monkeypatch)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)

    def test_programs_of_the_cpu(self) -> None:
        assert _served(symshape.compile(_double)) > 0

    def test_others(self) -> None:
        compiled: Any = symshape.compile(lambda x: (x * 2, torch.ones(2, device="meta")))
        for _ in range(200):
            compiled(torch.ones(3))
        assert compiled.stats().plain == 0
        assert compiled.stats().traces == 1

    def test_none_that_could_be_looked_at(self) -> None:
        compiled: Any = symshape.compile(lambda x: x.to_dense() * 2)
        with pytest.warns(symshape.FallbackWarning):
            _sparse(compiled)
        assert compiled.stats().plain == 0


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    _always(monkeypatch)
    compiled: Any = symshape.compile(_double)
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(_served, compiled) for _ in range(4)]:
            each.result()


@pytest.mark.parametrize(("share", "faster"), [(0.88, True), (1.0, False), (1.15, False)])
def test_calls_of_like_sizes_are_compared(clock: Clock, share: float, faster: bool) -> None:
    """Sizes differ by much more than the two ways do, and so neighbours tell nothing."""
    drawn = random.Random(0)
    sizes = [drawn.randint(10, 1000) for _ in range(4 * EVERY)]
    now = [0]
    world = World(clock, lambda: share * (now[0] + 20) * 1e-6, lambda: (now[0] + 20) * 1e-6)
    for size in sizes:
        now[0] = size
        world(torch.empty(size))
    assert world.of.verdict is not None
    assert world.of.verdict.faster is faster


def _another_way(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.compiler.is_compiling() else x * 3


@pytest.mark.parametrize("stored", [False, True])
def test_what_takes_another_way_in_a_trace_runs_by_its_programs(
    stored: bool, tmp_path: Path
) -> None:
    """Else the results of the two ways would take turns."""
    x = torch.ones(3)
    store = tmp_path if stored else None
    for _ in range(1 + stored):
        compiled = symshape.compile(_another_way, store=store)
        for _ in range(3 * EVERY + 4 * PAIRS):
            assert compiled(x)[0] == 2
        assert compiled.stats().plain == 0
    assert compiled.stats().loaded == stored


def test_such_a_function_is_named_by_verify() -> None:
    compiled = symshape.compile(_another_way, options=Options(verify=1.0))
    with pytest.raises(symshape.VerificationError, match="is_compiling"):
        compiled(torch.ones(3))
