"""The look-up of the entry that serves a call: by the call's exact key, else by its structure and
integers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs

from symshape.calls.arguments import NO_VARIABLES, Variables
from symshape.calls.call_key import Reading, read
from symshape.calls.floats import with_leaves
from symshape.errors import InputError, Reason, UnsupportedError
from symshape.runtime.cache import Branch, EntryCache, Hit
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.known_calls import Found, KnownCalls
from symshape.runtime.rebinding import Rebinding
from symshape.runtime.variables import AskAgain, Layout

__all__ = ["Dispatcher", "UnservedCall"]

_TIMES = 512  # look-up times that are kept


@attrs.frozen(eq=False)
class UnservedCall:
    """A call that no entry serves, as it was read.

    Attributes:
        args, kwargs: the arguments, with a ``FloatLeaf`` for each float that varies.
        variables: the values outside the arguments that are read at each call.
        structure: the call's structure.
        asked: the structure, with the answers to programs' questions.
        values: the call's integers.
        key: the call's exact key, if it has one.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    variables: Variables
    structure: Hashable
    asked: Hashable
    values: tuple[int, ...]
    key: Hashable | None


Trace = Callable[[UnservedCall], tuple[Branch, Entry] | EagerCall]
"""Returns a new entry for a call, or how the call runs eagerly."""


