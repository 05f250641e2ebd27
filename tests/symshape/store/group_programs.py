"""What ranks run in tests: ``python -m tests.symshape.store.group_programs SIZE FOLDER LAYOUT``
forks so many, on Gloo.

Each rank compiles programs with collectives among groups and meshes, with a store of its own in the
folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from symshape import events
from tests.symshape.store.storing import TOLD, compiled
from tests.symshape.tracing.collectives_in_use import exchanged, flat, gathered, several_scattered

PAIR: Any = None
OWN: Any = None
MESH: DeviceMesh | None = None


def among_all(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x * 2, "sum", dist.group.WORLD) + dist.get_rank()


def among_a_pair(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_gather_tensor(x * 2, 0, PAIR) + 1


def by_its_name(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_gather_tensor(x * 3, 0, "1") + 1


def alone(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x * 2, "sum", OWN) + 1


def along_a_mesh(x: torch.Tensor) -> torch.Tensor:
    return collectives.all_reduce(x + 1, "sum", (MESH, 0)) * 2  # type: ignore[arg-type]


def along_a_named_dimension(x: torch.Tensor) -> torch.Tensor:
    assert MESH is not None
    return collectives.all_gather_tensor(x + MESH.get_local_rank("rows"), 0, (MESH, 1)) * 2


PROGRAMS: tuple[Callable[[torch.Tensor], Any], ...] = (
    among_all,
    among_a_pair,
    by_its_name,
    alone,
    along_a_mesh,
    along_a_named_dimension,
    gathered,
    exchanged,
    several_scattered,
)


def make_groups(layout: str, rank: int, size: int) -> None:
    """The groups and the mesh of a layout: ``same``, ``more``, ``order``, ``mesh``."""
    global PAIR, OWN, MESH
    own = [[each] for each in range(size)]
    every = list(range(size))
    if layout == "more":
        dist.new_group(every)
    made = [
        dist.new_group(each) for each in ((*own, every) if layout == "order" else (every, *own))
    ]
    PAIR, OWN = (made[-1], made[rank]) if layout == "order" else (made[0], made[1 + rank])
    shape = (1, size) if layout == "mesh" else (size, 1)
    MESH = init_device_mesh("cpu", shape, mesh_dim_names=("rows", "columns"))


def rank_program(file: str, rank: int, size: int, folder: Path, layout: str) -> dict[str, Any]:
    """By program: how many were traced and loaded, and what is wrong with the results or was not
    stored.
    """
    warnings.simplefilter("ignore", FutureWarning)
    dist.init_process_group("gloo", store=dist.FileStore(file, size), rank=rank, world_size=size)
    make_groups(layout, rank, size)
    told: list[Any] = []
    events.subscribe(lambda event: told.append(event) if isinstance(event, TOLD) else None)
    found = {}
    for fn in PROGRAMS:
        if layout == "order" and fn is by_its_name:  # not every rank has a group of this name
            continue
        told.clear()
        made = compiled(fn, folder / str(rank))
        wrong = ""
        for rows in (size + 3, size + 5):
            x = torch.arange(2.0 * rows).reshape(rows, 2) + rank
            for one, other in zip(flat(fn(x)), flat(made(x)), strict=True):
                if one.shape != other.shape or not torch.equal(one + 0, other + 0):
                    wrong = f"{one} is {other}"
        refused = [event.reason for event in told if isinstance(event, events.NotStored)]
        stats = made.stats()
        found[fn.__name__] = [stats.traces, stats.loaded, wrong or "; ".join(refused)]
    return found


def _child(file: str, rank: int, size: int, folder: Path, layout: str) -> None:
    try:
        found = rank_program(file, rank, size, folder, layout)
    except BaseException:
        found = {"program": [0, 0, traceback.format_exc()]}
    with open(f"{file}.{rank}", "w") as out:
        json.dump(found, out)
    os._exit(0)


def main(size: int, folder: Path, layout: str) -> list[dict[str, Any]]:
    """What each rank found."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as here:
        file, children = f"{here}/board", []
        for rank in range(size):
            children.append(os.fork())
            if not children[-1]:
                _child(file, rank, size, folder, layout)
        for each in children:
            os.waitpid(each, 0)
        return [json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(size)]


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])), flush=True)
