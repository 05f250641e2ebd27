"""Peak memory of a training step: forward and backward, then the optimizer's step."""

from __future__ import annotations

import attrs
from torch.optim.optimizer import Optimizer

from guards.terms import arithmetic
from symshape.cost.liveness import GRADIENTS, OPTIMIZER, moments, storage_bytes
from symshape.cost.optimizers import optimizer_memory
from symshape.cost.peak_memory import PeakMemory, rounding
from symshape.graph.program import Program
from symshape.graph.steps import values_in


def training_memory(
    program: Program,
    optimizer: Optimizer | None,
    *,
    accumulated: bool,
    schedule: str,
    alignment: int | None,
) -> PeakMemory:
    """Return the peak of a program that returns a loss and gradients, followed by the optimizer's
    step.

    Args:
        program: forward and backward.
        optimizer: whose state is there from the start, and whose step comes last; None for none.
        accumulated: gradients are there from the start, and what backward makes is added to them.
        schedule: who holds tensors, as for :class:`PeakMemory`.
        alignment: allocations are rounded up to a multiple of this.

    Raises:
        InputError: the alignment or the schedule is malformed, or the optimizer's memory cannot be
            known.
    """
    rounded = rounding(alignment, schedule)
    results = list(values_in(program.graph.outputs))
    gradients = results[1:]
    found = list(moments(program.graph, rounded, schedule, gradients, accumulated=accumulated))
    if accumulated:
        storages = {id(each.storage): each for each in gradients}
        there = arithmetic.total(rounded(storage_bytes(each)) for each in storages.values())
        found = [each.plus(GRADIENTS, there) for each in found]
    if optimizer is not None:
        memory = optimizer_memory(optimizer, alignment or 1)
        found = [each.plus(OPTIMIZER, memory.state) for each in found]
        last = found[-1].plus(OPTIMIZER, memory.transient)
        found.append(attrs.evolve(last, node=None, place=f"{memory.name}.step()"))
    return PeakMemory.among(program, found)