class Dispatcher:
    """The look-up of entries for the calls of one compiled function.

    Args:
        fn: the function.
        cache: the function's entries.
        known: the call structures that are known from earlier calls.
        layout: the values that are read at each call beside the arguments.
        eager: decides which calls run eagerly.
        rebinding: moves entries to exchanged objects.
        trace: makes an entry for a call that no entry serves.
        fullgraph: a call that cannot be read raises.

    Attributes:
        cache, known, layout: see above.
        times: the last look-up times of warm calls, in µs.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        cache: EntryCache,
        known: KnownCalls,
        layout: Layout,
        eager: EagerCalls,
        rebinding: Rebinding,
        trace: Trace,
        fullgraph: bool,
    ) -> None:
        self.cache, self.known, self.layout = cache, known, layout
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._fn, self._eager, self._rebinding = fn, eager, rebinding
        self._trace, self._fullgraph = trace, fullgraph

    # -- the whole look-up
    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | EagerCall:
        """Return the entry that serves a call, traced if needed, or how the call runs eagerly.

        Raises:
            UnsupportedError: no entry can serve under a mode around the call.
        """
        while True:
            flat, key, hit = self.look_up(args, kwargs)
            leaves = with_leaves(flat)
            if hit is not None:
                return hit[0], hit[1], leaves
            branches: list[Branch] = []
            try:
                found = self.declined(key) or self.search(args, kwargs, leaves, key, branches)
            except AskAgain:
                continue
            for branch in branches:
                assert not isinstance(found, EagerCall)
                self.cache.remember(branch, leaves, key, found[0], found[1])
            return found

    def entry_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        """Return the entry that serves a call, traced if needed, the call's integers, and its
        leaves.

        Raises:
            UnsupportedError: the call runs eagerly.
        """
        found = self.find(args, kwargs)
        if isinstance(found, EagerCall):
            kind = None if found.refusal is None else found.refusal.kind
            raise UnsupportedError(found.reason, reason=kind or Reason.RUNS_EAGERLY)
        return found

    # -- by the exact key
    def look_up(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], Hashable | None, Hit | None]:
        """Return a call's flat arguments, its exact key, and the hit by that key if the call was
        served before.

        ``Compiled.__call__`` has the same three lines, to save their frames.

        Raises:
            UnsupportedError: a mode around the call cannot be a part of its key.
        """
        flat = self.layout.quick(args, kwargs)
        key = self.cache.makers[len(flat)](flat, kwargs)
        return flat, key, self.cache.find_exact(key)

    def time(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Time the look-up of a call by its exact key; record nothing if the call was not served
        before.
        """
        for _ in range(3):  # the first warms the machine's caches
            start = time.perf_counter()
            try:
                hit = self.look_up(args, kwargs)[2]
            except UnsupportedError:  # a mode around the call: it runs eagerly, and says so itself
                return
            if hit is None:
                return
            elapsed = (time.perf_counter() - start) * 1e6
        self.times.append(elapsed)

    def median_time(self) -> float | None:
        """Return the median look-up time of warm calls in µs; None before the first sample."""
        times = sorted(self.times)
        return times[len(times) // 2] if times else None

    # -- by structure and integers
    def declined(self, key: Hashable | None) -> EagerCall | None:
        """Return how a call with this key runs eagerly, if an earlier look-up said so; else
        None.
        """
        return self.layout.resting(self.cache.clock) or self._eager.of_call(key)

    def search(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flat: Sequence[Any],
        key: Hashable | None,
        branches: list[Branch],
    ) -> Found | EagerCall:
        """Return the entry for a call that has no hit by its key, or how the call runs eagerly.

        The caller stores the entry for the call's key in the branch that is added to ``branches``,
        if one is.

        Raises:
            AskAgain: the call is read in another way from now on.
        """
        known, layout = self.known, self.layout
        reading: Reading | EagerCall | None = known.reading(flat, key)
        variables = layout.of(flat, len(args) + len(kwargs)) if layout.variables else NO_VARIABLES
        if new := (reading is None):
            args, kwargs = layout.given(args, kwargs, flat)
            reading = self._read(args, kwargs, variables)
        if isinstance(reading, EagerCall):
            return reading
        leaves, structure, values = reading
        if new:
            structure = known.same(structure)
        asked = known.with_answers(structure, leaves) if known.questions else structure
        found: tuple[Branch, Entry] | EagerCall | None = self._of_entries(asked, values, key)
        if found is None:
            if not new:
                args, kwargs = layout.given(args, kwargs, flat)
            found = self._trace(
                UnservedCall(args, kwargs, variables, structure, asked, values, key)
            )
        if isinstance(found, EagerCall):
            return found
        branch, entry = found
        if key is not None:
            if new:
                known.learn(key, structure, values)
            branches.append(branch)
        entry.last_used = self.cache.clock
        return entry, values, leaves

    def _read(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], variables: Variables
    ) -> Reading | EagerCall:
        if self._fullgraph:
            return read(self._fn, args, kwargs, variables)
        refusal = self._eager.of_unreadable(args, kwargs)
        if refusal is not None:
            return refusal
        start = time.perf_counter()
        try:
            return read(self._fn, args, kwargs, variables)
        except InputError as error:
            return self._eager.unreadable(args, kwargs, error, time.perf_counter() - start)

    def _of_entries(
        self, structure: Hashable, values: tuple[int, ...], key: Hashable | None
    ) -> tuple[Branch, Entry] | EagerCall | None:
        """Return the existing entry for a call, or how the call runs eagerly; None if it is to be
        traced.

        A call that runs eagerly is remembered by its exact key, and is not looked up here
        meanwhile.
        """
        cache, eager = self.cache, self._eager
        unseen = eager.resting(structure, values)
        if unseen is None:
            start = eager.clock()
            found = cache.find(structure, values) or self._rebinding.find(structure, values)
            first = not eager.untraced
            call = None if found else eager.of_miss(structure, values)
            if call is None:
                return found
            if first and call.refusal is None:
                cache.history.note("fallback", cache.clock, values=values, text=call.reason)
            if not cache.admits(structure, values):
                if key is not None:
                    eager.remember(key, call)
                return call
            milliseconds, last = (eager.clock() - start) * 1e3, cache.last_hit(structure)
            if call.refusal or not eager.programs.fruitless(
                call.account, milliseconds, cache.clock, last
            ):
                return call
            unseen = attrs.evolve(call, by_state=True)
        if key is not None:
            cache.forget(key)  # a memo hit would compare the state
            eager.remember(key, unseen)
        return unseen

    def clear(self) -> None:
        """Forget how calls were read, and the times; the questions of programs stay."""
        self.known.clear()
        self.times.clear()
