"""The store of one compiled function's captured graphs and buckets, for all its programs, within
one budget.

Everything in the store was expensive to make.  An item is removed only for a new one that has
clearly more credit: if more sizes come than fit, they do not evict each other in turn, but some run
without a graph.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import attrs
import torch

from symshape import forks
from symshape.runtime.policy.eviction import ASKED, Credit, leaving
from symshape.runtime.policy.promise import Promise
from symshape.runtime.runners.cuda.pool import GraphPool
from symshape.runtime.runners.padded.lent_results import Lender

_REMEMBERED = 4
"""The number of items without room whose credit is remembered, for each item that may be stored."""


@attrs.frozen
class GraphKey:
    """The key of one captured graph.  Only :meth:`CudaGraphRunner.key` makes it, for capture and
    for look-up.
    """

    program: int
    sizes: tuple[int, ...]
    stream: int


@attrs.frozen
class Weight:
    """The bytes of a stored item on the device.

    Attributes:
        own: results, and other memory that no other item may use.
        shared: temporary memory of a run; graphs of one pool reuse the same memory for it.
        buffers: the buffers that inputs are copied to; items of one pool use the same memory, if
            there is enough of it.
    """

    own: int = 0
    shared: int = 0
    buffers: int = 0


@attrs.define(eq=False)
class Lease:
    """An item's place in the store.

    Attributes:
        item: the stored graph or bucket.
        program: the number of the program that it belongs to.
        pool: the key of the pool that it shares memory with.
        weight: its bytes.
        credit: the time that its uses have saved.
        buffers: the shared memory that its inputs are copied to; None if it shares none.
        leave: called when it is removed from the store.
        evicted: called before ``leave`` if it is removed to make room.
        gone: whether it was removed.
    """

    item: Any
    program: int
    pool: int
    weight: Weight
    credit: Credit = attrs.field(factory=Credit)
    buffers: torch.Tensor | None = None
    leave: Callable[[], object] | None = None
    evicted: Callable[[], object] | None = None
    gone: bool = False


class GraphStore:
    """The graphs and buckets of one compiled function, within a budget of number and, if given, of
    bytes.

    Callers hold the store's lock.

    Args:
        limit: the most items.
        memory: the most bytes of all items together; None for no limit.

    Attributes:
        clock: the number of calls so far.
        lock: held during look-ups, runs and changes of the store.
        evictions: the number of items that were removed to make room.
        lender: lends results that are poisoned later, for ``Options(check_borrowed=True)``.
        promise: the time that the function's calls took so far, and the time spent on making items.
    """

    def __init__(self, limit: int, memory: int | None = None) -> None:
        self._limit = self._each = limit
        self._memory = memory
        self._leases: dict[Hashable, Lease] = {}
        self._wanted: OrderedDict[Hashable, Credit] = OrderedDict()
        self._pools: dict[int, GraphPool] = {}
        self._buffers: dict[
            int, weakref.ref[torch.Tensor]
        ] = {}  # by stream; alive while a bucket uses them
        self._programs = 0
        self.clock = 0
        self.evictions = 0
        self.lender = Lender()
        self.promise = Promise()
        self.lock = forks.lock()

    @property
    def limit(self) -> int:
        """The most items."""
        return self._limit

    @property
    def memory(self) -> int | None:
        """The most bytes of all items together; None for no limit."""
        return self._memory

    def widen(self, pieces: int) -> None:
        """Raise the limit for ``pieces`` more pieces, since a call of a program in pieces needs an
        item of each.

        A negative number lowers the limit again, when a program releases its pieces.
        """
        with self.lock:
            self._limit += self._each * pieces

    def number(self) -> int:
        """Return a number for a program, unique in this store."""
        self._programs += 1
        return self._programs

    def pool(self, stream: int) -> GraphPool:
        """Return the memory pool of the graphs of one stream, which never run at the same time."""
        return self._pools.setdefault(stream, GraphPool())

    def share(self, stream: int, device: torch.device, count: int) -> torch.Tensor:
        """Return at least ``count`` bytes that all buckets of one stream use in turn."""
        found = self._shared_with(stream)
        if found is None or found.numel() < count or found.device != device:
            found = torch.zeros(count, dtype=torch.uint8, device=device)
            self._buffers[stream] = weakref.ref(found)
        return found

    def _shared_with(self, stream: int) -> torch.Tensor | None:
        here = self._buffers.get(stream)
        return None if here is None else here()

    def get(self, key: Hashable) -> Any:
        """Count a call, and return the item for ``key``, crediting its use; None if there is
        none.
        """
        self.clock += 1
        found = self._leases.get(key)
        if found is None:
            return None
        found.credit.use(self.clock)
        return found.item

    def peek(self, key: Hashable) -> Any:
        """Return the item for ``key`` without crediting a use; None if there is none."""
        found = self._leases.get(key)
        return None if found is None else found.item

    def admits(
        self,
        key: Hashable,
        pool: int = 0,
        weight: Weight | None = None,
        credit: float | None = None,
        calls: int = 1,
        places: int = 1,
    ) -> bool:
        """Return whether there is room for a new item; items with less credit are removed for it.

        Args:
            key: the key of the new item.
            pool: the pool that the item is to share memory with.
            weight: its bytes.
            credit: the ms that it would have saved; None if calls are counted instead.
            calls: the number of calls that wanted it since the last request.
            places: the number of items that there has to be room for, this one and those that will
                be made for it.
        """
        weight = weight or Weight()
        needed = weight.own + weight.shared + weight.buffers
        if self._limit < places or (self._memory is not None and needed > self._memory):
            return False
        if self._fits(pool, weight, places):
            return True
        credit = self._asked(key, calls) if credit is None else credit
        if not credit:
            return False
        there = {
            each: (lease.credit.now(self.clock), lease.weight.own + lease.weight.buffers)
            for each, lease in self._all().items()
        }
        gone = leaving(there, credit, lambda without: self._fits(pool, weight, places, without))
        for each in gone or ():
            lease = self._leases.get(each)
            if lease is not None and lease.evicted is not None:
                lease.evicted()
            self._remove(each)
            self.evictions += 1
        return gone is not None

    def _asked(self, key: Hashable, calls: int) -> float:
        """Count calls that want an item, and return its credit; 0 until enough calls have."""
        found = self._wanted.setdefault(key, Credit())
        self._wanted.move_to_end(key)
        while len(self._wanted) > _REMEMBERED * self._limit:
            self._wanted.popitem(last=False)
        found.use(self.clock, calls)
        credit = found.now(self.clock)
        return credit if credit >= ASKED else 0.0

    def put(
        self,
        key: Hashable,
        item: Any,
        *,
        program: int,
        pool: int = 0,
        weight: Weight | None = None,
        buffers: torch.Tensor | None = None,
        leave: Callable[[], object] | None = None,
        evicted: Callable[[], object] | None = None,
    ) -> Lease:
        """Store an admitted item in place of the former item of its key, and return its lease."""
        self._remove(key)
        wanted = self._wanted.pop(key, None) or Credit()
        lease = Lease(item, program, pool, weight or Weight(), wanted, buffers, leave, evicted)
        lease.credit.use(self.clock)
        self._leases[key] = lease
        return lease

    def remove(self, key: Hashable) -> None:
        """Remove the item of a key, if there is one."""
        self._remove(key)

    def drop(self, program: int) -> None:
        """Remove all items of one program."""
        for key in [key for key, each in self._all().items() if each.program == program]:
            self._remove(key)

    def of(self, program: int) -> list[Any]:
        """Return the items of one program, oldest first."""
        return [each.item for each in self._all().values() if each.program == program]

    def bytes(self) -> int:
        """Return the bytes of all items: each item's own memory, and for each pool the most that
        one item shares.
        """
        return self._bytes({}, 0)

    def clear(self) -> None:
        """Remove all items, the pools, and the record of times."""
        for key in self._all():
            self._remove(key)
        self._wanted.clear()
        self._pools.clear()
        self.promise.clear()

    def __len__(self) -> int:
        return len(self._leases)

    def _all(self) -> dict[Hashable, Lease]:
        """Return a copy of all leases: an entry whose objects die may remove its own at any
        moment.
        """
        return self._leases.copy()

    def _fits(
        self,
        pool: int,
        weight: Weight,
        places: int,
        without: frozenset[Hashable] = frozenset(),
    ) -> bool:
        if len(self._leases) - len(without) + places > self._limit:
            return False
        if self._memory is None:
            return True
        there = self._shared_with(pool)
        new = 0 if there is not None and there.nbytes >= weight.buffers else weight.buffers
        return self._bytes({pool: weight.shared}, weight.own + new, without) <= self._memory

    def _bytes(
        self, shared: dict[int, int], own: int, without: frozenset[Hashable] = frozenset()
    ) -> int:
        buffers: dict[int, int] = {}
        for each in [lease for key, lease in self._all().items() if key not in without]:
            own += each.weight.own + (each.weight.buffers if each.buffers is None else 0)
            shared[each.pool] = max(shared.get(each.pool, 0), each.weight.shared)
            if each.buffers is not None:
                buffers[id(each.buffers)] = each.buffers.nbytes
        return own + sum(shared.values()) + sum(buffers.values())

    def _remove(self, key: Hashable) -> None:
        lease = self._leases.pop(key, None)
        if lease is not None:
            lease.gone = True
            if lease.leave is not None:
                lease.leave()
