"""What serves a call that the memo does not know, and how often one looks where looking is in vain."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from symshape.runtime.cache import Branch, EntryCache
from symshape.runtime.entry import Entry
from symshape.runtime.rebinding import Rebinding
from symshape.runtime.trace_budget import TraceBudget, Untraced


class Finder:
    """Finds what serves a call of one compiled function without a trace.

    Args:
        cache: the function's entries.
        rebinding: takes entries over to exchanged objects.
        budget: says which misses are not traced.
        why: says why the last trace was needed.
    """

    def __init__(self, cache: EntryCache, rebinding: Rebinding, budget: TraceBudget, why: Callable[[], str]) -> None:
        self._cache, self._rebinding, self._budget, self._why = cache, rebinding, budget, why

    def find(
        self, structure: Hashable, values: tuple[int, ...], key: Hashable | None
    ) -> tuple[Branch, Entry] | Untraced | None:
        """An entry, or what runs the call as it is; None if it is to be traced, or is refused.

        Args:
            structure: of the call.
            values: its integers.
            key: the exact key of the call, by which it need not come here again while it runs as it is.
        """
        cache, budget = self._cache, self._budget
        unseen = budget.resting(structure, values)
        if unseen is None:
            start = budget.clock()
            found = cache.find(structure, values) or self._rebinding.find(structure, values)
            untraced = None if found else self._not_paying(structure, values)
            if untraced is None:
                return found
            if cache.admits(structure, values):
                seconds = budget.clock() - start
                unseen = budget.in_vain(untraced, seconds, cache.clock, cache.last_hit(structure))
            elif key is not None:
                budget.remember(key, untraced)
            if unseen is None:
                return untraced
        if key is not None:
            cache.forget(key)  # there the state would be compared
            budget.remember(key, unseen)
        return unseen

    def _not_paying(self, structure: Hashable, values: tuple[int, ...]) -> Untraced | None:
        """What runs a miss as it is because its trace would not pay."""
        first, found = not self._budget.untraced, self._budget.declines(structure, values, self._why)
        if found is not None and first:
            self._cache.history.note("fallback", self._cache.clock, values=values, text=found.account.reason)
        return found
