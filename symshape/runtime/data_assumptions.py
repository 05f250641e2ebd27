"""The data assumptions of traces, and when a function stops making them: a run in which one fails
is repeated eagerly.

Where an assumption often fails (``mask.nonzero().squeeze()`` of masks with one element), the
program is removed, and later traces assume nothing: they are refused like any branch on data, and
the function runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from symshape.runtime.cache import EntryCache
from symshape.runtime.failing import Failing
from symshape.tracing.data.assumptions import presuming

_PATIENCE = 4  # runs with a failed assumption before the program may be removed
# calls per tolerated failed run: programs are seldom faster than eager by more than this factor
_SELDOM = 8


class DataAssumptions:
    """The data assumptions of one compiled function: whether traces may make them.

    Args:
        cache: the function's entries.
        fullgraph: every program is kept, however often its assumptions fail.
    """

    def __init__(self, cache: EntryCache, fullgraph: bool) -> None:
        self._cache, self._fullgraph = cache, fullgraph
        self._allowed = True

    def around(self) -> AbstractContextManager[None]:
        """Return the context for a trace, in which data assumptions are allowed or not."""
        return presuming(self._allowed)

    def watcher(self) -> Callable[[Failing], None]:
        """Return the callback of a new program for a failed data assumption."""
        return self._failed if self._allowed and not self._fullgraph else lambda failing: None

    def _failed(self, failing: Failing) -> None:
        """Count a call whose assumption failed; remove its program if that happens often."""
        if failing.in_vain < _PATIENCE:
            return
        for entry in self._cache.entries:
            if entry.around is failing and _SELDOM * failing.in_vain > sum(
                each.calls for each in entry.seen.values()
            ):
                self._allowed = False
                self._cache.discard(entry, "what it took for granted of data often did not hold")

    def clear(self) -> None:
        """Allow data assumptions again."""
        self._allowed = True
