"""``symshape.compile``: a function that is traced when a call needs it and dispatched in microseconds when not."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import count
from typing import Any

import attrs
import torch

from guards.sets.sources import Source
from symshape import events
from symshape.calls.arguments import Call, sources_of, take_apart
from symshape.calls.call_key import FLAT, ExactKey, read
from symshape.calls.modes import modes
from symshape.calls.outputs import builder
from symshape.calls.policies import Dynamic, policies
from symshape.dims import Dim, Policy
from symshape.errors import InputError
from symshape.frontends.differences import Miss
from symshape.frontends.stats import Stats
from symshape.frontends.trace import check_call
from symshape.options import Options
from symshape.runtime.cache import Branch, Entry, EntryCache
from symshape.runtime.runners.choice import RunnerName, check_name, make_runner
from symshape.runtime.runners.cuda_graph import GraphStore
from symshape.runtime.runners.padded import PaddedRunner
from symshape.runtime.verify import Verifier
from symshape.tracing.capture import capture
from symshape.tracing.mode import is_tracing
from symshape.user_code import name_of

_CHANGED = object()
_TIMED_MASK = 255


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    dynamic: Dynamic = None,
    runner: RunnerName = "auto",
    options: Options | None = None,
) -> Any:
    """Answers a function that computes what ``fn`` computes, through traced programs that it keeps and reuses.

    The first call is traced with static sizes; a call with other sizes is traced with those that changed as symbols;
    from then on no call is traced until the program takes another branch.

    Args:
        fn: a function or an ``nn.Module``; without it, a decorator.
        dynamic: ``None`` as above; ``True``: symbols from the first call on; ``False``: one program for each tuple of
            sizes; a description by argument as in :func:`symshape.trace`.
        runner: ``eager`` runs op by op, ``inductor`` compiles each program with Inductor, ``cudagraph`` replays a CUDA
            graph for each exact set of sizes, ``auto`` is ``cudagraph`` for CUDA programs that allow it, else
            ``eager``; ``padded`` serves ranges of sizes by one program each, where that is proven to be right.
        options: see :class:`symshape.Options`.

    Raises:
        InputError: ``fn`` is not callable, or (when called) an argument cannot be traced.
        RunnerError: there is no such runner.

    >>> import torch, symshape
    >>> double = symshape.compile(lambda x: x * 2)
    >>> for n in (8, 1, 2, 0):
    ...     assert double(torch.ones(n)).shape == (n,)
    >>> double.stats().traces
    2
    """
    if fn is None:
        return functools.partial(compile, dynamic=dynamic, runner=runner, options=options)
    if not callable(fn):
        raise InputError(f"symshape.compile needs a function or a module, not a {type(fn).__name__}")
    if isinstance(fn, Compiled):
        raise InputError("this function is compiled already")
    if options is not None and not isinstance(options, Options):
        raise InputError(f"options must be a symshape.Options, not {options!r}")
    return compiled_with(options)(fn, dynamic, check_name(runner), options or Options())


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
    ) -> None:
        self.fn = fn
        self._fixed_policies = fixed_policies
        self._dynamic = dynamic
        self._runner = runner
        self._options = options
        self._cache = EntryCache(options.max_entries, options.memo_size, exact)
        self._graphs = GraphStore(options.max_cuda_graphs)
        self._history: dict[Source, Any] = {}
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
        key = cache.makers[len(leaves)](leaves, kwargs)
        found = cache.find_exact(key)
        if found is not None:
            entry, values = found
            entry.last_used = tick
            return entry.build(entry.run(leaves, values))
        return self._slow_call(args, kwargs, leaves, key)

    def _time_dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Now and then: how long the quick look-up of a warm call takes."""
        cache = self._cache
        for _ in range(3):  # the first warms the caches of the machine
            start = time.perf_counter()
            leaves = (*args, *kwargs.values()) if kwargs else args
            if cache.find_exact(cache.makers[len(leaves)](leaves, kwargs)) is None:
                return
            elapsed = (time.perf_counter() - start) * 1e6
        self._times.append(elapsed)

    def _slow_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: tuple[Any, ...], key: Hashable | None
    ) -> Any:
        """A call that the memo does not know: nested arguments, new sizes, or a miss."""
        if is_tracing():  # a part of another program: its guards are that program's
            return self.fn(*args, **kwargs)
        entry, values, leaves = self._find_slowly(args, kwargs, flat, key)
        return entry.build(entry.run(leaves, values))

    def _find_slowly(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: tuple[Any, ...], key: Hashable | None
    ) -> tuple[Entry, tuple[int, ...], Sequence[Any]]:
        leaves, structure, values = read(self.fn, args, kwargs)
        branch, entry = self._cache.find(structure, values) or self._miss(structure, values, args, kwargs)
        if key is not None:
            self._cache.remember(branch, flat, key, entry, values)
        entry.last_used = self._cache.clock
        return entry, values, leaves

    def _miss(
        self, structure: Hashable, values: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Branch, Entry]:
        """Traces a program for the call.  Nothing changes if that fails."""
        with self._lock:
            found = self._cache.find(structure, values)
            if found is not None:  # another thread was first
                return found
            check_call(self.fn, args, kwargs)
            full = take_apart(self.fn, args, kwargs)
            wanted, history = self._policies(full, values)
            miss = self._missed(full, values)
            program = capture(self.fn, full, wanted, self._options)
            runner_name, runner = make_runner(self._runner, program, self._graphs)
            entry = Entry(next(self._numbers), program, runner_name, runner, builder(program.graph.output_tree))
            branch, gone = self._cache.publish(structure, entry)
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
            return branch, entry

    def _missed(self, call: Call, values: tuple[int, ...]) -> Miss | None:
        """What can be said of a miss only now: the state changes; None for the first trace."""
        entries = self._cache.entries
        if not entries:
            return None
        skeleton = attrs.evolve(call, leaves=tuple(None if isinstance(x, torch.Tensor) else x for x in call.leaves))
        changes = {id(branch): tuple(branch.state.changes()) for branch in self._cache.branches}
        places = {entry: changes[id(branch)] for branch in self._cache.branches for entry in branch.entries()}
        return Miss(name_of(self.fn), skeleton, values, modes(), places)

    def _policies(self, call: Call, values: tuple[int, ...]) -> tuple[dict[Source, Dim | Policy], dict[Source, Any]]:
        """The policies for a trace, and what is then known of which integers change."""
        history = dict(self._history)
        if self._fixed_policies is not None:
            return dict(self._fixed_policies), history
        if self._dynamic is not None:
            return policies(self.fn, call, self._dynamic, Policy.STATIC), history
        wanted: dict[Source, Dim | Policy] = {}
        for source, value in zip(sources_of(call), values, strict=True):
            if history.setdefault(source, value) != value:
                history[source] = _CHANGED
            if history[source] is _CHANGED:
                wanted[source] = Policy.AUTO
        wanted.update(policies(self.fn, call, None, Policy.STATIC))
        return wanted, history

    # -- looking at it
    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries, oldest first."""
        return self._cache.entries

    def stats(self) -> Stats:
        """Counters and times so far."""
        times = sorted(self._times)
        return Stats(
            calls=self._cache.clock,
            traces=self._traces,
            hits=self._cache.clock - self._misses,
            misses=self._misses,
            evictions=self._cache.evictions,
            entries=len(self.entries),
            cuda_graphs=len(self._graphs),
            dispatch_us=times[len(times) // 2] if times else None,
            trace_ms=self._trace_ms,
        )

    def explain_miss(self) -> str:
        """Why the last recompile happened: which guard of the nearest entry failed, in one sentence."""
        if self._last_miss is None:
            return "There was no recompile: no call has missed since the first trace."
        return self._last_miss.explain()

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
            self._history = {}
            self._traces = self._misses = 0
            self._trace_ms = 0.0
            self._times.clear()
            self._last_miss = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """So that a compiled function works as a method."""
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """A compiled module answers the module's own attributes (``parameters()``, ``train()`` …)."""
        if name.startswith("_") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __repr__(self) -> str:
        return f"<Compiled {name_of(self.fn)}: {len(self.entries)} entries, runner {self._runner}>"


class Verified(Compiled):
    """A compiled function that eager verifies for a sample of its calls (``Options.verify``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verifier = Verifier(name_of(self.fn), self.fn, self._options.verify, self._cache.discard)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Serves the call by an entry, or by eager once an entry has been held against it."""
        if not self._verifier.due() or is_tracing():
            return super().__call__(*args, **kwargs)
        self._cache.clock += 1
        return self._verifier.call(self._find, args, kwargs)

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, tuple[int, ...], Sequence[Any]]:
        """The entry that serves a call, its integers, and the call's leaves."""
        leaves = (*args, *kwargs.values()) if kwargs else args
        key = self._cache.makers[len(leaves)](leaves, kwargs)
        found = self._cache.find_exact(key)
        return (*found, leaves) if found is not None else self._find_slowly(args, kwargs, leaves, key)

    def stats(self) -> Stats:
        """Counters and times so far."""
        return attrs.evolve(super().stats(), verified=self._verifier.verified)


def compiled_with(options: Options | None) -> type[Compiled]:
    """The class of compiled functions that these options ask for."""
    return Verified if options is not None and options.verify else Compiled
