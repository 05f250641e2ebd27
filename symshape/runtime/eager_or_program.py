"""The choice between a function and its programs: now and then a trial times a few calls of each.

A call of a small function on the CPU takes a few µs; reading its arguments, finding the program and
building its results take as many.  Where programs are not faster, calls run eagerly, which is right
by definition, until the next trial.  A function that takes another way while it is traced always
runs by its programs: results of the two ways would take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.graph.graph import Graph
from symshape.options import Options
from symshape.runtime.cache import EntryCache
from symshape.runtime.entry import Entry
from symshape.runtime.trials import EVERY, LONGEST, PAIRS, REST, Times, Verdict, elements

__all__ = ["EagerOrProgram", "may_run_eagerly"]


class EagerOrProgram:
    """The calls of one compiled function that run eagerly because eager is faster.

    Calls under saved-tensor hooks run eagerly too, however fast programs are.  A checkpoint around
    a call compares what autograd saves in it with what is saved when the call is made again in
    backward.  By then another program, or none, may serve.

    Attributes:
        verdict: the result of the last trial; None before the first one.
        hooked: the number of calls under saved-tensor hooks.
    """

    def __init__(self, fn: Callable[..., Any], cache: EntryCache, wanted: bool) -> None:
        self._fn, self._cache, self._wanted = fn, cache, wanted
        self.clear()

    def clear(self) -> None:
        """Forget all trials and counts."""
        self._cache.plain, self._cache.plain_until = self._fn, 0
        self._next, self._rest, self._since = EVERY, REST, 0
        self._traces = 0
        self._allowed: tuple[Sequence[Entry] | None, bool] = (None, False)
        self._counted = self.hooked = 0
        self.verdict: Verdict | None = None

    def under_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """Count a call under saved-tensor hooks and return the function's result."""
        self.hooked += 1
        return self._fn(*args, **kwargs)

    def now_and_then(self, compiled: Callable[..., Any], traces: int) -> None:
        """Begin a trial if one is due: the calls after this one are timed.

        Args:
            compiled: the compiled function; during a trial it looks for a program.
            traces: the number of traces so far: a trial waits until calls need none.
        """
        tick = self._cache.clock
        if not self._wanted or tick < self._next:
            return
        self._counted, self._since = self.calls - self.hooked, 0
        if traces != self._traces or not self._may_be_timed():
            self._traces = traces
            return
        self._next = tick + 2 * EVERY  # in case the trial never ends
        self._cache.plain = _Trial(self, self._fn, compiled, self._cache)
        self._cache.plain_until = tick + 1 + 2 * PAIRS

    def _may_be_timed(self) -> bool:
        """Return whether programs do what the function does, and the host's clock measures all of a
        call: no program uses another device.
        """
        entries = self._cache.entries
        if self._allowed[0] is not entries:
            elsewhere = torch.accelerator.is_available()
            programs = [each.program for each in entries]
            alike = not any(each.told_compiling for each in programs)
            on_host = not elsewhere or (
                bool(entries) and all(_on_cpu(each.graph) for each in programs)
            )
            self._allowed = entries, alike and on_host
        return self._allowed[1]

    def tried(self) -> None:
        """Count an eager call of a trial."""
        self._counted += 1

    def found(self, trial: _Trial, verdict: Verdict | None) -> None:
        """End a trial with its verdict; ``verdict`` is None if an error ended the trial."""
        cache = self._cache
        if cache.plain is not trial:  # cleared meanwhile, or another thread began a trial
            return
        self.verdict = verdict or self.verdict
        cache.plain, cache.plain_until, tick = self._fn, 0, cache.clock
        if verdict is not None and verdict.faster:
            until = tick + self._rest
            self._since, cache.plain_until = tick, until - until % EVERY
            self._next = cache.plain_until
        else:
            self._next = tick + self._rest // 4
        self._rest = min(4 * self._rest, LONGEST)

    @property
    def calls(self) -> int:
        """The number of calls that ran eagerly so far, in trials or by their verdict, or under
        saved-tensor hooks.
        """
        counted = self._counted + self.hooked
        if not self._since:
            return counted
        return counted + max(0, min(self._cache.clock, self._cache.plain_until - 1) - self._since)

    def lines(self) -> list[str]:
        """Return lines for a report: how many calls ran eagerly, and why."""
        found = []
        if self.hooked:
            found.append(
                f"{self.hooked} calls under saved-tensor hooks (a checkpoint's) ran eagerly"
            )
        if self.verdict is not None and self.verdict.faster:
            calls = self.calls - self.hooked
            found.append(
                f"{calls} calls ran eagerly, which is faster here: {self.verdict} "
                "(Options.plain_calls)"
            )
        return found


class _Trial:
    """The callable that calls run during a trial: the function and its programs in turn, timed."""

    def __init__(
        self,
        of: EagerOrProgram,
        fn: Callable[..., Any],
        compiled: Callable[..., Any],
        cache: EntryCache,
    ) -> None:
        self._of, self._fn, self._compiled, self._cache = of, fn, compiled, cache
        self._times = Times()
        self._busy = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._busy:  # the function calls itself, or another thread does
            return self._fn(*args, **kwargs)
        self._busy = True
        cache, times = self._cache, self._times
        taken = times.next()
        plainly = taken is times.plain
        until, over, size = cache.plain_until, True, elements(args, kwargs)
        if not plainly:
            cache.plain_until, cache.clock = 0, cache.clock - 1  # the same call
        try:
            start = time.perf_counter()
            result = (self._fn if plainly else self._compiled)(*args, **kwargs)
            taken.append((size, time.perf_counter() - start))
            if plainly:
                self._of.tried()
            over = times.over
        finally:  # an error of the call ends the trial without a verdict
            self._busy = False
            if over:
                self._of.found(self, times.verdict())
            elif cache.plain is self:
                cache.plain_until = until
        return result


def may_run_eagerly(options: Options) -> bool:
    """Return whether these options allow calls to run eagerly for speed."""
    asked = options.on_miss != "trace" or options.outputs != "copy" or options.verify > 0
    return options.plain_calls and not asked


def _on_cpu(graph: Graph) -> bool:
    """Return whether all tensors of a graph are on the CPU."""
    values = [each.value for each in graph.inputs] + [
        each for node in graph.nodes for each in node.outputs
    ]
    specs = [spec for each in values if (spec := getattr(each, "spec", None)) is not None]
    return all(spec.device.type == "cpu" for spec in specs)
