"""What a program asks torch.distributed for is asked again at each call: another group is another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import symshape
from symshape import events
from tests.symshape.store.storing import compiled, told

if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)


@contextmanager
def _group(rank: int, size: int) -> Iterator[None]:
    """A process group that lives in this process alone."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def asking(x: torch.Tensor) -> torch.Tensor:
    return x * dist.get_world_size() + dist.get_rank()


def gathering(x: torch.Tensor) -> torch.Tensor:
    from torch.distributed._functional_collectives import all_gather_tensor

    return all_gather_tensor(x, 0, dist.group.WORLD) + 1  # type: ignore[arg-type]


def unasked(x: torch.Tensor) -> torch.Tensor:
    return x + (dist.get_rank() if dist.is_initialized() else 7)


@pytest.mark.filterwarnings("ignore:.*all_gather:FutureWarning")
@pytest.mark.parametrize("fn", [asking, gathering, unasked])
def test_another_group_is_a_miss(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    f: Any = symshape.compile(fn, dynamic=True, fullgraph=True)
    for rank, size in ((0, 2), (1, 4), (0, 2), (0, 3)):
        with _group(rank, size):
            expected, found = fn(torch.ones(4, 2)), f(torch.ones(4, 2))
            assert expected.shape == found.shape
            if fn is not gathering:  # this group sends nothing: what it gathers is not written
                assert torch.equal(expected, found)
    assert f.stats().traces == 3
    if fn is unasked:
        assert torch.equal(f(torch.ones(2, 2)), torch.full((2, 2), 8.0))


def test_what_hangs_on_the_rank_is_not_kept_for_other_ranks(tmp_path: Path) -> None:
    with told() as seen:
        for rank in (0, 1):
            with _group(rank, 2):
                assert torch.equal(compiled(asking, tmp_path)(torch.ones(3)), torch.full((3,), 2.0 + rank))
    assert [type(each) for each in seen] == [events.NotStored] * 2
