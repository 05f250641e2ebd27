"""Compiled functions: a call that needs a program traces one; other calls are dispatched in
microseconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from guards.text.escaping import encodable
from symshape.calls.arguments import NO_VARIABLES, flatten_call
from symshape.calls.floats import with_leaves
from symshape.calls.policies import Dynamic
from symshape.cost.units import amount
from symshape.errors import Reason, UnsupportedError
from symshape.frontends import profilers
from symshape.frontends.misses import Misses
from symshape.frontends.profilers import Annotator, torch_profiler
from symshape.frontends.program_sources import ProgramSource, TracedPrograms
from symshape.frontends.stats import Stats, stats_of
from symshape.options import Options
from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.dispatcher import Dispatcher
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.eager_or_program import EagerOrProgram, may_run_eagerly
from symshape.runtime.entry import Entry
from symshape.runtime.known_calls import KnownCalls
from symshape.runtime.policy.programs import Programs
from symshape.runtime.rebinding import Rebinding
from symshape.runtime.runners.choice import RunnerName, constants_for
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.trials import EVERY
from symshape.runtime.variables import AskAgain, Layout, serve
from symshape.torch_internals import autograd, dispatch
from symshape.torch_internals.private import refusal
from symshape.tracing.intercept.python_warnings import kernels_as_in_eager
from symshape.tracing.mode import is_tracing, modes_on_stack
from symshape.tracing.state.compare import torch_functions
from symshape.user_code import name_of

if TYPE_CHECKING:
    from symshape.cost.devices import DevicePeaks
    from symshape.cost.graph_memory import GraphMemory
    from symshape.frontends.warming import WarmUp
    from symshape.frontends.what_if import Which
    from symshape.planning.bucket_plan import BucketPlan
    from symshape.planning.traffic import Traffic
    from symshape.runtime.verify import Verifier

_NOW_AND_THEN, _TIMED = EVERY - 1, 256
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling  # looked up once
_cannot_serve: Callable[[], bool] = dispatch.is_jit_tracing if refusal() is None else lambda: True
_saving_hooks = autograd.top_saving_hooks
_IN_JIT_TRACE = (
    "torch.jit.trace is around the call and turns sizes into tensors, so its graph would keep the "
    "sizes of this call; use torch.jit.trace on the uncompiled function, or use torch.export"
)


def _refusal() -> UnsupportedError | None:
    """Return why no program may serve a call now; None if one may."""
    if _cannot_serve():
        return refusal() or UnsupportedError(_IN_JIT_TRACE, reason=Reason.OTHER_TRACER)
    return torch_functions.refusal()


class Compiled:
    """A compiled function: call it like the original.

    Attributes:
        fn: the original function or module.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        dynamic: Dynamic,
        runner: RunnerName,
        options: Options,
        fullgraph: bool = False,
    ) -> None:
        self.fn, self._fullgraph = fn, fullgraph
        self._dynamic, self._runner, self._options = dynamic, runner, options
        self._cache = EntryCache(options.max_entries, options.memo_size)
        self._plain = EagerOrProgram(
            fn, self._cache, runner == "auto" and not fullgraph and may_run_eagerly(options)
        )
        self._plain_under_hooks = not fullgraph and options.on_miss == "trace"
        memory, most = options.graph_memory, options.max_cuda_graphs
        self._graphs = GraphStore(
            most, None if memory is None else amount(memory, "bytes", "graph_memory")
        )
        # else every miss must be traced
        free = None if fullgraph or dynamic is False else options.free_traces
        accounted = runner == "auto" and torch.cuda.is_available()
        programs = Programs(self._graphs.promise, free, self._hits, accounted=accounted)
        self._eager = EagerCalls(fn, programs, fullgraph, self.explain_miss)
        self._annotator = Annotator(name_of(fn))
        profilers.refresh()
        self._layout: Layout = Layout(
            constants_for(runner) if dynamic is None or dynamic is True else None
        )
        self._source = _source_of(fn, options, dynamic, self._layout)
        known = KnownCalls(self._cache)
        self._misses = Misses(
            fn,
            dynamic,
            runner,
            options,
            self._source,
            self._cache,
            known,
            self._layout,
            self._eager,
            self._graphs,
            fullgraph=fullgraph,
            waits=runner == "auto" and dynamic is None and free is not None,
        )
        rebinding = Rebinding(self._cache, self._layout, self._misses.entry)
        self._dispatcher = Dispatcher(
            fn,
            self._cache,
            known,
            self._layout,
            self._eager,
            rebinding,
            self._misses.serve,
            fullgraph,
        )
        rate, discard, find = options.verify, self._cache.discard, self._dispatcher.entry_of
        draws = options.randomness == "any"
        self._verifier: Verifier | None = None
        self._serve: Callable[..., Any] = functools.partial(serve, fn)
        if rate:
            from symshape.runtime.verify import Verifier

            self._verifier = Verifier(name_of(fn), fn, rate, discard, find, draws=draws)
            self._serve = self._verifier.serve
        if not isinstance(fn, torch.nn.Module):
            functools.update_wrapper(self, fn, updated=())

    # -- the call
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Serve the call by an entry; trace one first if none fits."""
        if _is_dynamo_compiling():  # part of a program that Dynamo compiles: run the function
            return self.fn(*args, **kwargs)
        dispatcher = self._dispatcher  # read once: attributes of a class with __getattr__ are slow
        cache, layout = dispatcher.cache, dispatcher.layout
        cache.clock = tick = cache.clock + 1
        if tick < cache.plain_until:
            return cache.plain(*args, **kwargs)
        if _saving_hooks(True) is not None and self._plain_under_hooks and torch.is_grad_enabled():
            return self._plain.under_hooks(*args, **kwargs)
        if not tick & _NOW_AND_THEN:
            self._now_and_then(args, kwargs)
        leaves = ((*args, *kwargs.values()) if args else tuple(kwargs.values())) if kwargs else args
        if (_cannot_serve() or not torch_functions.quiet(None)) and (
            refused := _refusal()
        ) is not None:
            return self._without_key(refused, args, kwargs)
        if layout.active:
            leaves = layout.quick(args, kwargs)
        try:
            key = cache.makers[len(leaves)](leaves, kwargs)
        except UnsupportedError as error:  # a mode around the call that cannot be a part of its key
            return self._without_key(error, args, kwargs)
        branches = cache.branches
        alone = len(branches) == 1  # like ``Dispatcher.look_up``, without its frames
        found = branches[0].memo.get(key) if alone else cache.find_exact(key)
        if new := found is None and alone:
            found = dispatcher.known.near(key)
        if found is not None and (
            not alone or branches[0].stateless or branches[0].state.unchanged()
        ):
            entry, values, seen = found
            seen.calls += 1
            entry.last_used = tick
            if entry.checks:
                return self._serve(
                    entry, self._annotator.run_of(entry), leaves, values, args, kwargs
                )
            profiling = torch_profiler._is_profiler_enabled or profilers.other.profiling_on
            try:
                flat = (
                    self._annotator.run(entry, leaves, values)
                    if profiling
                    else entry.run(leaves, values)
                )
            except Exception as error:
                failed = [error]
            else:
                if new:  # only now: the device works meanwhile
                    cache.remember(branches[0], leaves, key, entry, values)
                    cache.seen(entry, values).calls += 1
                return (
                    entry.build(flat)
                    if entry.finish is None
                    else entry.finish(entry.build(flat), leaves)
                )
            return entry.instead(failed, args, kwargs)
        return self._slow_call(args, kwargs, with_leaves(leaves) if layout.active else leaves, key)

    def _now_and_then(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do the periodic work: refresh profilers, time a look-up, review calls that run the plain
        function.
        """
        if not self._cache.clock % _TIMED:
            profilers.refresh()
            self._dispatcher.time(args, kwargs)
        self._plain.now_and_then(self, self._misses.traces)

    def _without_key(
        self, error: UnsupportedError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a call eagerly in surroundings in which no program may serve, or raise the reason
        with ``fullgraph``.
        """
        if torch.compiler.is_exporting():  # part of a torch.export trace: run the function
            return self.fn(*args, **kwargs)
        if self._fullgraph:
            raise error
        refusal = self._eager.refused(str(error), (), error, 0.0, state=None, sure=True)
        return self._eager.run(refusal, self.fn, args, kwargs)

    def _slow_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flat: Sequence[Any],
        key: Hashable | None,
    ) -> Any:
        """Serve a call that the call cache does not know: nested arguments, new sizes, or a
        miss.
        """
        if modes_on_stack() and is_tracing():  # part of another program, whose guards cover it
            return self.fn(*args, **kwargs)
        cache, dispatcher = self._cache, self._dispatcher
        branches: list[Branch] = []  # those that remember the call
        try:
            asks = cache.clock < self._layout.until or key in self._eager.by_call
            found = (asks and dispatcher.declined(key)) or dispatcher.search(
                args, kwargs, flat, key, branches
            )
        except AskAgain:
            cache.clock -= 1  # the same call
            return self(*args, **kwargs)
        if isinstance(found, EagerCall):
            return self._eager.run(found, self.fn, args, kwargs)
        entry, values, leaves = found
        profiling = torch_profiler._is_profiler_enabled or profilers.other.profiling_on
        run = self._annotator.run_of(entry) if profiling else entry.run
        try:
            if entry.seen:
                return self._serve(entry, run, leaves, values, args, kwargs)
            with kernels_as_in_eager(self.fn) as kernels:
                try:
                    return self._serve(entry, run, leaves, values, args, kwargs)
                finally:
                    if kernels.told:
                        entry.place_warnings(self.fn)
        finally:  # only now: the device works meanwhile
            for branch in branches:
                cache.remember(branch, flat, key, entry, values)
                dispatcher.known.expect(key)
            cache.seen(entry, values).calls += 1

    # -- looking at it
    def explain_miss(self) -> str:
        """Return why the last recompile happened: what kept the nearest entry from serving the
        call.
        """
        if self._misses.last is not None:
            return self._misses.last.explain()
        refused = self._eager.fallbacks + self._eager.untraced
        ran = f" ({refused:,} calls ran eagerly: see explain_fallback())" if refused else ""
        return f"There was no recompile: no call has been traced since the first trace{ran}."

    def stats(self) -> Stats:
        """Return counters and times so far."""
        calls = self._cache.clock  # read once: other threads call, or reset
        return stats_of(
            self._eager,
            self._graphs,
            self._verifier,
            self._misses.trace_ms,
            calls=calls,
            traces=max(0, self._misses.traces - self._source.loaded),
            hits=max(0, self._hits(calls)),
            misses=self._misses.traces,
            evictions=self._cache.evictions,
            entries=len(self.entries),
            dispatch_us=self._dispatcher.median_time(),
            loaded=self._source.loaded,
            plain=self._plain.calls,
        )

    def _hits(self, calls: int | None = None) -> int:
        """Return how many of so many calls (all so far) an existing entry served; negative while
        calls end that began before a ``reset``.
        """
        itself = self._eager.fallbacks + self._eager.untraced + self._plain.calls
        return (self._cache.clock if calls is None else calls) - self._misses.traces - itself

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        return self._cache.entries

    def explain_fallback(self) -> str:
        """Return which calls ran eagerly: for each reason its line, its calls, and how often
        tracing was tried.
        """
        return self._eager.explain(self._cache.clock, self._eager.lines())

    def traffic(self, entry: int | None = None) -> Traffic:
        """Return how often each size came in an entry's calls, for :func:`symshape.plan` and
        ``plan.regret``.

        Calls that an earlier entry with fixed sizes served count if this one would have served
        them.  At most 8,192 different sizes are counted for an entry, the rarest are forgotten;
        calls of several threads at once may be lost.  Calls that run eagerly
        (``Options.plain_calls``) are not counted.

        Args:
            entry: the number of the entry; if not given, the entry with most symbols, then with
                most calls.

        Raises:
            InputError: there is no such entry, it has no symbols, or it has served no call.

        >>> import torch, symshape
        >>> double = symshape.compile(lambda x: x * 2, dynamic=True)
        >>> for n in (8, 5, 8):
        ...     assert double(torch.ones(n)).shape == (n,)
        >>> double.traffic().counts
        {(8,): 2, (5,): 1}
        """
        from symshape.frontends.warming import traffic_of

        return traffic_of(self.entries, entry)

    def report(self, peaks: DevicePeaks | None = None) -> str:
        """Return a report: for each entry its calls, guards and runner; if padded, its buckets;
        then the budget.

        With a device's ``peaks``, also the roofline. In notebooks, and on the page of
        :func:`symshape.explore`, the report is shown as tables.
        """
        from symshape.frontends.reporting import report

        found = report(self._cache.entries, self._graphs, peaks)
        return encodable("\n".join([found, *self._eager.lines(), *self._plain.lines()]))

    def metrics(self) -> str:
        r"""Return the function's counters in Prometheus' text format (see
        :mod:`symshape.frontends.stats`).

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
        from symshape.frontends.stats import metrics_of, prometheus_text

        calls = {
            each.number: sum(seen.calls for seen in list(each.seen.values()))
            for each in self._cache.entries
        }
        return prometheus_text(
            metrics_of(name_of(self.fn), self.stats(), calls, self._graphs.bytes())
        )

    def which(self, *args: Any, **kwargs: Any) -> Which:
        """Return which entry would serve a call, or why none would; nothing runs and nothing is
        traced.

        Meta tensors stand for tensors on any device.  ``sizes=`` alone asks without tensors, as in
        :meth:`symshape.Traced.explain`; all else is then as in the call that each entry was traced
        for. Both are asked in torch's modes of now, such as ``torch.no_grad``.

        Raises:
            InputError: nothing was traced yet, an argument cannot be traced, or ``sizes`` names
                what is not there.

        >>> import torch, symshape
        >>> rows = symshape.compile(lambda x: x.view(-1, 4), dynamic=True)
        >>> _ = rows(torch.ones(8))
        >>> print(rows.which(sizes={"x": (12,)}))
        entry 0 would serve it
        >>> miss = rows.which(torch.ones(13, device="meta"))
        >>> bool(miss), miss.nearest
        (False, {'x.size(0)': 12})
        """
        from symshape.frontends.what_if import wanted_sizes, which_of_call, which_of_sizes

        sizes = wanted_sizes(args, kwargs)
        if sizes is not None:
            return which_of_sizes(self._cache, sizes)
        variables = NO_VARIABLES
        args, kwargs = self._layout.given(args, kwargs)
        if self._layout:
            flat = (*args, *kwargs.values(), *self._layout.read())
            variables = self._layout.of(flat, len(args) + len(kwargs))
        return which_of_call(self._cache, flatten_call(self.fn, args, kwargs, variables))

    # -- buckets
    def graph_memory(self, sizes: BucketPlan | Iterable[Any]) -> GraphMemory:
        """Return the memory that ``warm_up`` with these sizes takes on a CUDA device; nothing is
        captured.

        On a CUDA device ops of cuDNN run alone, to see what memory they ask for. On a machine
        without one it is that of a Hopper device, for the kernels that the program was traced with,
        and without what cuDNN asks for.

        Args:
            sizes: as for :meth:`warm_up`.

        Raises:
            InputError: as :meth:`warm_up`.

        >>> import torch, symshape
        >>> double = symshape.compile(lambda x: x * 2, dynamic=True, runner="padded")
        >>> _ = double(torch.ones(5))
        >>> found = double.graph_memory([(10_000_000,), (40,)])
        >>> len(found.buckets), found.pool, found.buffers
        (2, 44040192, 41943040)
        """
        from symshape.cost.graph_memory import graph_memory
        from symshape.frontends.warming import foretold_buckets, planned_work

        return graph_memory(foretold_buckets(planned_work(self.entries, sizes)[2]))

    def warm_up(
        self,
        sizes: BucketPlan | Iterable[Any],
        *,
        progress: bool = True,
        memory: int | str | None = None,
    ) -> WarmUp:
        """Make and capture buckets before calls need them, the largest first, and prefer them from
        now on.

        Args:
            sizes: a plan of :func:`symshape.plan`, or sizes up to which calls are to be served:
                mappings from symbols, or tuples in the order of the program's symbols.  For a
                program in pieces, mappings may name sizes that data decide on, too (``u0``, as the
                report calls them): pieces that have them wait for their first call else.
            progress: show a progress bar (needs the extra ``cli``).
            memory: the most bytes (a number, or ``"2 GB"``) that the graphs may take on the device,
                as :meth:`graph_memory` foretells it; None for no limit.

        Raises:
            InputError: nothing was called yet, the runner has no buckets, or the sizes are not
                those of the program; or the graphs would take more than ``memory``. It says which
                would fit, and nothing is captured.

        >>> import torch, symshape
        >>> double = symshape.compile(lambda x: x * 2, dynamic=True, runner="padded")
        >>> _ = double(torch.ones(5))
        >>> warm = double.warm_up([(100,), (40,)], progress=False)
        >>> [(each.sizes, each.ready) for _, each in warm.made]
        [({'s0': 100}, True), ({'s0': 40}, True)]
        """
        from symshape.frontends.warming import warm_up

        budget = None if memory is None else amount(memory, "bytes", "memory")
        return warm_up(self.entries, sizes, progress=progress, budget=budget)

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until no kernel is compiled in the background (``kernels="background"``), and
        capture finished ones.

        Calls do that, too, each for the bucket that it goes to; here it is done at a moment of the
        caller's choice.

        Args:
            seconds: how long to wait at most; None for as long as it takes.

        Returns:
            Whether nothing is left to wait for.

        >>> import torch, symshape
        >>> symshape.compile(lambda x: x * 2, runner="padded").settle()
        True
        """
        from symshape.frontends.warming import settle

        return settle(self.entries, seconds)

    # -- as an object
    def reset(self) -> None:
        """Forget all entries, graphs, counters and the history of changing sizes; stored programs
        stay.
        """
        self._source.clear()  # first: loaded programs are among the traces, which are never fewer
        with self._misses.lock:
            self._cache.clear()
            self._graphs.clear()
            self._eager.clear()
            self._plain.clear()
            self._layout.reset()
            self._dispatcher.clear()
            self._misses.clear()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind the compiled function to ``instance``, so that it works as a method."""
        return self if instance is None else functools.partial(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy or pickle without programs; an object that a module or a class holds by name stays
        the same object.
        """
        *outer, name = getattr(self, "__qualname__", "").split(".")
        owner: Any = sys.modules.get(getattr(self, "__module__", ""))
        for each in outer:
            owner = _held(owner, each)
        if name and _held(owner, name) is self:
            return (_held, (owner, name)) if outer else name
        make = functools.partial(type(self), fullgraph=self._fullgraph)
        return make, (self.fn, self._dynamic, self._runner, self._options)

    def again(self, fn: Callable[..., Any]) -> Compiled:
        """Return another function, compiled like this one."""
        return type(self)(fn, self._dynamic, self._runner, self._options, fullgraph=self._fullgraph)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original function; see also
        :mod:`symshape.frontends.compiled_module`.
        """
        if name.startswith("_") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __repr__(self) -> str:
        return f"<Compiled {name_of(self.fn)}: {len(self.entries)} entries, runner {self._runner}>"

    def _repr_html_(self) -> str:
        from symshape.exploring.report_html import report_html
        from symshape.frontends.exploration.caches import cache_report

        return report_html(cache_report(self._cache, self.stats(), name_of(self.fn), short=True))


def _held(owner: Any, name: str) -> Any:
    """Return what a module or a class holds by a name, or None; of a ``staticmethod`` or a
    ``classmethod``, the function in it.
    """
    found = getattr(owner, "__dict__", {}).get(name)
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _source_of(
    fn: Callable[..., Any], options: Options, dynamic: Dynamic, layout: Layout
) -> ProgramSource:
    """Return the source of a function's programs for these options.

    Raises:
        InputError: ``on_miss="error"`` with ranks.
    """
    traced = TracedPrograms(fn, options)
    if options.store is False or options.store is None:
        return traced
    from symshape.frontends.stored_programs import stored_programs

    return stored_programs(fn, traced, options, dynamic, layout)
