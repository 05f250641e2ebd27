"""What runs an entry: op by op, through Inductor, or as CUDA graphs.

A runner takes the call's leaves and integers and answers the flat outputs.  A runner that cannot serve a program raises
``Unfit`` when it is made; the entry then falls back to ``eager`` and an event says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from symshape import events
from symshape.errors import RunnerError
from symshape.graph.program import Program
from symshape.runtime.runners.cuda_graph import CudaGraphRunner, GraphStore, Unfit

RunnerName = Literal["auto", "eager", "inductor", "cudagraph"]
Runner = Callable[[Sequence[Any], Sequence[int]], list[Any]]
"""``runner(leaves, values)``: the flat outputs."""


def check_name(name: str) -> RunnerName:
    """``name`` if it names a runner.

    Raises:
        RunnerError: it names none.
    """
    if name not in get_args(RunnerName):
        raise RunnerError(f"there is no runner {name!r}; choose one of {', '.join(get_args(RunnerName))}")
    return name  # type: ignore[return-value]


def make_runner(name: RunnerName, program: Program, graphs: GraphStore) -> tuple[str, Runner]:
    """The runner for a program, and the name of the one that serves it."""
    eager = eager_runner(program)
    on_cuda = any(each.value.spec.device.type == "cuda" for each in program.graph.inputs)
    if name == "eager" or (name == "auto" and not on_cuda):
        return "eager", eager
    if name == "inductor":
        from symshape.runtime.runners.inductor import InductorRunner

        try:
            return "inductor", InductorRunner(program, eager)
        except Unfit as reason:
            return _fall_back(name, eager, str(reason))
    try:
        return "cudagraph", CudaGraphRunner(program, eager, graphs, patient=name == "auto")
    except Unfit as reason:
        return _fall_back(name, eager, str(reason)) if name != "auto" else ("eager", eager)


def _fall_back(wanted: str, eager: Runner, reason: str) -> tuple[str, Runner]:
    events.emit(events.RunnerFallback(wanted, "eager", reason))
    return "eager", eager


def eager_runner(program: Program) -> Runner:
    """Runs the program op by op."""
    return program.run
