"""The rank of this process and the groups it is in, which the answers of torch.distributed depend
on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from symshape.tracing.state.record.places import Answer
from symshape.tracing.state.record.recorder import Recorder

_DISTRIBUTED = "torch.distributed"
_OF_ALL_RANKS = frozenset({"get_world_size", "get_backend", "is_initialized", "is_available"})


def world() -> str:
    """Return the size and the backend of the default process group; empty if there is none."""
    dist = torch.distributed
    return (
        f"{dist.get_world_size()} on {dist.get_backend()}"
        if dist.is_available() and dist.is_initialized()
        else ""
    )


def standing() -> str:
    """Return the rank, the size and the backend of the default process group; empty if there is
    none.
    """
    found = world()
    return found and f"rank {torch.distributed.get_rank()} of {found}"


def standing_in_groups() -> str:
    """Return the same as ``standing``, as a proxy for all other state of torch.distributed: other
    groups, meshes.

    It is compared within this process, in which groups stay.  Another process compares
    :func:`layout`.
    """
    return standing()


Group = list[Any]
"""A process group in words for other processes: its name, its ranks in order, and its backends."""


def layout() -> str:
    """Return the rank of this process and its groups, as text: all answers of torch.distributed
    follow from them.

    The groups' names are included, because a program can look groups up by name.
    """
    found = standing()
    return found and json.dumps([found, [words for _, words in _groups()]])


def described(group: Any) -> Group | None:
    """Return a process group (given itself or by name) in words; None if this process is in no such
    group.
    """
    for found, words in _groups():
        if found is group or (type(group) is str and words[0] == group):
            return words
    return None


def kind() -> type | None:
    """Return the class of process groups; None without torch.distributed."""
    return torch.distributed.ProcessGroup if torch.distributed.is_available() else None


def is_group(other: type) -> bool:
    """Return whether a class is a class of process groups."""
    found = kind()
    return found is not None and issubclass(other, found)


def is_mesh(kind: type) -> bool:
    """Return whether a class is the class of device meshes."""
    return kind is getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)


def mesh_in_words(mesh: Any) -> list[Any] | None:
    """Return a mesh in words: device type, ranks, names of dimensions, groups; None if a group is
    not known here.
    """
    names = mesh.mesh_dim_names
    groups = [described(mesh.get_group(dim)) for dim in range(mesh.ndim)]
    if any(each is None for each in groups):
        return None
    return [mesh.device_type, mesh.mesh.tolist(), None if names is None else list(names), groups]


def _groups() -> list[tuple[Any, Group]]:
    """Return the groups of this process in words, in the order in which they were made.

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
    """Record the use of a name of a module; a name of torch.distributed depends on ranks and
    groups.

    The functions of torch.distributed read rank and size without a recorded read, and a trace
    stores both as numbers.
    """
    if module != _DISTRIBUTED and not module.startswith(f"{_DISTRIBUTED}."):
        return
    if name in _OF_ALL_RANKS:
        question, told = world, "the size of the process group of torch.distributed"
    elif name == "get_rank":
        question, told = standing, "the rank of this process in torch.distributed"
    else:
        question, told = standing_in_groups, f"what torch.distributed says ({name})"
    recorder.place(Answer(question, question(), told))
