"""Calls that no entry serves: a program for the call becomes a new entry, or the call runs
eagerly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any

from symshape import events, forks
from symshape.calls.arguments import Call, flatten_call
from symshape.calls.object_kinds import ReadOtherwise
from symshape.calls.outputs import builder
from symshape.calls.policies import Dynamic
from symshape.calls.variables import GradientsRead, writing
from symshape.errors import release_frames
from symshape.frontends import profilers
from symshape.frontends.changing import Changing, History, changed_sizes, on_device
from symshape.frontends.differences import Miss, miss_of
from symshape.frontends.logs import recorded
from symshape.frontends.program_sources import ProgramRequest, ProgramSource
from symshape.frontends.trace import check_call
from symshape.graph.program import Program, State
from symshape.options import Options
from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.data_assumptions import DataAssumptions
from symshape.runtime.dispatcher import UnservedCall
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.failing import Failing
from symshape.runtime.known_calls import KnownCalls
from symshape.runtime.runners.choice import RunnerName, make_runner
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.variables import AskAgain, Layout, expect, grow
from symshape.tracing.garbage import seldom_collected
from symshape.user_code import name_of


class Misses:
    """The calls of one compiled function that no entry serves.

    Args:
        fn: the function.
        dynamic: the user's declaration of sizes.
        runner: the name of the runner that was asked for.
        options: of traces and runners.
        source: makes programs.
        cache: gets the new entries.
        known: the call structures that are known from earlier calls.
        layout: the values that are read at each call beside the arguments.
        eager: decides which calls run eagerly.
        graphs: the CUDA graphs and padded buckets of the entries.
        fullgraph: every program is kept, however often its data assumptions fail.
        waits: whether the first calls on a CUDA device run eagerly, to learn which sizes change.

    Attributes:
        lock: held while a program is made.
        traces: the number of programs so far.
        trace_ms: the milliseconds that they took to trace.
        last: why the last program was needed; None before the second one.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        dynamic: Dynamic,
        runner: RunnerName,
        options: Options,
        source: ProgramSource,
        cache: EntryCache,
        known: KnownCalls,
        layout: Layout,
        eager: EagerCalls,
        graphs: GraphStore,
        fullgraph: bool,
        waits: bool,
    ) -> None:
        self._fn, self._runner, self._options, self._source = fn, runner, options, source
        self._cache, self._known, self._layout, self._eager, self._graphs = (
            cache,
            known,
            layout,
            eager,
            graphs,
        )
        self._presumptions, self._waits = (
            DataAssumptions(cache, fullgraph),
            waits and not source.stores,
        )
        self._changing, self._asks_gradients = Changing(fn, dynamic), True
        self._numbers = count()
        self.lock = forks.lock(outer=2)
        self.traces, self.trace_ms = 0, 0.0
        self.last: Miss | None = None

    def serve(self, call: UnservedCall) -> tuple[Branch, Entry] | EagerCall:
        """Return a program for a call, or how the call runs eagerly; effects of a failed trace are
        undone.
        """
        state: list[State] = []
        start = time.perf_counter()
        try:
            return self._trace(call, state.append)
        except AskAgain as again:
            release_frames(again)
            raise
        except BaseException as error:
            if self._eager.passes(error):
                raise
            seconds = time.perf_counter() - start
            new = self._eager.refused(
                call.asked, call.values, error, seconds, state=state[-1] if state else None
            )
            release_frames(error)
        found = self._layout.refused(new)
        self._cache.history.refused(self._cache.clock, call.values, found.reason, seconds)
        if call.key is not None and not self._cache.admits(call.asked, call.values):
            self._eager.remember(call.key, found)
        return found

    def _trace(
        self, call: UnservedCall, given_up: Callable[[State], object]
    ) -> tuple[Branch, Entry] | EagerCall:
        """Trace a program for a call, or return how the call runs eagerly. Nothing changes if that
        fails.

        Raises:
            AskAgain: there are more variables now, or the call is flattened in another way.
        """
        args, kwargs, structure, values = call.args, call.kwargs, call.structure, call.values
        profilers.refresh()
        start = self._eager.clock()
        with self.lock:
            if len(call.variables.values) != len(self._layout):
                raise AskAgain
            full = flatten_call(self._fn, args, kwargs, call.variables)
            found = self._cache.find(self._known.with_answers(structure, full.leaves), values)
            if found is not None:  # another thread was first
                return found
            if not self._source.stores:  # a stored program is for correct calls only
                check_call(self._fn, args, kwargs)
            wanted, history = self._changing.policies(full, values)
            eager = self._eager_first(structure, values, full, history) if on_device(full) else None
            if eager is not None:
                return eager
            with seldom_collected():  # also while the entry is published
                return self._traced(call, full, (wanted, history), start, given_up)

    def _traced(
        self,
        call: UnservedCall,
        full: Call,
        policies: tuple[Any, History],
        start: float,
        given_up: Callable[[State], object],
    ) -> tuple[Branch, Entry]:
        """Trace a program for a call, and publish its entry.

        Args:
            call: the call.
            full: the call, flattened.
            policies: which sizes change, and the history that says so.
            start: when the call was found to need a program.
            given_up: gets the state of a trace that failed.

        Raises:
            AskAgain: as for ``_trace``.
        """
        args, kwargs, structure, values = call.args, call.kwargs, call.structure, call.values
        wanted, history = policies
        miss = miss_of(name_of(self._fn), full, values, self._cache, self._known.questions)
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
                # else they are read in a way of their own: once is enough
                self._asks_gradients = bool(new)
                expect(new, self._layout, self._cache)
                raise AskAgain from read_first
        recorded(program)
        grown = grow(program, self._fn, args, kwargs, self._layout, self._cache)
        if grown is not None:
            program, full, structure = grown
        entry = self.entry(program)
        self._known.ask(program.questions)
        asked = self._known.with_answers(structure, full.leaves)
        branch, gone = self._cache.publish(asked, entry)
        seconds, clock = self._eager.clock() - start, self._cache.clock
        self._eager.traced(asked, values, entry, seconds, clock, len(full.leaves))
        self._cache.history.because(miss)
        for each in gone:
            events.emit(events.Evicted(name_of(self._fn), each.number))
        self._changing.learn(history, program)
        self.traces += 1
        self.trace_ms += program.milliseconds
        self.last = miss or self.last
        if miss is not None and events.anybody():
            events.emit(events.CacheMiss(name_of(self._fn), miss.explain()))
        if grown is not None:
            raise AskAgain
        return branch, entry

    def _eager_first(
        self, structure: Hashable, values: tuple[int, ...], full: Call, history: History
    ) -> EagerCall | None:
        """Return how a call on a device runs eagerly: one of the first, or one whose changing size
        is 0 or 1.
        """
        asked = self._known.with_answers(structure, full.leaves)
        if self._waits and self._eager.programs.learns():
            self._changing.learn(history)
            return self._eager.of_miss(asked, values, learns=True)
        self._eager.changes(asked, changed_sizes(full, history))
        return self._eager.of_miss(asked, values)

    def entry(self, program: Program) -> Entry:
        """Return an entry for a program, with the runner that was asked for."""
        number = next(self._numbers)
        note, graphs = self._cache.notes(number, program.slots), self._graphs
        runner_name, runner = make_runner(self._runner, program, graphs, self._options, note)
        tree, writes = program.graph.output_tree, program.writes_at_its_end
        build = writing(program.writes, tree.num_leaves, builder(tree)) if writes else builder(tree)
        around = Failing(program, self._fn, self._presumptions.watcher())
        entry = Entry(
            number, program, runner_name, runner, build, around, verified=self._options.verify > 0
        )
        self._source.equip(entry)
        return entry

    def clear(self) -> None:
        """Forget the counters and the history of changing sizes; call while the lock is held."""
        self._presumptions.clear()
        self._changing.clear()
        self.traces, self.trace_ms, self.last = 0, 0.0, None
