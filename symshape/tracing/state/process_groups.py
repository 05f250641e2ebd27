"""Which rank this process is, and of how many: what a program that asks torch.distributed for anything may hang on."""

from __future__ import annotations

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

    It is compared within this process, in which groups stay; no other process can tell that its own are alike.
    """
    return standing()


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
