"""Memory that CUDA graphs share."""

from __future__ import annotations

import weakref
from typing import Any

import attrs
import torch


@attrs.define(eq=False)
class GraphPool:
    """A pool of the allocator for graphs that never run at the same time; there as long as one of them is.

    torch lets go of a pool with its last graph, and refuses to capture into what is left of it (an assertion about its
    ``use_count``).  That comes when graphs leave, and when the first capture for a pool fails after its end.
    """

    _graphs: weakref.WeakSet[Any] = attrs.field(factory=weakref.WeakSet, init=False)
    _handle: Any = attrs.field(default=None, init=False)

    def handle(self) -> Any:
        """What torch knows the pool by; another one if no graph has it any more."""
        if not self._graphs:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def keep(self, graph: Any) -> None:
        """A graph was captured for the pool."""
        self._graphs.add(graph)
