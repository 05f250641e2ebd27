"""What traces take for granted of data, and when they stop doing so: a run in which it does not hold is run twice.

Where that is often so (``mask.nonzero().squeeze()`` of masks with one element), the program leaves, and later traces
presume nothing: they are refused as any branch on data is, and the function runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from symshape.runtime.cache import EntryCache
from symshape.runtime.failing import Failing
from symshape.tracing.world_as_it_was import presuming

_PATIENCE = 4  # runs in vain
_SELDOM = 8  # of so many calls one in vain is borne: a run is no faster than eager by much more than that


class Presumptions:
    """Those of one compiled function.

    Args:
        cache: its entries.
        fullgraph: every program is wanted, however often it runs in vain.
    """

    def __init__(self, cache: EntryCache, fullgraph: bool) -> None:
        self._cache, self._fullgraph = cache, fullgraph
        self._allowed = True

    def around(self) -> AbstractContextManager[None]:
        """What a trace runs in."""
        return presuming(self._allowed)

    def watcher(self) -> Callable[[Failing], None]:
        """Return what a new program calls when one of its data assumptions fails."""
        return self._failed if self._allowed and not self._fullgraph else lambda failing: None

    def _failed(self, failing: Failing) -> None:
        """Count a call in which an assumption failed and the function itself gave a result."""
        if failing.in_vain < _PATIENCE:
            return
        for entry in self._cache.entries:
            if entry.around is failing and _SELDOM * failing.in_vain > sum(each.calls for each in entry.seen.values()):
                self._allowed = False
                self._cache.discard(entry, "what it took for granted of data often did not hold")

    def clear(self) -> None:
        """Forgets what failed."""
        self._allowed = True
