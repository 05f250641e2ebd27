"""The look-up of a program for a call that the memo does not know, and how often a fruitless look-up is repeated."""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.eager_calls import EagerCall, EagerCalls
from symshape.runtime.entry import Entry
from symshape.runtime.rebinding import Rebinding

__all__ = ["Finder"]


class Finder:
    """The look-up of an entry for a call of one compiled function, without a trace.

    Args:
        cache: the function's entries.
        rebinding: moves entries to exchanged objects.
        eager: decides which calls run eagerly.
    """

    def __init__(self, cache: EntryCache, rebinding: Rebinding, eager: EagerCalls) -> None:
        self._cache, self._rebinding, self._eager = cache, rebinding, eager

    def find(
        self, structure: Hashable, values: tuple[int, ...], key: Hashable | None
    ) -> tuple[Branch, Entry] | EagerCall | None:
        """Return the entry for a call, or how the call runs eagerly; None if it is to be traced.

        Args:
            structure: the call's structure.
            values: the call's integers.
            key: the exact key of the call; while the call runs eagerly, it is found by this key and not looked up here.
        """
        cache, eager = self._cache, self._eager
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
            if call.refusal or not eager.programs.fruitless(call.account, milliseconds, cache.clock, last):
                return call
            unseen = attrs.evolve(call, by_state=True)
        if key is not None:
            cache.forget(key)  # a memo hit would compare the state
            eager.remember(key, unseen)
        return unseen
