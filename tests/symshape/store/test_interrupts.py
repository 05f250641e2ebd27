"""An interrupt at any moment of a first call, a subscriber that raises, ``reset()`` under 16 threads: nothing breaks.

The oracle is eager; an interrupt is raised at a function call of the program while it is traced, or of the store's, by
its number.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from tests.symshape.store.storing import compiled, counts, entries

SCALE = 1.5
_WHERE = (__name__, "torch.nn", "symshape.store")
"""Modules at whose function calls an interrupt comes.  (What enters and leaves torch's modes is not among them: an
interrupt in the midst of that leaves the mode as it is, as with any of torch's own.)"""


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.k = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.inner(x)) * self.k * SCALE
        return y if x.shape[0] > 3 else y + 1


class _Interrupt:
    """Raises KeyboardInterrupt at the function call with a number, counted from the start of a ``with``."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.raised = False

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if event != "call" or not str(frame.f_globals.get("__name__")).startswith(_WHERE):
            return
        self.left -= 1
        if self.left == 0:
            self.raised = True
            sys.setprofile(None)
            raise KeyboardInterrupt

    def of(self, call: Callable[[], Any]) -> Any:
        sys.setprofile(self)
        try:
            return call()
        finally:
            sys.setprofile(None)


def _calls(call: Callable[[], Any]) -> int:
    """How many function calls something takes."""
    counting = _Interrupt(10**9)
    counting.of(call)
    return 10**9 - counting.left


def _whole(fn: Any, model: Any) -> None:
    for n in (5, 2, 7, 1):
        x = torch.randn(n, 4)
        torch.testing.assert_close(fn(x), model(x))
    numbers = [entry.number for entry in fn.entries]
    assert len(numbers) == len(set(numbers)) == fn.stats().entries == 2


@pytest.mark.parametrize("what", ["trace", "load"])
def test_an_interrupt_at_any_moment(what: str, tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    if what == "load":
        compiled(_Model(), tmp_path)(x)
    forward = _Model.forward.__code__
    folder = tmp_path if what == "load" else tmp_path / "first"
    compiled(_Model(), tmp_path / "warm")(x)  # what is imported or made once
    fn = compiled(_Model(), folder)
    number = _calls(lambda: fn(x))
    assert number > 40
    interrupted = 0
    for part in range(1, 9):
        folder = tmp_path if what == "load" else tmp_path / str(part)
        model = _Model()
        fn = compiled(model, folder)
        interrupt = _Interrupt(number * part // 9)
        try:
            interrupt.of(lambda fn=fn: fn(x))
        except KeyboardInterrupt:
            interrupted += 1
        assert _Model.forward.__code__ is forward
        assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        _whole(fn, model)
        again = compiled(_Model(), folder)  # what is stored is whole, too
        torch.testing.assert_close(again(x), again.fn(x))
        assert counts(again) == (0, 1)
    assert interrupted > 5


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
