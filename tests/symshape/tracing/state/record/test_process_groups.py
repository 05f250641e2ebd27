"""What a program asks torch.distributed for is asked again at each call: another group is another
program.
"""

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
from symshape.store.disk import DiskStore
from symshape.store.entry_text import show
from tests.symshape.store.storing import compiled, counts, entries, told

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


def _kept(
    fn: Callable[[], Any], folder: Path, groups: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Programs traced and loaded in new compilations, in each of these groups in turn; results are
    compared.
    """
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: OfGroup(dist.new_group([0, 1])),
        lambda: OfMesh(dist.device_mesh.DeviceMesh("cpu", [0, 1])),
        lambda: of_world,
    ],
    ids=["group", "mesh", "world"],
)
def test_what_hangs_on_other_groups_is_kept_for_the_same_groups(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    with told() as seen:
        found = _kept(make, tmp_path, [(0, 2), (1, 2), (0, 2), (0, 3), (1, 2)])
    assert found == [(1, 0), (1, 0), (0, 1), (1, 0), (0, 1)]
    assert not any(isinstance(each, events.NotStored) for each in seen)


def test_other_groups_are_a_miss(tmp_path: Path) -> None:
    """The same program on the same rank, which is in one group more (that nobody asked for), or
    given another one.
    """
    made: list[list[list[int]]] = [[[0, 1]], [[0, 1], [0, 2]], [[0, 2]], [[0, 1]]]
    found = []
    for groups in made:
        with _group(0, 3):
            first, *_ = [dist.new_group(each) for each in groups]
            of = OfGroup(first)
            fn, x = compiled(of, tmp_path), torch.arange(3.0)
            torch.testing.assert_close(fn(x), of(x))
            found.append(counts(fn))
    assert found == [(1, 0), (0, 1), (1, 0), (0, 1)]


def test_groups_that_end_between_compiling_and_the_first_call(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + dist.get_rank(dist.group.WORLD)

    with _group(0, 2):
        dist.new_group([0])
        compiled(fn, tmp_path)(torch.ones(3))
        again = compiled(fn, tmp_path)
    with _group(0, 2):
        assert torch.equal(again(torch.ones(3)), torch.ones(3))
        assert counts(again) == (1, 0)


def test_a_group_in_an_entry_is_one_of_this_process(tmp_path: Path) -> None:
    """An entry that names another group than it read, or a group by its name alone, is not
    served.
    """
    x = torch.ones(4, 2)
    with _group(0, 2):
        dist.new_group([0])
        compiled(gathering, tmp_path)(x)
    (entry,) = entries(tmp_path)
    content = entry.read_text()
    assert "all_gather_into_tensor" in show(content.encode())  # in a process without any group, too
    entry.unlink()
    asked = '{"group":["0",[0,1],'
    assert asked in content
    for wrong in (
        '{"group":["1",[0,1],',
        '{"group":["0",[0,2],',
        '{"group":["7",[0],',
        '{"group":[7,[0,1],',
    ):
        DiskStore(tmp_path).write(entry.parent.name, content.replace(asked, wrong).encode())
        with _group(0, 2):
            dist.new_group([0])
            again = compiled(gathering, tmp_path)
            assert again(x).shape == (8, 2)
            assert counts(again) == (1, 0)
        for each in entries(tmp_path):
            each.unlink()
