"""The Inductor runner: one artefact for as many sizes as Inductor's own guards allow."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from guards.terms.term import Term
from symshape import events
from symshape.calls.questions import is_transformed
from symshape.graph.control_flow import ControlFlow
from symshape.graph.float_terms import FloatTerm
from symshape.graph.program import Program
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.inductor.artefacts import Artefacts
from symshape.runtime.runners.protocol import Unfit


class InductorRunner:
    """A runner that executes a program compiled by Inductor, at its first call.

    Attributes:
        artefacts: the compilations.

    Raises:
        Unfit: the program reads data on the host, runs functions or switches gradients inside.
    """

    def __init__(self, program: Program, eager: EagerRunner) -> None:
        graph = program.graph
        ops: list[Any] = [node.op for node in graph.nodes]
        flow = next((op for op in ops if isinstance(op, ControlFlow)), None)
        if flow is not None:
            raise Unfit(f"it calls {flow}, which runs functions of the program")
        if any(node.bindings for node in graph.nodes):
            raise Unfit("it reads data on the host (data-dependent sizes or item())")
        if any(node.grad is not None or node.inference is not None for node in graph.nodes):
            raise Unfit("it switches gradients or inference mode on or off inside")
        if any(isinstance(output, (Term, FloatTerm)) for output in graph.outputs):
            raise Unfit("it returns sizes")
        self._eager = eager.fallback
        self.artefacts = Artefacts(graph, program.call.paths, program.slots, _failed)

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        artefact = None if is_transformed() else self.artefacts.get(leaves, values)
        return (
            self._eager(leaves, values)
            if artefact is None
            else self.artefacts.run(artefact, leaves)
        )

    def rebound(self, program: Program, eager: EagerRunner) -> InductorRunner:
        """Return a runner with the same code for a program that differs only in the tensors outside
        its arguments.
        """
        made = copy.copy(self)
        made._eager = eager.fallback
        made.artefacts = self.artefacts.rebound(program.graph)
        return made

    def release(self) -> None:
        """Drop the compilations and compile no more."""
        self.artefacts.release()

    def describe(self) -> str:
        """Return the runner's name and its number of artefacts."""
        return f"inductor, {len(self.artefacts)} artefacts"


def _failed(error: Exception) -> None:
    events.emit(events.RunnerFallback("inductor", "eager", f"{type(error).__name__}: {error}"))
