"""Inductor's kernels for padded programs: compiled once with symbolic capacities, captured at those of each bucket."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch

from symshape import events
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.template import Pad, Template, generalise
from symshape.runtime.padding.transform import PaddedGraph
from symshape.runtime.runners.artefacts import Artefact, Artefacts

__all__ = ["Compiled", "Kernels"]

_MAX_TEMPLATES = 3
_MAX_ARTEFACTS = 3  # of a template: a compilation takes as long as thousands of calls


class Compiled:
    """A padded program compiled by Inductor, for one bucket: call it to run it on the bucket's buffers."""

    def __init__(self, artefacts: Artefacts, artefact: Artefact, leaves: Sequence[Any]) -> None:
        self._artefacts = artefacts
        self._artefact = artefact
        self._leaves = leaves

    def __call__(self) -> list[torch.Tensor]:
        """Runs it."""
        return self._artefacts.run(self._artefact, self._leaves)


class Kernels:
    """What Inductor made of the padded programs of one traced program.

    Args:
        pad: makes the padded program of a region, equal parts apart.
        patience: after how many calls it starts to compile, in a thread of its own; one at a time.

    Attributes:
        busy: whether something is being compiled in the background.
        reason: why a program runs eager's kernels for good, the first time that this was so; empty where none does.
    """

    def __init__(self, pad: Pad, patience: int = 1) -> None:
        self._pad = pad
        self._patience = patience
        self._calls = 0
        self._templates: list[tuple[Template, Artefacts]] = []
        self._closed = False
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._waits = False
        self.busy = False
        self.reason = ""

    @property
    def state(self) -> int:
        """Another number when more may be had than before."""
        return -1 if self._closed else 2 * len(self._templates) + self.busy

    def due(self, seen: int | None) -> bool:
        """Whether it is time to ask for a compiled program; ``seen``: the state at the last question.  Counts calls."""
        if self._closed or seen == self.state:
            return False
        self._calls += 1
        return self._waits or (self._calls >= self._patience and not self.busy)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, whoever asks for a compiled program waits for it, however few calls there were."""
        with self._lock:
            outer, self._waits = self._waits, True
            try:
                yield
            finally:
                self._waits = outer

    def wait(self) -> None:
        """Returns once nothing is being compiled in the background."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def compiled(self, padded: PaddedGraph, buffers: Sequence[torch.Tensor], sizes: torch.Tensor) -> Compiled | None:
        """A bucket's program, compiled; None where it is not ready, or Inductor or the program's form forbid it."""
        leaves = [*buffers, sizes] if sizes.numel() else list(buffers)
        with self._lock:
            artefacts = self._artefacts(padded)
            if artefacts is None:
                return None
            values = tuple(size for tensor in leaves for size in tensor.size())
            if not self._waits and artefacts.known(values) is None:
                self._start(artefacts, leaves, values)
                return None
            artefact = artefacts.get(leaves, values)
            return None if artefact is None else Compiled(artefacts, artefact, leaves)

    def fail(self, error: Exception) -> None:
        """Compiles no more: what was compiled cannot be run."""
        self._closed = True
        self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, reason: str) -> None:
        self.reason = self.reason or reason
        events.emit(events.RunnerFallback("inductor's kernels", "eager's kernels", reason))

    def release(self) -> None:
        """Forgets what was compiled and compiles no more."""
        with self._lock:
            self._closed = True
            for _, artefacts in self._templates:
                artefacts.release()
            self._templates.clear()

    def __len__(self) -> int:
        return sum(len(artefacts) for _, artefacts in self._templates)

    def _start(self, artefacts: Artefacts, leaves: Sequence[Any], values: tuple[int, ...]) -> None:
        if self.busy or artefacts.full:
            return
        self.busy = True
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()  # each thread has its own

        def work() -> None:
            try:
                with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                    artefacts.get(leaves, values)
            finally:
                self.busy = False

        context = contextvars.copy_context()  # the user's settings of the compiler
        self._thread = threading.Thread(target=context.run, args=(work,), name="symshape-inductor", daemon=True)
        self._thread.start()

    def _artefacts(self, padded: PaddedGraph) -> Artefacts | None:
        if self._closed:
            return None
        own = self._apart(padded)
        if own is None:
            self._tell(f"computed apart, the program at {dict(padded.region.caps)} is another one")
            return None
        found = next((artefacts for template, artefacts in self._templates if template.serves(own)), None)
        if found is None and len(self._templates) < _MAX_TEMPLATES:
            template = generalise(own, self._pad)
            if template is not None:
                found = Artefacts(template.graph, template.paths, template.slots, self.fail, _MAX_ARTEFACTS)
                self._templates.append((template, found))
        if found is None:
            self._tell(
                f"the program at {dict(padded.region.caps)} has no form in common with those of other capacities"
            )
        return found

    def _apart(self, padded: PaddedGraph) -> PaddedGraph | None:
        """A bucket's program once more, equal parts apart; None where it takes or gives something else."""
        region = padded.region
        own = self._pad(Region(region.given, region.exact, region.caps))
        places = [[place for place, _ in each.outputs.values()] for each in (own, padded)]
        alike = len(own.sizes) == len(padded.sizes) and all(map(is_, own.sizes, padded.sizes))
        alike = alike and places[0] == places[1] and own.written == padded.written
        alike = alike and [each.outline() for each in own.rewrites] == [each.outline() for each in padded.rewrites]
        counts = [(len(each.graph.inputs), len(each.graph.outputs)) for each in (own, padded)]
        return own if alike and counts[0] == counts[1] else None
