"""The memory pool that CUDA graphs share."""

from __future__ import annotations

import weakref
from typing import Any

import attrs
import torch


@attrs.define(eq=False)
class GraphPool:
    """An allocator pool for graphs that never run at the same time; it lives as long as one of
    them.

    torch releases a pool with its last graph, and refuses a later capture into the rest of it (an
    assertion about its ``use_count``).  That happens when graphs are removed, and when the first
    capture for a pool fails after its end.
    """

    _graphs: weakref.WeakSet[Any] = attrs.field(factory=weakref.WeakSet, init=False)
    _handle: Any = attrs.field(default=None, init=False)

    def handle(self) -> Any:
        """Return torch's handle of the pool; a new one if no graph uses the old pool any more."""
        if not self._graphs:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def keep(self, graph: Any) -> None:
        """Record that a graph was captured into the pool."""
        self._graphs.add(graph)
