"""A compiled function: traced when a call needs it and dispatched in microseconds when not."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import count
from typing import Any

import torch

from guards.sets.sources import IntArg, Size, Source
from symshape import events
from symshape.calls.arguments import NO_VARIABLES, Call, Variables, skeleton, sources_of, take_apart
from symshape.calls.call_key import FLAT, ExactKey, Reading, read
from symshape.calls.modes import modes
from symshape.calls.outputs import builder
from symshape.calls.policies import Dynamic, changing_with_records, policies
from symshape.calls.questions import Question, answers
from symshape.calls.variables import writing
from symshape.dims import Dim, Policy
from symshape.errors import ConstraintViolation, DimError, InputError, RunnerError, SymShapeError, UnsupportedError
from symshape.frontends.differences import Miss
from symshape.frontends.stats import Stats
from symshape.frontends.trace import check_call
from symshape.graph.program import Program, State
from symshape.options import Options
from symshape.runtime.cache import Branch, Entry, EntryCache
from symshape.runtime.refusals import Refusal, Refusals
from symshape.runtime.runners.choice import RunnerName, make_runner
from symshape.runtime.runners.cuda_graph import GraphStore
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.variables import AskAgain, Layout, failing_as_eager, grow, paths_of_variables
from symshape.tracing.capture import capture
from symshape.tracing.mode import is_tracing
from symshape.user_code import name_of

Found = tuple[Entry, tuple[int, ...], Sequence[Any]]
"""The entry that serves a call, the integers to run it with, and the call's leaves."""

