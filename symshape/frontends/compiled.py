"""Compiled functions: a call that needs a program traces one; other calls are dispatched in microseconds."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any

import torch

from symshape import events, forks
from symshape.calls.arguments import Call, flatten_call
from symshape.calls.floats import with_leaves
from symshape.calls.object_kinds import ReadOtherwise
from symshape.calls.outputs import builder
from symshape.calls.policies import Dynamic
from symshape.calls.variables import GradientsRead, writing
from symshape.cost.units import amount
from symshape.errors import Reason, UnsupportedError
from symshape.frontends import profilers
from symshape.frontends.changing import Changing, History, changed_sizes, on_device
from symshape.frontends.compiled_reports import Reports
from symshape.frontends.differences import Miss, miss_of
from symshape.frontends.profilers import Annotator, torch_profiler
from symshape.frontends.program_sources import ProgramRequest, source_of
from symshape.frontends.tlparse import recorded
from symshape.frontends.trace import check_call
from symshape.frontends.warming import Warming
from symshape.graph.program import Program, State
from symshape.options import Options
from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.dispatcher import Dispatcher, UnservedCall
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.failing import Failing
from symshape.runtime.plain_calls import PlainCalls, may_be_plain
from symshape.runtime.policy.programs import Programs
from symshape.runtime.presumptions import Presumptions
from symshape.runtime.rebinding import Rebinding
from symshape.runtime.runners.choice import RunnerName, constants_for, make_runner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.trials import EVERY
from symshape.runtime.variables import AskAgain, Layout, expect, grow, serve
from symshape.runtime.verify import Verifier
from symshape.torch_internals import autograd, dispatch
from symshape.torch_internals.private import refusal
from symshape.tracing.mode import is_tracing, modes_on_stack
from symshape.user_code import name_of

_NOW_AND_THEN, _TIMED = EVERY - 1, 256
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling  # looked up once
_cannot_serve: Callable[[], bool] = dispatch.is_jit_tracing if refusal() is None else lambda: True
_saving_hooks = autograd.top_saving_hooks
_IN_JIT_TRACE = (
    "torch.jit.trace is around the call and turns sizes into tensors, so its graph would keep the sizes of this "
    "call; use torch.jit.trace on the uncompiled function, or use torch.export"
)


class Compiled(Reports, Warming):
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
        self._plain = PlainCalls(fn, self._cache, runner == "auto" and not fullgraph and may_be_plain(options))
        self._plain_under_hooks = not fullgraph and options.on_miss == "trace"
        memory, most = options.graph_memory, options.max_cuda_graphs
        self._graphs = GraphStore(most, None if memory is None else amount(memory, "bytes", "graph_memory"))
        free = None if fullgraph or dynamic is False else options.free_traces  # else every miss must be traced
        accounted = runner == "auto" and torch.cuda.is_available()
        programs = Programs(self._graphs.promise, free, self._hits, accounted=accounted)
        self._eager = EagerCalls(fn, programs, fullgraph, self.explain_miss)
        self._asks_gradients = True
        self._changing, self._annotator = Changing(fn, dynamic), Annotator(name_of(fn))
        profilers.refresh()
        self._layout: Layout = Layout(constants_for(runner) if dynamic is None or dynamic is True else None)
        self._source = source_of(fn, options, dynamic, self._layout)
        self._waits = runner == "auto" and dynamic is None and free is not None and not self._source.stores
        self._presumptions = Presumptions(self._cache, fullgraph)
        rebinding = Rebinding(self._cache, self._layout, self._entry)
        self._dispatcher = Dispatcher(
            fn, self._cache, self._layout, self._eager, rebinding, self._miss_or_refusal, fullgraph
        )
        rate, discard, find = options.verify, self._cache.discard, self._dispatcher.find
        self._verifier = Verifier(name_of(fn), fn, rate, discard, find) if rate else None
        self._serve = self._verifier.serve if self._verifier is not None else functools.partial(serve, fn)
        self._lock = forks.lock(outer=2)
        self._numbers, self._traces, self._trace_ms = count(), 0, 0.0
        self._last_miss: Miss | None = None
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
        if _cannot_serve():
            return self._without_key(
                refusal() or UnsupportedError(_IN_JIT_TRACE, reason=Reason.OTHER_TRACER), args, kwargs
            )
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
        if found is not None and (not alone or branches[0].stateless or branches[0].state.unchanged()):
            entry, values, seen = found
            seen.calls += 1
            entry.last_used = tick
            if entry.checks:
                return self._serve(entry, self._annotator.run_of(entry), leaves, values, args, kwargs)
            profiling = torch_profiler._is_profiler_enabled or profilers.other.profiling_on
            try:
                flat = self._annotator.run(entry, leaves, values) if profiling else entry.run(leaves, values)
            except Exception as error:
                failed = [error]
            else:
                if new:  # only now: the device works meanwhile
                    cache.remember(branches[0], leaves, key, entry, values)
                    cache.seen(entry, values).calls += 1
                return entry.build(flat) if entry.finish is None else entry.finish(entry.build(flat), leaves)
            return entry.instead(failed, args, kwargs)
        return self._slow_call(args, kwargs, with_leaves(leaves) if layout.active else leaves, key)

    def _now_and_then(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do the periodic work: refresh profilers, time a look-up, review calls that run the plain function."""
        if not self._cache.clock % _TIMED:
            profilers.refresh()
            self._dispatcher.time(args, kwargs)
        self._plain.now_and_then(self, self._traces)

    def _without_key(self, error: UnsupportedError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call eagerly in surroundings in which no program may serve, or raise the reason with ``fullgraph``."""
        if torch.compiler.is_exporting():  # part of a torch.export trace: run the function
            return self.fn(*args, **kwargs)
        if self._fullgraph:
            raise error
        refusal = self._eager.refused(str(error), (), error, 0.0, state=None, sure=True)
        return self._eager.run(refusal, self.fn, args, kwargs)

    def _slow_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: Sequence[Any], key: Hashable | None
    ) -> Any:
        """Serve a call that the call cache does not know: nested arguments, new sizes, or a miss."""
        if modes_on_stack() and is_tracing():  # part of another program, whose guards cover it
            return self.fn(*args, **kwargs)
        cache, dispatcher = self._cache, self._dispatcher
        branches: list[Branch] = []  # those that remember the call
        try:
            asks = cache.clock < self._layout.until or key in self._eager.by_call
            found = (asks and dispatcher.declined(key)) or dispatcher.search(args, kwargs, flat, key, branches)
        except AskAgain:
            cache.clock -= 1  # the same call
            return self(*args, **kwargs)
        if isinstance(found, EagerCall):
            return self._eager.run(found, self.fn, args, kwargs)
        entry, values, leaves = found
        profiling = torch_profiler._is_profiler_enabled or profilers.other.profiling_on
        run = self._annotator.run_of(entry) if profiling else entry.run
        try:
            return self._serve(entry, run, leaves, values, args, kwargs)
        finally:  # only now: the device works meanwhile
            for branch in branches:
                cache.remember(branch, flat, key, entry, values)
                dispatcher.known.expect(key)
            cache.seen(entry, values).calls += 1

    def _miss_or_refusal(self, call: UnservedCall) -> tuple[Branch, Entry] | EagerCall:
        """Return a program for a call, or how the call runs eagerly; effects of a failed trace are undone."""
        state: list[State] = []
        start = time.perf_counter()
        try:
            return self._miss(call, state.append)
        except AskAgain:
            raise
        except BaseException as error:
            if self._eager.passes(error):
                raise
            seconds = time.perf_counter() - start
            new = self._eager.refused(call.asked, call.values, error, seconds, state=state[-1] if state else None)
        found = self._layout.refused(new)
        self._cache.history.refused(self._cache.clock, call.values, found.reason, seconds)
        if call.key is not None and not self._cache.admits(call.asked, call.values):
            self._eager.remember(call.key, found)
        return found

    def _miss(self, call: UnservedCall, given_up: Callable[[State], object]) -> tuple[Branch, Entry] | EagerCall:
        """Trace a program for a call, or return how the call runs eagerly. Nothing changes if that fails.

        Raises:
            AskAgain: there are more variables now, or the call is flattened in another way.
        """
        args, kwargs, variables, structure, values = call.args, call.kwargs, call.variables, call.structure, call.values
        known = self._dispatcher.known
        profilers.refresh()
        start = self._eager.clock()
        with self._lock:
            if len(variables.values) != len(self._layout):
                raise AskAgain
            full = flatten_call(self.fn, args, kwargs, variables)
            found = self._cache.find(known.with_answers(structure, full.leaves), values)
            if found is not None:  # another thread was first
                return found
            if not self._source.stores:  # a stored program is for correct calls only
                check_call(self.fn, args, kwargs)
            wanted, history = self._changing.policies(full, values)
            eager = self._eager_first(structure, values, full, history) if on_device(full) else None
            if eager is not None:
                return eager
            miss = miss_of(name_of(self.fn), full, values, self._cache, known.questions)
            with self._layout.traced(full, self._cache), self._presumptions.around():
                places = self._layout.variables
                request = ProgramRequest(full, wanted, given_up, places, asks=self._asks_gradients)
                try:
                    program = self._source.program(request)
                except ReadOtherwise as error:
                    raise AskAgain from error
                except GradientsRead as read_first:
                    self._changing.stay(read_first.variables)
                    present = {each.where for each in places}
                    new = [each for each in read_first.variables if each.where not in present]
                    self._asks_gradients = bool(new)  # else they are read in a way of their own: once is enough
                    expect(new, self._layout, self._cache)
                    raise AskAgain from read_first
            recorded(program)
            grown = grow(program, self.fn, args, kwargs, self._layout, self._cache)
            if grown is not None:
                program, full, structure = grown
            entry = self._entry(program)
            known.ask(program.questions)
            asked = known.with_answers(structure, full.leaves)
            branch, gone = self._cache.publish(asked, entry)
            seconds, clock = self._eager.clock() - start, self._cache.clock
            self._eager.traced(asked, values, entry, seconds, clock, len(full.leaves))
            self._cache.history.because(miss)
            for each in gone:
                events.emit(events.Evicted(name_of(self.fn), each.number))
            self._changing.learn(history, program)
            self._traces += 1
            self._trace_ms += program.milliseconds
            self._last_miss = miss or self._last_miss
            if miss is not None and events.anybody():
                events.emit(events.CacheMiss(name_of(self.fn), self.explain_miss()))
            if grown is not None:
                raise AskAgain
            return branch, entry

    def _eager_first(
        self, structure: Hashable, values: tuple[int, ...], full: Call, history: History
    ) -> EagerCall | None:
        """Return how a call on a device runs eagerly: one of the first, or one whose changing size is 0 or 1."""
        asked = self._dispatcher.known.with_answers(structure, full.leaves)
        if self._waits and self._eager.programs.learns():
            self._changing.learn(history)
            return self._eager.of_miss(asked, values, learns=True)
        self._eager.changes(asked, changed_sizes(full, history))
        return self._eager.of_miss(asked, values)

    def _entry(self, program: Program) -> Entry:
        number = next(self._numbers)
        note, graphs = self._cache.notes(number, program.slots), self._graphs
        runner_name, runner = make_runner(self._runner, program, graphs, self._options, note)
        tree, writes = program.graph.output_tree, program.writes_at_its_end
        build = writing(program.writes, tree.num_leaves, builder(tree)) if writes else builder(tree)
        around = Failing(program, self.fn, self._presumptions.watcher())
        entry = Entry(number, program, runner_name, runner, build, around, verified=self._verifier is not None)
        self._source.equip(entry)
        return entry

    # -- looking at it
    def explain_miss(self) -> str:
        """Return why the last recompile happened: what kept the nearest entry from serving the call."""
        if self._last_miss is not None:
            return self._last_miss.explain()
        refused = self._eager.fallbacks + self._eager.untraced
        ran = f" ({refused:,} calls ran eagerly: see explain_fallback())" if refused else ""
        return f"There was no recompile: no call has been traced since the first trace{ran}."

    def reset(self) -> None:
        """Forget all entries, graphs, counters and the history of changing sizes; stored programs stay."""
        self._source.clear()  # first: loaded programs are among the traces, which are never fewer
        with self._lock:
            self._cache.clear()
            self._graphs.clear()
            self._eager.clear()
            self._plain.clear()
            self._layout.reset()
            self._dispatcher.clear()
            self._presumptions.clear()
            self._changing.clear()
            self._traces, self._trace_ms, self._last_miss = 0, 0.0, None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind the compiled function to ``instance``, so that it works as a method."""
        return self if instance is None else functools.partial(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy or pickle without programs; an object that a module holds by name stays the same object."""
        name = getattr(self, "__qualname__", "")
        if name and getattr(sys.modules.get(self.__module__), name, None) is self:
            return name
        make = functools.partial(type(self), fullgraph=self._fullgraph)
        return make, (self.fn, self._dynamic, self._runner, self._options)

    def again(self, fn: Callable[..., Any]) -> Compiled:
        """Return another function, compiled like this one."""
        return type(self)(fn, self._dynamic, self._runner, self._options, fullgraph=self._fullgraph)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original function; see also :mod:`symshape.frontends.compiled_module`."""
        if name.startswith("_") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __repr__(self) -> str:
        return f"<Compiled {name_of(self.fn)}: {len(self.entries)} entries, runner {self._runner}>"
