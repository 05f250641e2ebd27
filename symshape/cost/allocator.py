"""A simulator of the CUDA caching allocator: the segments that it reserves for a sequence of
allocations.

It follows torch's native allocator (2.11 to 2.14): sizes are rounded up to 512 bytes, requests of
at most 1 MiB come from segments of 2 MiB, requests below 10 MiB from segments of 20 MiB, and larger
ones from a segment of their own, rounded up to 2 MiB. The smallest free block that is large enough
serves a request, and is split if enough is left. Each stream and each graph pool has blocks of its
own.

>>> allocator = Allocator()
>>> first = allocator.allocate(3 * 2**20)
>>> second = allocator.allocate(5 * 2**20)
>>> allocator.reserved, allocator.allocated
(20971520, 8388608)
>>> allocator.free(first)
>>> allocator.allocate(2 * 2**20).address == first.address
True
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable

import attrs

BLOCK = 512  # bytes: every allocation is a multiple of it (kMinBlockSize)
SMALL = 2**20  # bytes: the largest request that comes from a small segment (kSmallSize)
SMALL_SEGMENT = 2 * 2**20  # bytes (kSmallBuffer)
# bytes: requests from here on have a segment of their own (kMinLargeAlloc)
LARGE_REQUEST = 10 * 2**20
LARGE_SEGMENT = 20 * 2**20  # bytes (large_segment_size)
# bytes: the multiple of which a segment for one large request is (kRoundLarge)
ROUND_LARGE = 2 * 2**20
_APART = 2**60  # bytes between growing segments: more than one can have


class OutOfMemory(Exception):
    """Raised by the simulated allocator where torch would raise ``torch.OutOfMemoryError``."""


def rounded(size: int) -> int:
    """Return the bytes that the allocator hands out for a request.

    >>> rounded(1), rounded(512), rounded(513)
    (512, 512, 1024)
    """
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


def segment_size(size: int) -> int:
    """Return the bytes of a new segment for a rounded request.

    >>> [segment_size(each * 2**20) // 2**20 for each in (1, 2, 9, 10, 11)]
    [2, 20, 20, 10, 12]
    """
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@attrs.define(eq=False)
class Block:
    """A part of a segment.

    Attributes:
        place: the pool, the stream and the kind (small or large) of its segment.
        address: its first byte.
        size: its bytes.
        free: whether nobody uses it.
        before: the block in front of it in its segment; None for the first.
        behind: the block behind it in its segment; None for the last.
    """

    place: tuple[Hashable, Hashable, bool]
    address: int
    size: int
    free: bool = False
    before: Block | None = None
    behind: Block | None = None


class Allocator:
    """The state of the allocator of one device.

    Args:
        limit: the most bytes that may be reserved; None for no limit.
        expandable: whether segments grow (``expandable_segments:True``): each pool and stream has
            one segment for small and one for large requests, mapped in pages of 2 and 20 MiB.

    Attributes:
        reserved: bytes of all segments now (``torch.cuda.memory_reserved``).
        allocated: bytes in use now (``torch.cuda.memory_allocated``).
        most_reserved: the most bytes of segments so far (``torch.cuda.max_memory_reserved``).
        most_allocated: the most bytes in use so far (``torch.cuda.max_memory_allocated``).
    """

    def __init__(self, limit: int | None = None, *, expandable: bool = False) -> None:
        self._limit = limit
        self._expandable = expandable
        self._free: dict[tuple[Hashable, Hashable, bool], list[tuple[int, int]]] = {}
        self._blocks: dict[int, Block] = {}  # free ones, by address
        self._last: dict[
            tuple[Hashable, Hashable, bool], Block
        ] = {}  # the end of each growing segment
        self._next = 0  # the address of the next segment
        self._bases: dict[
            tuple[Hashable, Hashable, bool], int
        ] = {}  # the addresses of growing segments
        self._pools: dict[Hashable, int] = {}
        self.reserved = self.allocated = self.most_reserved = self.most_allocated = 0

    def reserved_in(self, pool: Hashable) -> int:
        """Return the bytes of the segments of one pool."""
        return self._pools.get(pool, 0)

    def allocate(self, size: int, *, pool: Hashable = None, stream: Hashable = 0) -> Block:
        """Return a block for a request of ``size`` bytes.

        Args:
            size: the bytes that are asked for.
            pool: the graph pool that the allocations go to; None for the allocator's own.
            stream: the stream that allocates.

        Raises:
            OutOfMemory: a new segment would exceed the limit.
        """
        wanted = rounded(size)
        place = (pool, stream, wanted <= SMALL)
        free = self._free.setdefault(place, [])
        found = bisect_left(free, (wanted, -1))
        if found < len(free):
            _, address = free.pop(found)
            block = self._blocks.pop(address)
        elif self._expandable:
            block = self._grown(place, wanted)
        else:
            block = self._segment(place, segment_size(wanted))
        self._split(block, wanted)
        block.free = False
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
        """Return a block to the allocator, which merges it with free neighbours."""
        assert not block.free
        self.allocated -= block.size
        before, behind = block.before, block.behind
        if before is not None and before.free:
            self._take(before)
            block.address, block.size, block.before = (
                before.address,
                before.size + block.size,
                before.before,
            )
            if block.before is not None:
                block.before.behind = block
        if behind is not None and behind.free:
            self._take(behind)
            block.size, block.behind = block.size + behind.size, behind.behind
            if block.behind is not None:
                block.behind.before = block
            if self._last.get(block.place) is behind:
                self._last[block.place] = block
        self._put(block)

    def release_cached(self) -> None:
        """Give wholly free segments back to the device, except those of graph pools
        (``torch.cuda.empty_cache``).

        The pools of graphs keep their segments as long as a graph is there.
        """
        for block in list(self._blocks.values()):
            if block.place[0] is not None:
                continue
            if self._expandable:
                self._unmap(block)
            elif block.before is None and block.behind is None:
                self._take(block)
                self._count(block.place, -block.size)

    def _segment(self, place: tuple[Hashable, Hashable, bool], size: int) -> Block:
        if self._limit is not None and self.reserved + size > self._limit:
            self.release_cached()
            if self.reserved + size > self._limit:
                raise OutOfMemory(
                    f"{size} bytes are asked for, {self._limit - self.reserved} are left"
                )
        self._next += SMALL_SEGMENT  # a gap: blocks of two segments are never neighbours
        block = Block(place, self._next, size)
        self._next += size
        self._count(place, size)
        return block

    def _grown(self, place: tuple[Hashable, Hashable, bool], wanted: int) -> Block:
        """Return the free end of a growing segment, made large enough."""
        size = self._missing(place, wanted)
        if self._limit is not None and self.reserved + size > self._limit:
            self.release_cached()  # perhaps the end of this segment, too
            size = self._missing(place, wanted)
        added, last = self._segment(place, size), self._last.get(place)
        if last is None:
            added.address = self._bases.setdefault(place, len(self._bases) * _APART)
        elif last.free:
            self._take(last)
            last.size += added.size
            return last
        else:
            last.behind, added.before, added.address = added, last, last.address + last.size
        self._last[place] = added
        return added

    def _missing(self, place: tuple[Hashable, Hashable, bool], wanted: int) -> int:
        """Return the bytes by which a growing segment must grow for a request."""
        page = SMALL_SEGMENT if place[2] else LARGE_SEGMENT
        last = self._last.get(place)
        there = last.size if last is not None and last.free else 0
        return -(-(wanted - there) // page) * page

    def _unmap(self, block: Block) -> None:
        """Give the whole pages inside a free block of a growing segment back; the end of the
        segment shrinks.
        """
        page = SMALL_SEGMENT if block.place[2] else LARGE_SEGMENT
        gone = block.size // page * page
        if self._last.get(block.place) is not block or not gone:
            return
        self._take(block)
        block.size -= gone
        self._count(block.place, -gone)
        if block.size:
            self._put(block)
        elif block.before is None:
            del self._last[block.place]
        else:
            block.before.behind, self._last[block.place] = None, block.before

    def _split(self, block: Block, wanted: int) -> None:
        left = block.size - wanted
        if left < BLOCK if block.place[2] or self._expandable else left <= SMALL:
            return
        rest = Block(block.place, block.address + wanted, left, True, block, block.behind)
        if rest.behind is not None:
            rest.behind.before = rest
        if self._last.get(block.place) is block:
            self._last[block.place] = rest
        block.size, block.behind = wanted, rest
        self._put(rest)

    def _count(self, place: tuple[Hashable, Hashable, bool], size: int) -> None:
        self.reserved += size
        self._pools[place[0]] = self._pools.get(place[0], 0) + size
        self.most_reserved = max(self.most_reserved, self.reserved)

    def _put(self, block: Block) -> None:
        block.free = True
        insort(self._free.setdefault(block.place, []), (block.size, block.address))
        self._blocks[block.address] = block

    def _take(self, block: Block) -> None:
        """Remove a free block from the free ones."""
        free = self._free[block.place]
        del free[bisect_left(free, (block.size, block.address))]
        del self._blocks[block.address]
        block.free = False
