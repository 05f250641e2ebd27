"""Which rank this process is, and of how many: what a program that asks torch.distributed for anything may hang on."""

from __future__ import annotations

import torch

from symshape.tracing.state.places import Answer
from symshape.tracing.state.recorder import Recorder

_DISTRIBUTED = "torch.distributed"


def standing() -> str:
    """The rank of this process, the size and the backend of the default process group; empty where there is none."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return ""
    return f"rank {dist.get_rank()} of {dist.get_world_size()} on {dist.get_backend()}"


def notice(recorder: Recorder, module: str) -> None:
    """Something of this module is used: if torch.distributed has it, the answer to :func:`standing` must stay.

    Its functions ask for rank and size where nobody sees it, and a trace keeps both as numbers.
    """
    if module == _DISTRIBUTED or module.startswith(f"{_DISTRIBUTED}."):
        recorder.place(Answer(standing, standing(), "the rank of this process in torch.distributed"))
