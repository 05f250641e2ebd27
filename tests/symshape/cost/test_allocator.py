"""The simulated allocator against sequences whose outcome torch's source determines, and against
its own invariants.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from symshape.cost.allocator import (
    LARGE_SEGMENT,
    SMALL_SEGMENT,
    Allocator,
    Block,
    OutOfMemory,
    rounded,
    segment_size,
)

MB = 2**20


@pytest.mark.parametrize(
    ("size", "handed_out", "reserved"),
    [
        (1, 512, SMALL_SEGMENT),
        (513, 1024, SMALL_SEGMENT),
        (MB, MB, SMALL_SEGMENT),
        (MB + 1, MB + 512, LARGE_SEGMENT),
        (10 * MB - 512, 10 * MB - 512, LARGE_SEGMENT),
        (10 * MB, 10 * MB, 10 * MB),
        (10 * MB + 1, 10 * MB + 512, 12 * MB),  # the rest is more than 1 MiB, and split off
        (32 * MB, 32 * MB, 32 * MB),
    ],
)
def test_one_request(size: int, handed_out: int, reserved: int) -> None:
    allocator = Allocator()
    allocator.allocate(size)
    assert (allocator.allocated, allocator.reserved) == (handed_out, reserved)
    assert segment_size(rounded(size)) == reserved


def test_a_rest_of_at_most_one_mebibyte_is_not_split_off() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(20 * MB))
    block = allocator.allocate(19 * MB)
    assert (block.size, allocator.allocated, allocator.reserved) == (20 * MB, 20 * MB, 20 * MB)
    allocator.free(block)
    block = allocator.allocate(19 * MB - 512)
    assert (block.size, allocator.reserved) == (19 * MB - 512, 20 * MB)


def test_the_smallest_block_that_is_large_enough_serves() -> None:
    allocator = Allocator()
    first, between, second = (
        allocator.allocate(6 * MB),
        allocator.allocate(2 * MB),
        allocator.allocate(4 * MB),
    )
    allocator.free(first)
    allocator.free(second)  # merged with the 8 MiB behind it
    assert allocator.allocate(5 * MB).address == first.address
    assert not between.free
    assert allocator.reserved == LARGE_SEGMENT


def test_free_neighbours_become_one_block() -> None:
    allocator = Allocator()
    blocks = [allocator.allocate(5 * MB) for _ in range(4)]
    for place in (1, 3, 0, 2):
        allocator.free(blocks[place])
    assert allocator.allocate(20 * MB).address == blocks[0].address
    assert (allocator.reserved, allocator.most_allocated) == (20 * MB, 20 * MB)


def test_small_and_large_requests_never_share_a_segment() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(5 * MB))
    allocator.allocate(MB)
    assert allocator.reserved == LARGE_SEGMENT + SMALL_SEGMENT


def test_streams_and_pools_have_blocks_of_their_own() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(4 * MB))
    allocator.free(allocator.allocate(4 * MB, stream=1))
    allocator.free(allocator.allocate(4 * MB, pool="graphs"))
    assert allocator.reserved == 3 * LARGE_SEGMENT
    assert allocator.reserved_in("graphs") == LARGE_SEGMENT
    allocator.release_cached()
    # a graph may replay into it
    assert allocator.reserved == allocator.reserved_in("graphs") == LARGE_SEGMENT


def test_wholly_free_segments_alone_are_given_back() -> None:
    allocator = Allocator()
    first, second = allocator.allocate(4 * MB), allocator.allocate(4 * MB)
    allocator.free(first)
    allocator.release_cached()
    assert allocator.reserved == LARGE_SEGMENT
    allocator.free(second)
    allocator.release_cached()
    assert (allocator.reserved, allocator.most_reserved) == (0, LARGE_SEGMENT)


def test_cached_memory_is_given_back_before_a_request_fails() -> None:
    allocator = Allocator(limit=40 * MB)
    allocator.free(allocator.allocate(20 * MB))
    kept = allocator.allocate(30 * MB)
    assert allocator.reserved == 30 * MB
    with pytest.raises(OutOfMemory, match="are left"):
        allocator.allocate(12 * MB)
    allocator.free(kept)
    allocator.allocate(40 * MB)


def test_segments_that_grow() -> None:
    allocator = Allocator(expandable=True)
    first = allocator.allocate(15 * MB)
    assert allocator.reserved == 20 * MB
    second = allocator.allocate(15 * MB)  # 5 MiB are left of the first page
    assert allocator.reserved == 40 * MB
    assert second.address == first.address + 15 * MB
    allocator.free(second)
    allocator.release_cached()
    assert allocator.reserved == 20 * MB
    allocator.free(first)
    allocator.release_cached()
    assert allocator.reserved == 0
    allocator.allocate(1)
    assert allocator.reserved == SMALL_SEGMENT


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_blocks_never_overlap(seed: int, expandable: bool) -> None:
    rng = random.Random(seed)
    allocator = Allocator(rng.choice([None, 300 * MB]), expandable=expandable)
    live: list[Block] = []
    for _ in range(400):
        if live and rng.random() < 0.45:
            allocator.free(live.pop(rng.randrange(len(live))))
        elif rng.random() < 0.02:
            allocator.release_cached()
        else:
            size = rng.choice(
                [rng.randint(1, 2**12), rng.randint(1, 2 * MB), rng.randint(1, 40 * MB)]
            )
            try:
                block = allocator.allocate(
                    size, stream=rng.randrange(2), pool=rng.choice([None, "graphs"])
                )
            except OutOfMemory:
                continue
            assert block.size >= size
            live.append(block)
        spans = sorted((each.address, each.address + each.size) for each in live)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert sum(each.size for each in live) == allocator.allocated <= allocator.reserved
    for block in live:
        allocator.free(block)
    allocator.release_cached()
    assert allocator.allocated == 0
    assert allocator.reserved == allocator.reserved_in("graphs")
