"""One padded program with its buffers: inputs at their capacities, true sizes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape import events
from symshape.graph.codegen import compile_graph
from symshape.graph.program import Program
from symshape.runtime.padding.planning import Plan
from symshape.runtime.padding.results import Answer, amount, narrower
from symshape.runtime.runners.capture import CaptureFailed, Replay, captured
from symshape.runtime.runners.fusion import fuse
from symshape.runtime.runners.kernels import Kernels
from symshape.runtime.runners.variants import Variant, measured


@attrs.frozen(eq=False)
class Placement:
    """Where a call of certain sizes goes in a bucket.

    Attributes:
        inputs: the valid parts of the buffers.
        sizes: the sizes to be written.
        answer: makes the results.
    """

    inputs: list[torch.Tensor]
    sizes: torch.Tensor
    answer: Answer


class Bucket:
    """One padded program with its buffers.

    Attributes:
        made: the plan.
        buffers: the inputs at their capacities.
        sizes: the true sizes that the program reads.
        variants: the ways to run the program, the fastest first; empty before the first call.
        last_used: the number of the last call that it served.

    Args:
        kernels: compiles the program, too; None for eager's kernels alone.
    """

    def __init__(
        self, program: Program, made: Plan, device: torch.device, pool: Any, kernels: Kernels | None = None
    ) -> None:
        assert made.padded is not None
        assert made.results is not None
        graph = made.padded.graph
        self.made = made
        self._padded = made.padded
        self._results = made.results
        specs = [each.value.spec for each in graph.inputs[: len(made.padded.axes)]]
        self.buffers = [torch.zeros(spec.sizes, dtype=spec.dtype, device=spec.device) for spec in specs]
        self.sizes = torch.zeros(len(made.padded.sizes), dtype=torch.int64, device=device)
        self._run = compile_graph(fuse(graph) if device.type == "cuda" else graph, {})
        self._arguments = [*self.buffers, *self.sizes.unbind()]
        self._lifted = [each.tensor for each in graph.lifted]
        self._pool = pool
        self._kernels = kernels
        self._asked: int | None = None  # the state of the kernels when they were asked in vain
        self.replay: Replay | None = None
        self.variants: tuple[Variant, ...] = ()
        self._addresses: list[int] = []
        self.last_used = 0

    def covers(self, values: Mapping[str, int]) -> bool:
        """Whether calls with these sizes can be served."""
        exact = all(values[name] == value for name, value in self.made.exact.items())
        return exact and all(values[name] <= cap for name, cap in self.made.caps.items())

    def place(self, values: Mapping[str, int]) -> Placement:
        """Where a call with these sizes goes."""
        pairs = zip(self.buffers, self._padded.axes, strict=True)
        parts = [narrower(axes, values)(buffer) for buffer, axes in pairs]
        sizes = [amount(term, values) for term in self._padded.sizes]
        written = torch.tensor(sizes, dtype=torch.int64).to(self.sizes.device)
        return Placement(parts, written, self._results.at(values))

    def call(self, leaves: Sequence[Any], inputs: Sequence[torch.Tensor], placement: Placement) -> list[Any]:
        """The flat results of one call."""
        with torch.no_grad():
            if inputs:
                torch._foreach_copy_(placement.inputs, list(inputs))
            self.sizes.copy_(placement.sizes)
            if self.replay is None or self._addresses != [tensor.data_ptr() for tensor in self._lifted]:
                self._prepare()
            elif self._kernels is not None and len(self.variants) == 1 and self._kernels.due(self._asked):
                self._compile(self._kernels)
            assert self.replay is not None
            return placement.answer(self.replay(), leaves)

    def _prepare(self) -> None:
        """Captures the program; what was captured before stays if that fails, and is not taken for the new one."""
        addresses = [tensor.data_ptr() for tensor in self._lifted]
        self.replay = self._captured(self._again)
        self.variants = (Variant("eager", self.replay),)
        self._addresses = addresses
        self._asked = None
        if self._kernels is not None and self._kernels.due(None):
            self._compile(self._kernels)

    def _compile(self, kernels: Kernels) -> None:
        """Captures what Inductor made of the program, if that is there; the faster of the two serves from now on."""
        found = kernels.compiled(self._padded, self.buffers, self.sizes)
        self._asked = kernels.state
        if found is None:
            return
        try:
            other = Variant("inductor", self._captured(found))
        except CaptureFailed as error:
            kernels.fail(error)
            return
        self.variants = measured((*self.variants, other), self.sizes.device)
        self.replay = self.variants[0].replay
        times = {each.kernels: each.milliseconds or 0.0 for each in self.variants}
        events.emit(events.VariantChosen(dict(self.made.caps), self.variants[0].kernels, times))

    def _captured(self, run: Replay) -> Replay:
        return captured(run, self.sizes.device, self._pool)

    def _again(self) -> Sequence[torch.Tensor]:
        return self._run(self._arguments, ())
