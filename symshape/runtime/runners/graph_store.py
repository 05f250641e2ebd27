"""What one compiled function keeps on the device: captured graphs and buckets of all its programs, in one budget.

Whatever is kept was expensive to make.  It leaves only for something new that has clearly more credit: more sizes than
fit never drive each other out, they run without a graph.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import attrs
import torch

from symshape import forks
from symshape.runtime.policy.keeping import ASKED, Credit, leaving
from symshape.runtime.policy.promise import Promise
from symshape.runtime.runners.borrowing import Lender
from symshape.runtime.runners.graph_pool import GraphPool

_REMEMBERED = 4
"""Things whose credit is remembered while there is no room for them, for each that may be kept."""


@attrs.frozen
class GraphKey:
    """What one captured graph is for.  Made only by :meth:`CudaGraphRunner.key`, for capture and look-up alike."""

    program: int
    sizes: tuple[int, ...]
    stream: int


@attrs.frozen
class Weight:
    """Bytes on the device.

    Attributes:
        own: results, and other memory that nobody else may use.
        shared: what comes and goes while it runs; graphs of one pool use the same memory for that.
        buffers: what its inputs are copied to; those of one pool use the same memory, if there is enough of it.
    """

    own: int = 0
    shared: int = 0
    buffers: int = 0


@attrs.define(eq=False)
class Lease:
    """A place in the store.

    Attributes:
        item: what is kept.
        program: the number of the program that it belongs to.
        pool: which of the pools it shares memory with.
        weight: its bytes.
        credit: what its uses have saved.
        buffers: what its inputs are copied to, where others use it, too.
        leave: called when it leaves the store.
        evicted: called before that, where it leaves because there is no room for both it and something else.
        gone: whether it has left the store.
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
    """Graphs and buckets within a budget of their number and, if given, of their bytes.

    Whoever uses the store holds its lock.

    Args:
        limit: how many are kept at most.
        memory: how many bytes they may take together; None for no limit.

    Attributes:
        clock: calls so far.
        lock: held by whoever looks something up, runs it or changes the store.
        evictions: how many had to leave.
        lender: lends results that turn to poison, for ``Options(check_borrowed=True)``.
        promise: what the calls of the compiled function took so far, and what was spent on making things.
    """

    def __init__(self, limit: int, memory: int | None = None) -> None:
        self._limit = self._each = limit
        self._memory = memory
        self._leases: dict[Hashable, Lease] = {}
        self._wanted: OrderedDict[Hashable, Credit] = OrderedDict()
        self._pools: dict[int, GraphPool] = {}
        self._buffers: dict[int, weakref.ref[torch.Tensor]] = {}  # by stream: as long as anybody uses them
        self._programs = 0
        self.clock = 0
        self.evictions = 0
        self.lender = Lender()
        self.promise = Promise()
        self.lock = forks.lock()

    @property
    def limit(self) -> int:
        """How many are kept at most."""
        return self._limit

    @property
    def memory(self) -> int | None:
        """How many bytes they may take together."""
        return self._memory

    def widen(self, pieces: int) -> None:
        """Keeps as many for each of so many pieces more: a call of a program in pieces needs one of each.

        A negative number takes back what a program had, once it lets go of its pieces.
        """
        with self.lock:
            self._limit += self._each * pieces

    def number(self) -> int:
        """A number for a program, unique in this store."""
        self._programs += 1
        return self._programs

    def pool(self, stream: int) -> GraphPool:
        """The memory pool that the graphs of one stream share: they never run at the same time."""
        return self._pools.setdefault(stream, GraphPool())

    def share(self, stream: int, device: torch.device, count: int) -> torch.Tensor:
        """So many bytes, which all buckets of one stream use in turn; more where a larger one was there before."""
        found = self._shared_with(stream)
        if found is None or found.numel() < count or found.device != device:
            found = torch.zeros(count, dtype=torch.uint8, device=device)
            self._buffers[stream] = weakref.ref(found)
        return found

    def _shared_with(self, stream: int) -> torch.Tensor | None:
        here = self._buffers.get(stream)
        return None if here is None else here()

    def get(self, key: Hashable) -> Any:
        """What is kept for ``key``, used now; None if nothing is."""
        self.clock += 1
        found = self._leases.get(key)
        if found is None:
            return None
        found.credit.use(self.clock)
        return found.item

    def peek(self, key: Hashable) -> Any:
        """What is kept for ``key``, without using it; None if nothing is."""
        found = self._leases.get(key)
        return None if found is None else found.item

    def admits(
        self,
        key: Hashable,
        pool: int = 0,
        weight: Weight | None = None,
        credit: float | None = None,
        calls: int = 1,
    ) -> bool:
        """Return whether there is room for something new; what has less credit leaves for it.

        Args:
            key: of what is new.
            pool: the pool that it is to share memory with.
            weight: its bytes.
            credit: ms that it would have saved; None where calls are counted instead.
            calls: how many calls wanted it since it was asked for last.
        """
        weight = weight or Weight()
        needed = weight.own + weight.shared + weight.buffers
        if self._limit < 1 or (self._memory is not None and needed > self._memory):
            return False
        if self._fits(pool, weight):
            return True
        credit = self._asked(key, calls) if credit is None else credit
        if not credit:
            return False
        there = {
            each: (lease.credit.now(self.clock), lease.weight.own + lease.weight.buffers)
            for each, lease in self._all().items()
        }
        gone = leaving(there, credit, lambda without: self._fits(pool, weight, without))
        for each in gone or ():
            lease = self._leases.get(each)
            if lease is not None and lease.evicted is not None:
                lease.evicted()
            self._remove(each)
            self.evictions += 1
        return gone is not None

    def _asked(self, key: Hashable, calls: int) -> float:
        """Count calls that want something; return its credit, 0 until enough calls have."""
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
        """Keeps something that was admitted, in place of what was kept for the key."""
        self._remove(key)
        wanted = self._wanted.pop(key, None) or Credit()
        lease = Lease(item, program, pool, weight or Weight(), wanted, buffers, leave, evicted)
        lease.credit.use(self.clock)
        self._leases[key] = lease
        return lease

    def remove(self, key: Hashable) -> None:
        """Lets something go, if it is kept."""
        self._remove(key)

    def drop(self, program: int) -> None:
        """Lets go of everything of one program."""
        for key in [key for key, each in self._all().items() if each.program == program]:
            self._remove(key)

    def of(self, program: int) -> list[Any]:
        """What is kept of one program, oldest first."""
        return [each.item for each in self._all().values() if each.program == program]

    def bytes(self) -> int:
        """The bytes of all that is kept: what each has for itself, and for each pool the most that one shares."""
        return self._bytes({}, 0)

    def clear(self) -> None:
        """Forgets everything, the pools, and what the calls took."""
        for key in self._all():
            self._remove(key)
        self._wanted.clear()
        self._pools.clear()
        self.promise.clear()

    def __len__(self) -> int:
        return len(self._leases)

    def _all(self) -> dict[Hashable, Lease]:
        """What is kept, copied at once: an entry whose objects die lets go of its own at any moment."""
        return self._leases.copy()

    def _fits(self, pool: int, weight: Weight, without: frozenset[Hashable] = frozenset()) -> bool:
        if len(self._leases) - len(without) >= self._limit:
            return False
        if self._memory is None:
            return True
        there = self._shared_with(pool)
        new = 0 if there is not None and there.nbytes >= weight.buffers else weight.buffers
        return self._bytes({pool: weight.shared}, weight.own + new, without) <= self._memory

    def _bytes(self, shared: dict[int, int], own: int, without: frozenset[Hashable] = frozenset()) -> int:
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
