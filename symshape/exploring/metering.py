"""A stream of calls through several ways of running one model, side by side, every result compared
with eager's.

All are measured alike.  The time *inside* is what the compiled graph itself takes, measured by a
wrapper around it; *dispatch* is the rest of the call on the host: arguments, guards, the look-up,
building the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from symshape import events
from symshape.calls.naming import brief
from symshape.runtime.runners.protocol import Runner
from symshape.torch_internals import pytree

Arguments = Mapping[str, torch.Tensor]


class Meter:
    """The runs of the graphs of one way of running: how many were compiled, how often they ran, for
    how long (ns).
    """

    __slots__ = ("compiles", "inside_ns", "runs")

    def __init__(self) -> None:
        self.compiles = 0
        self.runs = 0
        self.inside_ns = 0

    def metered(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``run`` with its time and its runs counted."""

        def timed(*args: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return run(*args)
            finally:
                self.inside_ns += time.perf_counter_ns() - start
                self.runs += 1

        return timed


class MeteredRunner:
    """A runner of an entry with its runs metered; all else is the runner's own.

    Attributes:
        run: the metered run.
    """

    def __init__(self, runner: Runner, meter: Meter) -> None:
        self.run = meter.metered(runner.run)
        self.release = runner.release
        self.describe = runner.describe


@attrs.frozen
class CallRecord:
    """One call.

    Attributes:
        sizes: of the first argument.
        again: whether these sizes came before in the stream.
        compiled: whether the call compiled something.
        fell_back: whether it ran eagerly, without any compiled graph.
        host_us: until the call returned, in µs.
        inside_us: inside compiled graphs, in µs.
        total_us: until the result was there (on CUDA: with the device synchronised), in µs.
        problem: how the result differs from eager's; empty if it does not.
    """

    sizes: tuple[int, ...]
    again: bool
    compiled: bool
    fell_back: bool
    host_us: float
    inside_us: float
    total_us: float
    problem: str

    @property
    def dispatch_us(self) -> float:
        """The host's time outside compiled graphs, in µs."""
        return self.host_us - self.inside_us


class Lane:
    """One way of running the model: call it, and read what its graphs did from ``meter``."""

    def __init__(self, name: str, fn: Callable[..., Any], meter: Meter) -> None:
        self.name = name
        self.fn = fn
        self.meter = meter
        self.records: list[CallRecord] = []

    def call(self, arguments: Arguments) -> Any:
        """Return the result of one call."""
        return self.fn(**arguments)

    def settle(self) -> None:
        """Meter new graphs after a call."""

    @property
    def fallbacks(self) -> list[events.RunnerFallback]:
        """Return the fallbacks that the way itself announced."""
        return []

    def close(self) -> None:
        """Release the lane."""


@attrs.frozen
class Summary:
    """One lane's stream in figures: medians in µs, sums in seconds; None where nothing was
    measured.

    Attributes:
        name: the lane.
        compiles: graphs compiled.
        compiling_s: the calls that compiled, in all.
        fallbacks: calls served without a compiled graph, and entries that lost their runner.
        new_us: dispatch of calls whose sizes were never seen, compiling calls left out.
        seen_us: dispatch of calls whose sizes were seen before.
        first_s, again_s: the whole stream the first time and the second time.
        mismatches: calls whose result differs from eager's.
        problem: the first difference.
    """

    name: str
    compiles: int
    compiling_s: float
    fallbacks: int
    new_us: float | None
    seen_us: float | None
    first_s: float
    again_s: float
    mismatches: int
    problem: str

    @classmethod
    def of(cls, lane: Lane, calls: int) -> Summary:
        """Return the figures of a lane that ran a stream of ``calls`` calls twice."""
        first, second = lane.records[:calls], lane.records[calls:]
        hits = [r for r in lane.records if not r.compiled and not r.fell_back]
        return cls(
            lane.name,
            lane.meter.compiles,
            sum(r.total_us for r in lane.records if r.compiled) / 1e6,
            sum(r.fell_back for r in lane.records) + len(lane.fallbacks),
            _median([r.dispatch_us for r in hits if not r.again]),
            _median([r.dispatch_us for r in hits if r.again]),
            sum(r.total_us for r in first) / 1e6,
            sum(r.total_us for r in second) / 1e6,
            sum(bool(r.problem) for r in lane.records),
            next(
                (f"{'x'.join(map(str, r.sizes))}: {r.problem}" for r in lane.records if r.problem),
                "",
            ),
        )


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def difference(got: Any, wanted: Any) -> str:
    """Return the difference of a result from eager's (structure, dtype, shape, values within
    rounding), or ``""``.
    """
    got_leaves, got_tree = pytree.tree_flatten(got)
    leaves, tree = pytree.tree_flatten(wanted)
    if got_tree != tree:
        return "another structure"
    for ours, theirs in zip(got_leaves, leaves, strict=True):
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            if type(ours) is not type(theirs) or ours != theirs:
                return f"{brief(ours)} instead of {brief(theirs)}"
            continue
        try:
            torch.testing.assert_close(
                ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=True
            )
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def run_stream(
    model: torch.nn.Module,
    lanes: Sequence[Lane],
    stream: Sequence[Arguments],
    *,
    passes: int = 2,
    tick: Callable[[], object] = lambda: None,
) -> None:
    """Send every call through eager and all lanes in turn, ``passes`` times; the lanes keep their
    ``records``.

    The lane that goes first changes from call to call.  ``tick`` is called after each call of the
    stream.
    """
    synchronize = _synchronizer(model)
    seen: set[tuple[int, ...]] = set()
    with torch.no_grad():
        for number in range(passes * len(stream)):
            arguments = stream[number % len(stream)]
            sizes = tuple(next(iter(arguments.values())).shape)
            wanted = model(**arguments)
            turn = number % len(lanes)
            for lane in (*lanes[turn:], *lanes[:turn]):
                lane.records.append(
                    _one_call(lane, arguments, wanted, sizes, sizes in seen, synchronize)
                )
            seen.add(sizes)
            tick()


def _one_call(
    lane: Lane,
    arguments: Arguments,
    wanted: Any,
    sizes: tuple[int, ...],
    again: bool,
    synchronize: Callable[[], object],
) -> CallRecord:
    meter = lane.meter
    compiles, runs, inside = meter.compiles, meter.runs, meter.inside_ns
    synchronize()
    start = time.perf_counter_ns()
    got = lane.call(arguments)
    returned = time.perf_counter_ns()
    synchronize()
    done = time.perf_counter_ns()
    lane.settle()
    compiled = meter.compiles > compiles
    fell_back = not compiled and meter.runs == runs
    return CallRecord(
        sizes,
        again,
        compiled,
        fell_back,
        (returned - start) / 1e3,
        (meter.inside_ns - inside) / 1e3,
        (done - start) / 1e3,
        difference(got, wanted),
    )


def _synchronizer(model: torch.nn.Module) -> Callable[[], object]:
    device = next(model.parameters()).device
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.synchronize(device)


@contextmanager
def closing(lanes: Sequence[Lane]) -> Iterator[None]:
    """Close the lanes at the end, also after an error."""
    try:
        yield
    finally:
        for lane in lanes:
            lane.close()
