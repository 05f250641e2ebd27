"""An interrupt at any moment of a first call, a subscriber that raises, ``reset()`` under 16
threads: nothing breaks.

The oracle is eager; an interrupt is raised at a step of the program while it is traced, of what
traces it, or of the store, by its number.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from tests.interrupts import ENTERED, Interrupt, World, others_may_trace, steps_of
from tests.symshape.store.storing import compiled, counts, entries

SCALE = 1.5
_WHERE = (__name__, "torch.nn", "symshape", *ENTERED)
"""Modules at whose steps an interrupt comes."""


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.k = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            shifted = x + 1
        y = torch.relu(self.inner(x)) * self.k * SCALE + shifted
        return y if x.shape[0] > 3 else y + 1


class _Counting(_Model):
    """The same, and it writes, which no store keeps, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        return torch.nn.functional.dropout(super().forward(x), 0.25)


def _whole(fn: Any, model: Any) -> None:
    for n in (5, 2, 7, 1):
        x = torch.randn(n, 4)
        torch.testing.assert_close(fn(x), model(x))
    numbers = [entry.number for entry in fn.entries]
    assert len(numbers) == len(set(numbers)) == fn.stats().entries == 2


_LOST = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt in what runs when an object dies is told and lost, in Python."""
_SOME = (1, 3, 4, 6, 7)
_ALL = pytest.param(range(1, 301), marks=pytest.mark.nightly, id="all")


@pytest.mark.slow
@_LOST
@pytest.mark.parametrize("parts", [pytest.param(_SOME, id="some"), _ALL])
@pytest.mark.parametrize("what", ["trace", "load"])
def test_an_interrupt_at_any_moment(what: str, parts: Sequence[int], tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    if what == "load":
        compiled(_Model(), tmp_path)(x)
    forward = _Model.forward.__code__
    folder = tmp_path if what == "load" else tmp_path / "first"
    compiled(_Model(), tmp_path / "warm")(x)  # what is imported or made once
    fn = compiled(_Model(), folder)
    number = steps_of(lambda: fn(x), _WHERE)
    assert number > 400
    interrupted = 0
    for part in parts:
        folder = tmp_path if what == "load" else tmp_path / str(part)
        model = _Model()
        fn = compiled(model, folder)
        interrupt = Interrupt(number * part // (len(parts) + 3), _WHERE)
        try:
            interrupt.of(lambda fn=fn: fn(x))
        except KeyboardInterrupt:
            interrupted += 1
        assert _Model.forward.__code__ is forward
        assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        assert others_may_trace()
        _whole(fn, model)
        again = compiled(_Model(), folder)  # what is stored is whole, too
        torch.testing.assert_close(again(x), again.fn(x))
        assert counts(again) == (0, 1)
    assert interrupted > len(parts) // 2


@pytest.mark.slow
@_LOST
@pytest.mark.parametrize("parts", [pytest.param((2, 4, 6), id="some"), _ALL])
def test_the_world_is_as_it_was(parts: Sequence[int]) -> None:
    x = torch.randn(5, 4)

    def made() -> tuple[_Counting, Any]:
        model = _Counting()
        return model, symshape.compile(model, dynamic=True, fullgraph=True)

    for _ in range(2):  # what is imported or made once
        before = World()
        _, fn = made()
        fn(x)
    may_change = set(World().differences(before))
    _, fn = made()
    number = steps_of(lambda: fn(x), _WHERE)
    assert number > 1000
    interrupted = 0
    for part in parts:
        model, fn = made()
        before = World()
        interrupt = Interrupt(number * part // (max(parts) + 2), _WHERE)
        changed, state, where = set[str](), (0, list[int]()), ""
        try:
            interrupt.of(lambda fn=fn: fn(x))
        except KeyboardInterrupt as error:  # its traceback is still there
            interrupted += 1
            changed, state, where = (
                set(World().differences(before)),
                (model.calls, list(model.seen)),
                str(error),
            )
        assert not changed - may_change, f"left changed by an interrupt at {where}"
        assert state == (0, []), f"written by a call with an interrupt at {where}"
        calls = model.calls
        for n in (5, 2):
            torch.manual_seed(n)
            result = fn(x[:n])
            torch.manual_seed(n)
            torch.testing.assert_close(result, _Counting.forward(model, x[:n]))
        assert model.seen == list(range(1, calls + 5))
    assert interrupted > len(parts) // 2


@pytest.mark.parametrize("kind", [events.Stored, events.Loaded, events.Traced])
def test_a_subscriber_that_raises(kind: type[events.Event], tmp_path: Path) -> None:
    def hear(event: events.Event) -> None:
        if type(event) is kind:
            raise ValueError("a subscriber's own")

    x, model = torch.randn(5, 4), _Model()
    if kind is events.Loaded:
        compiled(_Model(), tmp_path)(x)
    fn = compiled(model, tmp_path)
    unsubscribe = events.subscribe(hear)
    try:
        with pytest.raises(Exception, match="a subscriber's own"):
            fn(x)
    finally:
        unsubscribe()
    _whole(fn, model)


def test_reset_while_sixteen_threads_call(tmp_path: Path) -> None:
    model = _Model()
    compiled(model, tmp_path)(torch.randn(5, 4))
    fn = compiled(model, tmp_path)
    problems: list[BaseException] = []
    start = threading.Barrier(16)

    def work(seed: int) -> None:
        try:
            start.wait(60)
            for n in range(12):
                x = torch.full(((n * seed) % 7, 4), float(n))
                torch.testing.assert_close(fn(x), model(x))
                if seed == 0 and n % 3 == 0:
                    fn.reset()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not problems
    fn.reset()
    _whole(fn, model)
    assert counts(fn) == (0, 2)  # what they traced is stored
    assert len(entries(tmp_path)) == 2


def test_on_miss_error_under_threads(tmp_path: Path) -> None:
    """Some sizes are served and some raise, in all threads, and nothing is traced."""

    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4) * SCALE

    compiled(rows, tmp_path)(torch.ones(8))
    fn = compiled(rows, tmp_path, options={"on_miss": "error"})
    problems: list[Any] = []

    def work(seed: int) -> None:
        for n in range(seed, seed + 6):
            try:
                if not torch.equal(fn(torch.ones(n)), rows(torch.ones(n))):
                    problems.append(n)
            except symshape.MissError:
                if n % 4 == 0:
                    problems.append(n)
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not problems
    assert counts(fn) == (0, 1)
