"""Inductor's kernels for padded programs: compiled once with symbolic capacities, captured at those of each bucket."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from symshape import events
from symshape.runtime.padding.template import Pad, Template, generalise
from symshape.runtime.padding.transform import PaddedGraph
from symshape.runtime.runners.artefacts import Artefacts

__all__ = ["Compiled", "Kernels"]

_MAX_TEMPLATES = 4


class Compiled:
    """A padded program compiled by Inductor, for one bucket: call it to run it on the bucket's buffers."""

    def __init__(self, artefacts: Artefacts, buffers: Sequence[torch.Tensor], sizes: torch.Tensor) -> None:
        self._artefacts = artefacts
        self._leaves = [*buffers, sizes] if sizes.numel() else list(buffers)
        values = [size for tensor in self._leaves for size in tensor.size()]
        self._artefact = artefacts.get(self._leaves, values)

    @property
    def ready(self) -> bool:
        """Whether it compiled."""
        return self._artefact is not None

    def __call__(self) -> list[torch.Tensor]:
        assert self._artefact is not None
        return self._artefacts.run(self._artefact, self._leaves)


class Kernels:
    """What Inductor made of the padded programs of one traced program.

    Args:
        pad: makes the padded program of a region.
    """

    def __init__(self, pad: Pad) -> None:
        self._pad = pad
        self._templates: list[tuple[Template, Artefacts]] = []
        self._closed = False
        self._lock = threading.Lock()

    def compiled(
        self, padded: PaddedGraph, buffers: Sequence[torch.Tensor], sizes: torch.Tensor
    ) -> Compiled | None:
        """A bucket's program, compiled by now; None where Inductor, or the form of the program, does not allow it."""
        with self._lock:
            artefacts = self._artefacts(padded)
            if artefacts is None:
                return None
            made = Compiled(artefacts, buffers, sizes)
            return made if made.ready else None

    def release(self) -> None:
        """Forgets what was compiled and compiles no more."""
        with self._lock:
            self._closed = True
            for _, artefacts in self._templates:
                artefacts.release()
            self._templates.clear()

    def __len__(self) -> int:
        return sum(len(artefacts) for _, artefacts in self._templates)

    def _artefacts(self, padded: PaddedGraph) -> Artefacts | None:
        if self._closed:
            return None
        found = next((artefacts for template, artefacts in self._templates if template.serves(padded)), None)
        if found is None and len(self._templates) < _MAX_TEMPLATES:
            template = generalise(padded, self._pad)
            if template is not None:
                found = Artefacts(template.graph, template.paths, template.slots, self._failed)
                self._templates.append((template, found))
        return found

    def _failed(self, error: Exception) -> None:
        self._closed = True
        events.emit(events.RunnerFallback("inductor in padded", "eager kernels", f"{type(error).__name__}: {error}"))
