"""Which rank this process is, and of how many: what a program that asks torch.distributed for anything may hang on."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from symshape.tracing.state.places import Answer
from symshape.tracing.state.recorder import Recorder

_DISTRIBUTED = "torch.distributed"
_OF_ALL_RANKS = frozenset({"get_world_size", "get_backend", "is_initialized", "is_available"})


def world() -> str:
    """The size and the backend of the default process group; empty where there is none."""
    dist = torch.distributed
    return f"{dist.get_world_size()} on {dist.get_backend()}" if dist.is_available() and dist.is_initialized() else ""


def standing() -> str:
    """The rank of this process too; empty where there is no default process group."""
    found = world()
    return found and f"rank {torch.distributed.get_rank()} of {found}"


def standing_in_groups() -> str:
    """What stands for all else that there is to ask: other groups, meshes.

    It is compared within this process, in which groups stay; what another process compares is :func:`layout`.
    """
    return standing()


Group = list[Any]
"""A process group for other processes: its name, its ranks in order, and its backends."""


def layout() -> str:
    """The rank of this process, and the groups that it is in: what all answers of torch.distributed follow from.

    Their names too, by which a program can ask for them.
    """
    found = standing()
    return found and json.dumps([found, [words for _, words in _groups()]])


def described(group: Any) -> Group | None:
    """A process group, or one of this name, for other processes; None if this process is in no such group."""
    for found, words in _groups():
        if found is group or (type(group) is str and words[0] == group):
            return words
    return None


def kind() -> type | None:
    """The class of process groups, where there are any."""
    return torch.distributed.ProcessGroup if torch.distributed.is_available() else None


def is_group(other: type) -> bool:
    """Whether a class is that of process groups."""
    found = kind()
    return found is not None and issubclass(other, found)


def is_mesh(kind: type) -> bool:
    """Whether a class is that of meshes of devices."""
    return kind is getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)


def mesh_in_words(mesh: Any) -> list[Any] | None:
    """A mesh for other processes: devices, ranks, names of its dimensions, and their groups; None if one is missing."""
    names = mesh.mesh_dim_names
    groups = [described(mesh.get_group(dim)) for dim in range(mesh.ndim)]
    if any(each is None for each in groups):
        return None
    return [mesh.device_type, mesh.mesh.tolist(), None if names is None else list(names), groups]


def _groups() -> list[tuple[Any, Group]]:
    """The groups of this process, in the order in which they were made.

    (Private names, checked on 2.11 to 2.13.)
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return []
    from torch.distributed import distributed_c10d

    known = distributed_c10d._world
    found: list[tuple[Any, Group]] = []
    for group, name in known.pg_names.items():
        members = known.pg_group_ranks.get(group)
        if members is not None:
            ranks = sorted(members, key=members.__getitem__)
            found.append((group, [name, ranks, str(known.pg_backend_config.get(group))]))
    return found


def notice(recorder: Recorder, module: str, name: str) -> None:
    """A name of this module is used: if torch.distributed has it, what it may be told must stay.

    Its functions ask for rank and size where nobody sees it, and a trace keeps both as numbers.
    """
    if module != _DISTRIBUTED and not module.startswith(f"{_DISTRIBUTED}."):
        return
    if name in _OF_ALL_RANKS:
        recorder.place(Answer(world, world(), "the size of the process group of torch.distributed"))
    elif name == "get_rank":
        recorder.place(Answer(standing, standing(), "the rank of this process in torch.distributed"))
    else:
        recorder.place(Answer(standing_in_groups, standing_in_groups(), f"what torch.distributed says ({name})"))