_CHANGED = object()
_ALWAYS_RAISED = (ConstraintViolation, DimError, RunnerError)  # what was asked of us cannot be had
_TIMED_MASK = 255


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
        fixed_policies: Mapping[Source, Dim | Policy] | None = None,
        exact: ExactKey = FLAT,
        fullgraph: bool = False,
    ) -> None:
        self.fn = fn
        self._fullgraph = fullgraph
        self._refusals = Refusals(fn, fullgraph)
        self._fixed_policies = fixed_policies
        self._dynamic = dynamic
        self._runner = runner
        self._options = options
        self._cache = EntryCache(options.max_entries, options.memo_size, exact)
        self._graphs = GraphStore(options.max_cuda_graphs)
        self._history: dict[Source, Any] = {}
        self._questions: tuple[Question, ...] = ()
        self._layout: Layout = Layout()
        self._lock = threading.RLock()
        self._numbers = count()
        self._traces = self._misses = 0
        self._trace_ms = 0.0
        self._times: deque[float] = deque(maxlen=512)
        self._last_miss: Miss | None = None
        if not isinstance(fn, torch.nn.Module):
            functools.update_wrapper(self, fn, updated=())

    # -- the call
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Serves the call by an entry, tracing one first if none fits."""
        cache = self._cache  # read once: attributes of a class with __getattr__ are slow
        cache.clock = tick = cache.clock + 1
        if not tick & _TIMED_MASK:
            self._time_dispatch(args, kwargs)
        leaves = (*args, *kwargs.values()) if kwargs else args
        if self._layout:
            leaves = (*leaves, *self._layout.read())
        try:
            key = cache.makers[len(leaves)](leaves, kwargs)
        except UnsupportedError as error:  # a mode around the call that cannot be a part of its key
            return self._without_key(error, args, kwargs)
        found = cache.find_exact(key)
        if found is not None:
            entry, values = found
            entry.last_used = tick
            return entry.build(entry.run(leaves, values))
        return self._slow_call(args, kwargs, leaves, key)

    def _without_key(self, error: UnsupportedError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in surroundings in which no program may serve it."""
        if self._fullgraph:
            raise error
        refusal = self._refusals.add(str(error), (), error, 0.0, state=None, sure=True)
        return self._refusals.run(refusal, self.fn, args, kwargs)

    def _time_dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Now and then: how long the quick look-up of a warm call takes."""
        cache = self._cache
        for _ in range(3):  # the first warms the caches of the machine
            start = time.perf_counter()
            leaves = self._leaves(args, kwargs)
            if cache.find_exact(cache.makers[len(leaves)](leaves, kwargs)) is None:
                return
            elapsed = (time.perf_counter() - start) * 1e6
        self._times.append(elapsed)

    def _leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments, and the values of variables."""
        return (*args, *kwargs.values(), *(self._layout.read() if self._layout else ()))

    def _slow_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: tuple[Any, ...], key: Hashable | None
    ) -> Any:
        """A call that the memo does not know: nested arguments, new sizes, or a miss."""
        if is_tracing():  # a part of another program: its guards are that program's
            return self.fn(*args, **kwargs)
        try:
            found = self._refusals.of_call(key) or self._find_slowly(args, kwargs, flat, key)
        except AskAgain:
            self._cache.clock -= 1  # the same call
            return self(*args, **kwargs)
        if isinstance(found, Refusal):
            return self._refusals.run(found, self.fn, args, kwargs)
        entry, values, leaves = found
        return entry.serve(leaves, values)

    def _find_slowly(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: tuple[Any, ...], key: Hashable | None
    ) -> Found | Refusal:
        """The entry for a call, traced if need be, or why it cannot be (unless ``fullgraph`` was asked for)."""
        variables = self._layout.of(flat, len(args) + len(kwargs)) if self._layout else NO_VARIABLES
        reading = self._read(args, kwargs, variables)
        if isinstance(reading, Refusal):
            return reading
        leaves, structure, values = reading
        found: tuple[Branch, Entry] | Refusal | None = self._cache.find(self._with_answers(structure, leaves), values)
        if found is None:
            found = self._miss_or_refusal(structure, values, args, kwargs, variables, key)
        if isinstance(found, Refusal):
            return found
        branch, entry = found
        if key is not None:
            self._cache.remember(branch, flat, key, entry, values)
        entry.last_used = self._cache.clock
        return entry, values, leaves

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any], variables: Variables) -> Reading | Refusal:
        if self._fullgraph:
            return read(self.fn, args, kwargs, variables)
        refusal = self._refusals.of_unreadable(args, kwargs)
        if refusal is not None:
            return refusal
        start = time.perf_counter()
        try:
            return read(self.fn, args, kwargs, variables)
        except InputError as error:
            return self._refusals.add_unreadable(args, kwargs, error, time.perf_counter() - start)

    def _miss_or_refusal(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        variables: Variables,
        key: Hashable | None,
    ) -> tuple[Branch, Entry] | Refusal:
        """A program for the call, or why there is none; what the trace did is undone, so that the call can run."""
        state: list[State] = []
        found = self._refusals.of_structure(structure, values)
        if found is None:
            start = time.perf_counter()
            try:
                traced = self._miss(structure, values, args, kwargs, variables, state.append)
                self._refusals.forget_calls()
                return traced
            except _ALWAYS_RAISED:
                raise
            except (Exception, SystemExit) as error:
                if self._fullgraph and isinstance(error, SymShapeError):
                    raise
                seconds = time.perf_counter() - start
                read_by_then = state[0] if state else None
                found = self._refusals.add(structure, values, error, seconds, state=read_by_then), False
        if key is not None and not self._cache.admits(structure, values):
            self._refusals.remember(key, *found)
        return found[0]

    def _miss(
        self,
        structure: Hashable,
        values: tuple[int, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        variables: Variables,
        given_up: Callable[[State], object] | None = None,
    ) -> tuple[Branch, Entry]:
        """Traces a program for the call.  Nothing changes if that fails.

        Raises:
            AskAgain: there are more variables now.
        """
        with self._lock:
            if len(variables.values) != len(self._layout):
                raise AskAgain
            full = take_apart(self.fn, args, kwargs, variables)
            found = self._cache.find(self._with_answers(structure, full.leaves), values)
            if found is not None:  # another thread was first
                return found
            check_call(self.fn, args, kwargs)
            wanted, history = self._policies(full, values)
            miss = self._missed(full, values)
            self._layout.check(full, self._cache.clock)
            program = capture(self.fn, full, wanted, self._options, given_up, variables=self._layout.variables)
            grown = grow(program, self.fn, args, kwargs, self._layout, self._cache)
            if grown is not None:
                program, full, structure = grown
            entry = self._entry(program)
            self._ask(program.questions)
            branch, gone = self._cache.publish(self._with_answers(structure, full.leaves), entry)
            for each in gone:
                events.emit(events.Evicted(name_of(self.fn), each.number))
            self._history = history
            self._misses += 1
            self._traces += 1
            self._trace_ms += program.milliseconds
            if miss is not None:
                self._last_miss = miss
                if events.anybody():
                    events.emit(events.CacheMiss(name_of(self.fn), self.explain_miss()))
            if grown is not None:
                raise AskAgain
            return branch, entry

    def _entry(self, program: Program) -> Entry:
        runner_name, runner = make_runner(self._runner, program, self._graphs)
        build = builder(program.graph.output_tree)
        number = next(self._numbers)
        if not program.writes:
            return Entry(number, program, runner_name, runner, build)
        build = writing(program.writes, program.graph.output_tree.num_leaves, build)
        around = functools.partial(failing_as_eager, program=program, fn=self.fn)
        return Entry(number, program, runner_name, runner, build, around)

    def _with_answers(self, structure: Hashable, leaves: Sequence[Any]) -> Hashable:
        """The structure of a call with the answers to what programs asked of its arguments."""
        return (structure, answers(self._questions, leaves)) if self._questions else structure

    def _ask(self, questions: Collection[Question]) -> None:
        """From now on, calls are told apart by the answers to these questions too."""
        new = tuple(each for each in questions if each not in self._questions)
        if new:
            self._questions += new
            self._cache.ask(self._questions)

    def _missed(self, call: Call, values: tuple[int, ...]) -> Miss | None:
        """What can be said of a miss only now: the state changes; None for the first trace."""
        entries = self._cache.entries
        if not entries:
            return None
        changes = {id(branch): tuple(branch.state.changes()) for branch in self._cache.branches}
        places = [(each.held(), changes[id(branch)]) for branch in self._cache.branches for each in branch.entries()]
        answered = dict(zip(self._questions, answers(self._questions, call.leaves), strict=True))
        return Miss(name_of(self.fn), skeleton(call), values, modes(), places, answered)

    def _policies_of_arguments(
        self, call: Call, values: tuple[int, ...]
    ) -> tuple[dict[Source, Dim | Policy], dict[Source, Any]]:
        history = dict(self._history)
        if self._fixed_policies is not None:
            return dict(self._fixed_policies), history
        if self._dynamic is not None:
            return policies(self.fn, call, self._dynamic, Policy.STATIC), history
        wanted: dict[Source, Dim | Policy] = {}
        if call.has_records:  # a cache: it grows from call to call
            wanted = dict.fromkeys(changing_with_records(call), Policy.AUTO)
        for source, value in zip(sources_of(call), values, strict=True):
            if history.setdefault(source, value) != value:
                history[source] = _CHANGED
            if history[source] is _CHANGED:
                wanted[source] = Policy.AUTO
        wanted.update(policies(self.fn, call, None, Policy.STATIC))
        return wanted, history

    def _policies(self, call: Call, values: tuple[int, ...]) -> tuple[dict[Source, Dim | Policy], dict[Source, Any]]:
        """The policies for a trace, and what is then known of which integers change; those of variables do."""
        wanted, history = self._policies_of_arguments(call, values)
        if self._layout and self._dynamic is not False:
            paths = paths_of_variables(call)
            found = (each for each in sources_of(call) if isinstance(each, (Size, IntArg)) and each.arg in paths)
            for each in found:
                wanted.setdefault(each, Policy.AUTO)
        return wanted, history

    # -- looking at it
    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries, oldest first."""
        return self._cache.entries

    def stats(self) -> Stats:
        """Counters and times so far."""
        times = sorted(self._times)
        refusals = self._refusals
        return Stats(
            calls=self._cache.clock,
            traces=self._traces,
            hits=self._cache.clock - self._misses - refusals.fallbacks,
            misses=self._misses,
            evictions=self._cache.evictions,
            entries=len(self.entries),
            cuda_graphs=len(self._graphs),
            dispatch_us=times[len(times) // 2] if times else None,
            trace_ms=self._trace_ms + refusals.seconds * 1e3,
            fallbacks=refusals.fallbacks,
            refusals=refusals.attempts,
        )

    def explain_miss(self) -> str:
        """Why the last recompile happened: which guard of the nearest entry failed, in one sentence."""
        if self._last_miss is None:
            return "There was no recompile: no call has missed since the first trace."
        return self._last_miss.explain()

    def explain_fallback(self) -> str:
        """Which calls ran the function itself: for each reason its line, its calls, and how often it was tried."""
        return self._refusals.explain(self._cache.clock)

    def report(self) -> str:
        """For each entry: what runs it, and, where it is padded, what came of each symbol."""
        lines = []
        for entry in self.entries:
            lines.append(f"entry {entry.number}: {entry.runner.describe()}")
            if isinstance(entry.runner, PaddedRunner):
                lines += [f"  {line}" for line in str(entry.runner.padding()).splitlines()]
        return "\n".join(lines) or "no entries"

    def reset(self) -> None:
        """Forgets all entries, graphs, counters and what was learnt about changing sizes."""
        with self._lock:
            self._cache.clear()
            self._graphs.clear()
            self._refusals.clear()
            self._history = {}
            self._traces = self._misses = 0
            self._trace_ms = 0.0
            self._times.clear()
            self._last_miss = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """So that a compiled function works as a method."""
        return self if instance is None else functools.partial(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, pickled or not, starts without programs; what a module knows by its name stays that one object."""
        name = getattr(self, "__qualname__", "")
        if name and getattr(sys.modules.get(self.__module__), name, None) is self:
            return name
        make = functools.partial(type(self), fullgraph=self._fullgraph)
        return make, (self.fn, self._dynamic, self._runner, self._options)

    def again(self, fn: Callable[..., Any]) -> Compiled:
        """Another function, compiled like this one."""
        return type(self)(fn, self._dynamic, self._runner, self._options, fullgraph=self._fullgraph)

    def __getattr__(self, name: str) -> Any:
        """What is compiled answers for its own attributes; see also :mod:`symshape.frontends.compiled_module`."""
        if name.startswith("_") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __repr__(self) -> str:
        return f"<Compiled {name_of(self.fn)}: {len(self.entries)} entries, runner {self._runner}>"
