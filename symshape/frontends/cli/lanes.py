"""The two ways of compiling that the demo compares, as metered lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo

from symshape import events
from symshape.exploring.metering import Arguments, Lane, Meter, MeteredRunner
from symshape.frontends import compile as frontend
from symshape.options import Options
from symshape.runtime.runners.choice import RunnerName


class DynamoLane(Lane):
    """The lane of ``torch.compile``, with a backend that runs Dynamo's graph directly, like
    ``eager``, but metered.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        meter = Meter()

        def eager_metered(
            gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
        ) -> Callable[..., Any]:
            meter.compiles += 1
            return meter.metered(gm.forward)

        torch._dynamo.reset()
        super().__init__("torch.compile", torch.compile(model, backend=eager_metered), meter)

    def close(self) -> None:
        """Forget Dynamo's compiled programs."""
        torch._dynamo.reset()


class SymShapeLane(Lane):
    """The lane of ``symshape.compile``."""

    def __init__(
        self, model: torch.nn.Module, runner: RunnerName, max_cuda_graphs: int = 1024
    ) -> None:
        options = Options(max_cuda_graphs=max_cuda_graphs)
        compiled: frontend.Compiled = frontend.compile(model, runner=runner, options=options)
        super().__init__(
            "symshape" if runner == "eager" else f"symshape, {runner}", compiled, Meter()
        )
        self.compiled = compiled
        self._metered: set[int] = set()
        self._fallbacks: list[events.RunnerFallback] = []
        self._calling = False
        self._unsubscribe = events.subscribe(self._hear)

    def _hear(self, event: events.Event) -> None:
        if self._calling and isinstance(event, events.RunnerFallback):
            self._fallbacks.append(event)

    def call(self, arguments: Arguments) -> Any:
        """Return the result of one call."""
        self._calling = True
        try:
            return self.compiled(**arguments)
        finally:
            self._calling = False

    def settle(self) -> None:
        """Meter the runners of new entries (the call that made an entry is not a hit, so its run is
        not missed).
        """
        for entry in self.compiled.entries:
            if entry.number not in self._metered:
                self._metered.add(entry.number)
                self.meter.compiles += 1
                entry.use(MeteredRunner(entry.runner, self.meter))

    @property
    def fallbacks(self) -> list[events.RunnerFallback]:
        """Return the events of entries that could not use the requested runner."""
        return self._fallbacks

    def close(self) -> None:
        """Stop listening to events."""
        self._unsubscribe()
