"""The memory that buffers of one stream share: who uses whose, what is counted, and where nothing
is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import symshape
from meta_fns import TensorSpec
from symshape import Options
from symshape.runtime.runners.graph_store import GraphStore, Weight
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.buffers import Memory, aligned_bytes
from symshape.runtime.runners.padded.runner import PaddedRunner

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def _compiled(**options: Any) -> Any:
    return symshape.compile(
        lambda x, i: (x * 2 + 1).cumsum(0)[i],
        dynamic=True,
        runner="padded",
        options=Options(**options),
    )


def _call(compiled: Any, size: int) -> None:
    x, i = torch.randn(size, 100), torch.arange(size).flip(0)
    torch.testing.assert_close(compiled(x, i), (x * 2 + 1).cumsum(0)[i])


def _buckets(compiled: Any) -> Sequence[Bucket]:
    (entry,) = compiled.entries
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner.buckets


def _addresses(bucket: Bucket) -> int:
    (found,) = {each.untyped_storage().data_ptr() for each in bucket.buffers}
    return found


def test_smaller_buckets_use_the_memory_of_larger_ones() -> None:
    compiled = _compiled()
    for size in (6, 40, 20, 9, 6, 40, 12, 20):
        _call(compiled, size)
    first, large, *rest = _buckets(compiled)
    assert len(rest) >= 2
    assert _addresses(first) != _addresses(large)  # it was there before
    assert {_addresses(each) for each in rest} == {_addresses(large)}


def test_memory_goes_with_the_last_bucket() -> None:
    store = GraphStore(4)
    memory = store.share(0, CPU, 1000)
    assert store.share(0, CPU, 800) is memory
    assert store.share(1, CPU, 800) is not memory
    larger = store.share(0, CPU, 1001)
    assert larger is not memory
    assert store.share(0, CPU, 10) is larger
    del memory, larger
    assert store.share(0, CPU, 10).numel() == 10


def test_what_is_shared_is_counted_once() -> None:
    store = GraphStore(8, memory=5000)
    for number, size in enumerate((1000, 2000, 1500, 2000)):
        weight = Weight(100, 50, size)
        assert store.admits(number, 0, weight)
        store.put(
            number, number, program=1, pool=0, weight=weight, buffers=store.share(0, CPU, size)
        )
    assert store.bytes() == 4 * 100 + 50 + 1000 + 2000
    assert not store.admits(9, 0, Weight(100, 50, 2001))
    assert store.admits(9, 0, Weight(100, 50, 2000))
    store.remove(0)
    assert store.bytes() == 3 * 100 + 50 + 2000


def test_a_budget_in_bytes_has_room_for_more() -> None:
    compiled = _compiled(graph_memory=60_000)
    for size in (16, 12, 8, 6, 4, 3):
        _call(compiled, size)
    assert len(_buckets(compiled)) == 6
    buffers = sum(each.nbytes for bucket in _buckets(compiled) for each in bucket.buffers)
    assert buffers > 2 * _buckets(compiled)[0].lease.weight.buffers


def test_what_is_lent_shares_nothing() -> None:
    """A borrowed result may lie in a buffer, and come back as an argument of another bucket's
    call.
    """
    compiled = _compiled(outputs="borrow")
    for size in (40, 20, 9):
        _call(compiled, size)
    assert all(each.memory.shared is None for each in _buckets(compiled))


def test_buffers_lie_apart_and_those_without_gaps_are_new() -> None:
    specs = [
        TensorSpec.contiguous((3, 5), torch.float32, CPU),
        TensorSpec.contiguous((7,), torch.int64, CPU),
    ]
    flat = torch.zeros(10_000, dtype=torch.uint8)
    memory = Memory(specs, [], {0: (1, 2)}).allocate_all(
        [0, 1], lambda count: flat[: max(count, 2000)]
    )
    first, second = memory.buffers[0], memory.buffers[1]
    assert (first.shape, first.stride()) == ((3, 5), (7, 1))
    assert second.data_ptr() - first.data_ptr() == aligned_bytes((3, 7), torch.float32)
    first.fill_(1)
    second.fill_(2)
    plain = memory.plain()
    assert plain.buffers[0].is_contiguous()
    assert plain.buffers[0].untyped_storage().data_ptr() != flat.data_ptr()
    assert plain.buffers[1] is second
    assert bool((plain.buffers[0] == 1).all())
