"""What becomes of a whole program one way: with symshape.compile, or with torch.compile and a
backend.
"""

from __future__ import annotations

import functools
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch

import symshape
from tests.symshape.everyday.whole.program import PROGRAMS, SHAPES, Run, difference, run

OURS = "symshape"
"""The way that is not a backend of torch.compile."""
_ROUNDS = 15
_BEFORE = 20  # rounds that are not measured
_SECONDS = 1.5  # for the warm calls of one program one way, eager's among them


@attrs.define
class Row:
    """What became of a program one way.

    Attributes:
        outcome: right, ``as eager`` (right, but a call ran as it is, or a graph was broken), wrong,
            refused, slow.
        detail: why, in words.
        programs: traces, or graphs of Dynamo's.
        calls: that ran as they are; breaks of Dynamo's graphs.
        first: seconds of the six calls at six shapes, with all that they compile.
        warm: the median of the warm calls over that of eager's, in turn with them.
    """

    outcome: str
    detail: str = ""
    programs: int = 0
    calls: int = 0
    first: float | None = None
    warm: float | None = None

    def text(self) -> str:
        """For a line of progress."""
        times = (
            ""
            if self.first is None or self.warm is None
            else f", {self.first:.1f} s, warm {self.warm:.2f}"
        )
        return f"{self.outcome} ({self.programs} programs{times}) {self.detail[:150]}".strip()


class _Slow(BaseException):
    """The time for a program is over; no ``except Exception`` of anybody's catches it."""


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judged(name: str, way: str, limit: int) -> Row:
    """Runs a program one way, its results held to eager's, then warm calls."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    row = Row("refused")
    compile_: Callable[[Any], Any] = (
        symshape.compile
        if way == OURS
        else functools.partial(torch.compile, backend=way, dynamic=True)
    )
    try:
        with _within(limit):
            eager = run(name, lambda fn: fn)
            start = time.perf_counter()
            found = run(name, compile_)
            row.first = time.perf_counter() - start
            row.detail = difference(found, eager)[:300]
            row.outcome = "wrong" if row.detail else "right"
            _count(row, found, way)
            row.warm = _warm(name, compile_)
    except _Slow:
        row.outcome = "slow" if row.first is None else row.outcome
        row.detail = row.detail or f"longer than {limit} s"
    except Exception as error:
        row.detail = f"{type(error).__name__}: {error}"[:300]
    return row


def _count(row: Row, found: Run, way: str) -> None:
    if way == OURS:
        compiled = found.compiled
        compiled = (
            symshape.compiled_of(compiled) if isinstance(compiled, torch.nn.Module) else compiled
        )
        stats = compiled.stats()
        row.programs, row.calls = stats.traces, stats.fallbacks
        why = compiled.explain_fallback() if stats.fallbacks else ""
    else:
        counted: Any = torch._dynamo.utils.counters
        row.programs, row.calls = (
            counted["stats"]["unique_graphs"],
            sum(counted["graph_break"].values()),
        )
        why = "; ".join(each.splitlines()[0] for each in counted["graph_break"])
    if row.outcome == "right" and row.calls:
        row.outcome, row.detail = "as eager", why[:300]


def _warm(name: str, compile_: Callable[[Any], Any]) -> float:
    """The median of warm calls over that of eager's: in turn, each on a program of its own, at the
    shapes of before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        plain, make = PROGRAMS[name]()
        torch.manual_seed(0)
        fn, _ = PROGRAMS[name]()
        sides: tuple[tuple[Any, list[float]], ...] = ((compile_(fn), []), (plain, []))
        until = time.perf_counter() + _SECONDS
        # what still has to be made, and what is tried
        for number, shape in enumerate(SHAPES * _BEFORE):
            if number >= 2 * len(SHAPES) and time.perf_counter() > until:
                break
            for each, _ in sides:
                each(*make(*shape))
        until = time.perf_counter() + _SECONDS
        for _ in range(_ROUNDS):
            for shape in SHAPES:
                for each, times in sides:
                    args = make(*shape)
                    start = time.perf_counter()
                    each(*args)
                    times.append(time.perf_counter() - start)
            if time.perf_counter() > until:
                break
        return statistics.median(sides[0][1]) / statistics.median(sides[1][1])
