"""Where the graphs of one compiled function are kept: a memory pool for each stream, a bounded number of graphs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import attrs
import torch


@attrs.frozen
class GraphKey:
    """What one captured graph is for.  Made only by :meth:`CudaGraphRunner.key`, for capture and look-up alike."""

    program: int
    sizes: tuple[int, ...]
    stream: int


class GraphStore:
    """The graphs of one compiled function: a memory pool for each stream, at most ``limit`` graphs (LRU)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._graphs: OrderedDict[GraphKey, Any] = OrderedDict()
        self._pools: dict[int, Any] = {}
        self._programs = 0
        self.lock = threading.RLock()

    @property
    def limit(self) -> int:
        """How many graphs are kept at most."""
        return self._limit

    def number(self) -> int:
        """A number for a program, unique in this store."""
        self._programs += 1
        return self._programs

    def pool(self, stream: int) -> Any:
        """The memory pool that the graphs of one stream share: they never run at the same time."""
        found = self._pools.get(stream)
        if found is None:
            found = self._pools[stream] = torch.cuda.graph_pool_handle()
        return found

    def get(self, key: GraphKey) -> Any:
        """The graph for ``key``, now the most recently used."""
        found = self._graphs.get(key)
        if found is not None:
            self._graphs.move_to_end(key)
        return found

    def put(self, key: GraphKey, captured: Any) -> None:
        """Keeps a graph; the least recently used one leaves if there are too many."""
        self._graphs[key] = captured
        while len(self._graphs) > self._limit:
            self._graphs.popitem(last=False)

    def drop(self, program: int) -> None:
        """Forgets the graphs of one program."""
        for key in [key for key in self._graphs if key.program == program]:
            del self._graphs[key]

    def of(self, program: int) -> int:
        """How many graphs one program has."""
        return sum(key.program == program for key in self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def clear(self) -> None:
        """Forgets all graphs and their pool."""
        self._graphs.clear()
        self._pools.clear()
