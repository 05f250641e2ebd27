"""Whether a function is faster than its programs: now and then a few calls run one way and the other, timed.

Of a small function on the CPU a call takes a few µs; reading its arguments, finding the program and building its
results take as many.  Where that does not pay, calls run the function itself, which is right by definition, until the
next trial.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs
import torch
from torch.utils._pytree import tree_leaves

from symshape.graph.graph import Graph
from symshape.options import Options
from symshape.runtime.cache import EntryCache
from symshape.runtime.entry import Entry

__all__ = ["EVERY", "PlainCalls", "may_be_plain"]

EVERY = 32
"""A trial begins at a multiple of this many calls, after as many that needed no trace."""
PAIRS = 16
"""Calls that a trial times each way."""
_REST = 1024  # calls that the function itself serves before it is tried again, the first time
_LONGEST = 1 << 16
_CLEARLY = 0.97  # of the programs' time: below, the function itself is faster
_NOTHING: Sequence[Entry] = ()
_WINS = 11  # pairs of calls of 16 in which it has to be: by chance in one trial of ten
_Timed = tuple[int, float]  # the elements of a call's arguments, and its seconds


@attrs.frozen
class Verdict:
    """What a trial found.

    Attributes:
        plain: median µs of a call of the function itself.
        programs: median µs of a call that its programs serve.
        faster: whether the function itself is clearly faster.
    """

    plain: float
    programs: float
    faster: bool


class PlainCalls:
    """When calls run the function itself since it is faster.

    Attributes:
        verdict: what the last trial found; None before there was one.
    """

    def __init__(self, fn: Callable[..., Any], cache: EntryCache, wanted: bool) -> None:
        self._fn, self._cache, self._wanted = fn, cache, wanted
        self.clear()

    def clear(self) -> None:
        """Forgets what was found."""
        self._cache.plain, self._cache.plain_until = self._fn, 0
        self._next, self._rest, self._since = EVERY, _REST, 0
        self._traces, self._on_host = 0, (_NOTHING, False)
        self._counted = 0
        self.verdict: Verdict | None = None

    def now_and_then(self, compiled: Callable[..., Any], traces: int) -> None:
        """Begins a trial if one is due: the calls after this one are timed.

        Args:
            compiled: what is called; it looks for a program when it is called in a trial.
            traces: how many there were: a trial waits for calls that need none.
        """
        tick = self._cache.clock
        if not self._wanted or tick < self._next:
            return
        self._counted, self._since = self.calls, 0
        if traces != self._traces or not self._timed_by_the_host():
            self._traces = traces
            return
        self._next = tick + 2 * EVERY  # should it come to no end
        self._cache.plain = _Trial(self, self._fn, compiled, self._cache)
        self._cache.plain_until = tick + 1 + 2 * PAIRS

    def _timed_by_the_host(self) -> bool:
        """Whether the time that a call takes here is all that it takes: no other device is at work."""
        if not torch.accelerator.is_available():
            return True
        entries = self._cache.entries
        if self._on_host[0] is not entries:
            self._on_host = entries, bool(entries) and all(_on_cpu(each.program.graph) for each in entries)
        return self._on_host[1]

    def tried(self) -> None:
        """A call of a trial ran the function itself."""
        self._counted += 1

    def found(self, trial: _Trial, verdict: Verdict | None) -> None:
        """A trial is over; None if it found nothing."""
        cache = self._cache
        if cache.plain is not trial:  # all was forgotten meanwhile, or another thread began one
            return
        self.verdict = verdict or self.verdict
        cache.plain, cache.plain_until, tick = self._fn, 0, cache.clock
        if verdict is not None and verdict.faster:
            until = tick + self._rest
            self._since, cache.plain_until = tick, until - until % EVERY
            self._next = cache.plain_until
        else:
            self._next = tick + self._rest // 4
        self._rest = min(4 * self._rest, _LONGEST)

    @property
    def calls(self) -> int:
        """How many calls ran the function itself so far."""
        if not self._since:
            return self._counted
        return self._counted + max(0, min(self._cache.clock, self._cache.plain_until - 1) - self._since)

    def lines(self) -> list[str]:
        """What came of it, for a report."""
        if self.verdict is None or not self.verdict.faster:
            return []
        times = f"{self.verdict.plain:.3g} µs a call, its programs {self.verdict.programs:.3g} µs"
        return [f"{self.calls} calls ran the function itself, which is faster here: {times} (Options.plain_calls)"]


class _Trial:
    """The calls of a trial: by twos, one runs the function itself and one what is compiled.

    Which is first changes after half of them, so that neither gets the larger sizes of a stream where sizes take turns.
    Each call of the function itself is compared with what its programs take at that size, between what they took at
    the nearest ones: where sizes differ much, neighbours tell little.
    """

    def __init__(self, of: PlainCalls, fn: Callable[..., Any], compiled: Callable[..., Any], cache: EntryCache) -> None:
        self._of, self._fn, self._compiled, self._cache = of, fn, compiled, cache
        self._times: tuple[list[_Timed], list[_Timed]] = [], []
        self._busy = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._busy:  # the function calls itself, or another thread does
            return self._fn(*args, **kwargs)
        self._busy = True
        cache, plain, programs = self._cache, *self._times
        call = len(plain) + len(programs)
        run, taken = (self._fn, plain) if (call + call // PAIRS) % 2 else (self._compiled, programs)
        until, over, elements = cache.plain_until, True, _elements(args, kwargs)
        if run is self._compiled:
            cache.plain_until, cache.clock = 0, cache.clock - 1  # the same call
        try:
            start = time.perf_counter()
            result = run(*args, **kwargs)
            taken.append((elements, time.perf_counter() - start))
            if taken is plain:
                self._of.tried()
            over = call + 1 == 2 * PAIRS
        finally:  # an error of the call ends it without a verdict
            self._busy = False
            if over:
                self._of.found(self, self._verdict() if len(plain) == len(programs) == PAIRS else None)
            elif cache.plain is self:
                cache.plain_until = until
        return result

    def _verdict(self) -> Verdict:
        plain, programs = self._times
        taken = _by_size(programs)
        pairs = [(own, other) for size, own in plain if (other := _between(taken, size)) is not None]
        wins = sum(own < other for own, other in pairs)
        mine, theirs = (statistics.median(each) * 1e6 for each in zip(*(pairs or [(1.0, 1.0)]), strict=True))
        clearly = statistics.median(own / other for own, other in pairs or [(1.0, 1.0)]) < _CLEARLY
        return Verdict(mine, theirs, clearly and wins * PAIRS >= _WINS * len(pairs) and len(pairs) >= PAIRS // 2)


def _elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """How large the arguments of a call are."""
    leaves = tree_leaves((args, kwargs))
    return sum(each.numel() for each in leaves if isinstance(each, torch.Tensor))


def _by_size(calls: Sequence[_Timed]) -> list[_Timed]:
    """Sizes in order, each with the median of the seconds that calls of it took."""
    found: dict[int, list[float]] = {}
    for size, seconds in calls:
        found.setdefault(size, []).append(seconds)
    return sorted((size, statistics.median(each)) for size, each in found.items())


def _between(taken: Sequence[_Timed], size: int) -> float | None:
    """What calls of a size take, between those of the next smaller and the next larger one; None beyond all of them.

    >>> _between([(10, 1.0), (20, 3.0)], 15), _between([(10, 1.0)], 10), _between([(10, 1.0)], 11)
    (2.0, 1.0, None)
    """
    at = bisect_left(taken, size, key=itemgetter(0))
    if at < len(taken) and taken[at][0] == size:
        return taken[at][1]
    if at in (0, len(taken)):
        return None
    (low, least), (high, most) = taken[at - 1], taken[at]
    return least + (most - least) * (size - low) / (high - low)


def may_be_plain(options: Options) -> bool:
    """Whether these options leave it open what runs a call."""
    asked = options.on_miss != "trace" or options.outputs != "copy" or options.verify > 0
    return options.plain_calls and not asked


def _on_cpu(graph: Graph) -> bool:
    """Whether all tensors of a graph are on the CPU."""
    values = [each.value for each in graph.inputs] + [each for node in graph.nodes for each in node.outputs]
    specs = [spec for each in values if (spec := getattr(each, "spec", None)) is not None]
    return all(spec.device.type == "cpu" for spec in specs)
