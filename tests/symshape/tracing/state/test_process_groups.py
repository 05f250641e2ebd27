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
from tests.symshape.store.storing import compiled, counts, told

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


def _kept(fn: Callable[[], Any], folder: Path, groups: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Programs traced and loaded in new compilations, in each of these groups in turn; results are compared."""
    found = []
    for rank, size in groups:
        with _group(rank, size):
            made = fn()
            again, x = compiled(made, folder), torch.arange(3.0)
            torch.testing.assert_close(again(x), made(x))
            found.append(counts(again))
    return found


def test_what_hangs_on_the_rank_is_kept_for_this_rank(tmp_path: Path) -> None:
    found = _kept(lambda: asking, tmp_path, [(0, 2), (1, 2), (0, 2), (1, 2), (0, 3)])
    assert found == [(1, 0), (1, 0), (0, 1), (0, 1), (1, 0)]


def averaged(x: torch.Tensor) -> torch.Tensor:
    return x / dist.get_world_size() if dist.is_initialized() else x


def test_what_hangs_on_the_number_of_ranks_is_kept_for_all(tmp_path: Path) -> None:
    assert _kept(lambda: averaged, tmp_path, [(0, 2), (1, 2), (0, 3)]) == [(1, 0), (0, 1), (1, 0)]
    found = compiled(averaged, tmp_path)
    assert torch.equal(found(torch.ones(3)), torch.ones(3))


class OfGroup(torch.nn.Module):
    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + dist.get_rank(self.group)


class OfMesh(OfGroup):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.group.get_local_rank()  # type: ignore[no-any-return]


def of_world(x: torch.Tensor) -> torch.Tensor:
    return x + dist.get_rank(dist.group.WORLD)


@pytest.mark.parametrize("make", [
    lambda: OfGroup(dist.new_group([0, 1])), lambda: OfMesh(dist.device_mesh.DeviceMesh("cpu", [0, 1])),
    lambda: of_world,
], ids=["group", "mesh", "world"])  # fmt: skip
def test_what_hangs_on_other_groups_is_not_kept(make: Callable[[], Any], tmp_path: Path) -> None:
    """No other process can tell that its own groups are alike."""
    with told() as seen:
        assert _kept(make, tmp_path, [(0, 2), (1, 2), (0, 2)]) == [(1, 0)] * 3
    assert [type(each) for each in seen] == [events.NotStored] * 3
