"""The search for the op of a program that cannot be captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.graph.program import Program
from symshape.graph.steps import Node
from symshape.runtime.pieces.faults import Fault
from symshape.runtime.runners.cuda.capture import record, settle
from symshape.runtime.runners.cuda.pool import GraphPool
from symshape.runtime.runners.protocol import Cut, Runner
from symshape.tracing.traced_modes import lines_of

__all__ = ["around_uncaptured", "uncaptured_op"]


def uncaptured_op(
    program: Program, device: torch.device, leaves: Sequence[Any], values: Sequence[int]
) -> str | None:
    """Return the name of the first op that fails during a capture; None if the op is unknown.

    Captured kernels are not run, so nothing is changed.
    """
    if device.type != "cuda":
        return None
    try:
        record(
            lambda: program.run(leaves, values),
            device,
            GraphPool(),
            draws=program.graph.uses_randomness,
        )
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        settle(device)
        failed = lines_of(program.run).failed(error)
        step = None if failed is None else program.graph.steps[failed]
        return str(step.op) if isinstance(step, Node) else None
    return None


def around_uncaptured(
    cut: Cut | None,
    program: Program,
    device: torch.device,
    leaves: Sequence[Any],
    values: Sequence[int],
) -> Runner | None:
    """Return a runner in pieces around the op that made a capture fail in such a call; None if
    there is none.
    """
    op = None if cut is None else uncaptured_op(program, device, leaves, values)
    return None if cut is None or op is None else cut({(op, ""): Fault("it could not be captured")})
