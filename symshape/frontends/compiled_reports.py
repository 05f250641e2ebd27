"""The reports of a compiled function: its entries, its metrics, and which entry would serve a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guards.text.escaping import encodable
from symshape.calls.arguments import NO_VARIABLES, flatten_call
from symshape.exploring.report_html import report_html
from symshape.frontends.exploration.caches import cache_report
from symshape.frontends.metrics import metrics_of, prometheus_text
from symshape.frontends.program_sources import ProgramSource
from symshape.frontends.reporting import DevicePeaks, report
from symshape.frontends.seen_traffic import traffic_of
from symshape.frontends.stats import Stats, stats_of
from symshape.frontends.what_if import Which, wanted_sizes, which_of_call, which_of_sizes
from symshape.planning.traffic import Traffic
from symshape.runtime.cache import EntryCache
from symshape.runtime.dispatcher import Dispatcher
from symshape.runtime.eager_calls import EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.plain_calls import PlainCalls
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.variables import Layout
from symshape.runtime.verify import Verifier
from symshape.user_code import name_of


class Reports:
    """The read-only part of :class:`symshape.Compiled`."""

    fn: Callable[..., Any]
    _cache: EntryCache
    _graphs: GraphStore
    _layout: Layout
    _eager: EagerCalls
    _plain: PlainCalls
    _dispatcher: Dispatcher
    _source: ProgramSource
    _verifier: Verifier | None
    _traces: int
    _trace_ms: float

    def stats(self) -> Stats:
        """Return counters and times so far."""
        return stats_of(
            self._eager,
            self._graphs,
            self._verifier,
            self._trace_ms,
            calls=self._cache.clock,
            traces=max(0, self._traces - self._source.loaded),
            hits=max(0, self._hits()),
            misses=self._traces,
            evictions=self._cache.evictions,
            entries=len(self.entries),
            dispatch_us=self._dispatcher.median_time(),
            loaded=self._source.loaded,
            plain=self._plain.calls,
        )

    def _hits(self) -> int:
        """Return how many calls an existing entry served; negative while calls end that began before a ``reset``."""
        itself = self._eager.fallbacks + self._eager.untraced + self._plain.calls
        return self._cache.clock - self._traces - itself

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        return self._cache.entries

    def explain_fallback(self) -> str:
        """Return which calls ran eagerly: for each reason its line, its calls, and how often tracing was tried."""
        return self._eager.explain(self._cache.clock, self._eager.lines())

    def traffic(self, entry: int | None = None) -> Traffic:
        """Return how often each size came in an entry's calls, for :func:`symshape.plan` and ``plan.regret``.

        Calls that an earlier entry with fixed sizes served count if this one would have served them.  At most 8,192
        different sizes are counted for an entry, the rarest are forgotten; calls of several threads at once may be
        lost.  Calls that run eagerly (``Options.plain_calls``) are not counted.

        Args:
            entry: the number of the entry; if not given, the entry with most symbols, then with most calls.

        Raises:
            InputError: there is no such entry, it has no symbols, or it has served no call.

        >>> import torch, symshape
        >>> double = symshape.compile(lambda x: x * 2, dynamic=True)
        >>> for n in (8, 5, 8):
        ...     assert double(torch.ones(n)).shape == (n,)
        >>> double.traffic().counts
        {(8,): 2, (5,): 1}
        """
        return traffic_of(self.entries, entry)

    def report(self, peaks: DevicePeaks | None = None) -> str:
        """Return a report: for each entry its calls, guards and runner; if padded, its buckets; then the budget.

        With a device's ``peaks``, also the roofline. In notebooks, and on the page of :func:`symshape.explore`, the
        report is shown as tables.
        """
        found = report(self._cache.entries, self._graphs, peaks)
        return encodable("\n".join([found, *self._eager.lines(), *self._plain.lines()]))

    def metrics(self) -> str:
        r"""Return the function's counters in Prometheus' text format (see :mod:`symshape.frontends.metrics`).

        >>> import torch, symshape
        >>> double = symshape.compile(lambda x: x * 2, dynamic=True)
        >>> for n in (8, 5):
        ...     _ = double(torch.ones(n))
        >>> print("\n".join(line for line in double.metrics().splitlines() if "_calls" in line))
        # HELP symshape_calls_total Calls of the function.
        # TYPE symshape_calls_total counter
        symshape_calls_total{function="<lambda>"} 2
        # HELP symshape_entry_calls Calls that each entry of the cache has served.
        # TYPE symshape_entry_calls gauge
        symshape_entry_calls{function="<lambda>",entry="0"} 2
        """
        calls = {each.number: sum(seen.calls for seen in list(each.seen.values())) for each in self._cache.entries}
        return prometheus_text(metrics_of(name_of(self.fn), self.stats(), calls, self._graphs.bytes()))

    def which(self, *args: Any, **kwargs: Any) -> Which:
        """Return which entry would serve a call, or why none would; nothing runs and nothing is traced.

        Meta tensors stand for tensors on any device.  ``sizes=`` alone asks without tensors, as in
        :meth:`symshape.Traced.explain`; all else is then as in the call that each entry was traced for.

        Raises:
            InputError: nothing was traced yet, an argument cannot be traced, or ``sizes`` names what is not there.

        >>> import torch, symshape
        >>> rows = symshape.compile(lambda x: x.view(-1, 4), dynamic=True)
        >>> _ = rows(torch.ones(8))
        >>> print(rows.which(sizes={"x": (12,)}))
        entry 0 would serve it
        >>> miss = rows.which(torch.ones(13, device="meta"))
        >>> bool(miss), miss.nearest
        (False, {'x.size(0)': 12})
        """
        sizes = wanted_sizes(args, kwargs)
        if sizes is not None:
            return which_of_sizes(self._cache, sizes)
        variables = NO_VARIABLES
        args, kwargs = self._layout.given(args, kwargs)
        if self._layout:
            flat = (*args, *kwargs.values(), *self._layout.read())
            variables = self._layout.of(flat, len(args) + len(kwargs))
        return which_of_call(self._cache, flatten_call(self.fn, args, kwargs, variables))

    def _repr_html_(self) -> str:
        return report_html(cache_report(self._cache, self.stats(), name_of(self.fn), short=True))
