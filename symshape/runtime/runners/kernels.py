"""Inductor's kernels for padded programs: compiled once with symbolic capacities, captured at those of each bucket."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch

from symshape import events, forks
from symshape.errors import UnsupportedError
from symshape.interrupts import pass_on
from symshape.runtime.padding.alignment import align, worth_aligning
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.template import Pad, Template, generalise
from symshape.runtime.padding.transform import PaddedGraph
from symshape.runtime.runners.artefacts import Artefact, Artefacts, Saved, Shelf
from symshape.runtime.runners.compile_process import CompileProcess
from symshape.runtime.runners.compile_worker import Answer
from symshape.runtime.runners.inductor_code import prepare_to_load

__all__ = ["Compiled", "Kernels"]

_MAX_TEMPLATES = 4
_ENOUGH = 3  # buckets, after which the next ones are taken to be alike
_MAX_ARTEFACTS = 3  # of a template: a compilation takes as long as thousands of calls
_OPTIONS = {"shape_padding": False}
"""Inductor's own alignment of products is left out: ours is there, and its timing splits sizes among artefacts."""


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

    Nothing is compiled in a thread (:mod:`symshape.runtime.runners.compile_process` says why): whoever asks waits, or
    another process compiles, one thing after the other, and its code is taken in by the next call.

    Args:
        pad: makes the padded program of a region, equal parts apart.
        in_calls: whether calls compile; else :meth:`waiting` does, and calls take what is there.
        process: compiles beside calls; None where nothing does.

    Attributes:
        reason: why a program runs eager's kernels for good, the first time that this was so; empty where none does.
        shelf: where what is compiled is kept between processes; None for nowhere.
    """

    def __init__(self, pad: Pad, in_calls: bool = True, process: CompileProcess | None = None) -> None:
        self._pad = pad
        self._compiles = in_calls
        self._settles = False
        self._choices: Counter[str] = Counter()
        self._process = process
        self._templates: list[tuple[Template, Artefacts]] = []
        self._closed = False
        self._lock = forks.lock()
        self._answers = 0
        self._answered: tuple[Artefacts, tuple[int, ...], Answer, float] | None = None
        self._idle = threading.Event()  # nothing is being compiled beside calls
        self._idle.set()
        self._asker = 0  # the process that asked for something last
        self.reason = ""
        self.shelf: Shelf | None = None

    @property
    def state(self) -> int:
        """Another number when more may be had than before."""
        return -1 if self._closed else 2 * (len(self._templates) + len(self) + self._answers) + self._compiles

    def due(self, seen: int | None) -> bool:
        """Whether it is time to ask for a compiled program; ``seen``: the state at the last question."""
        if self._closed or seen == self.state:
            return False
        if self._compiles or len(self) > 0:
            return True
        return self._process is not None and not self.pending

    @property
    def patient(self) -> bool:
        """Whether what is there is worth a capture to those alone whose calls have lost without it what that takes."""
        there = len(self) > 0 or self._answered is not None
        return self._process is not None and there and not (self._compiles or self._settles)

    def chosen(self, kernels: str) -> None:
        """Is told whose kernels were faster in a bucket."""
        self._choices[kernels] += 1

    @property
    def trusted(self) -> bool:
        """Whether Inductor's kernels were faster in each of several buckets: calls that never wait time no others."""
        known = self._process is not None and not self._closed and len(self) > 0
        return known and not self._choices["eager"] and self._choices["inductor"] >= _ENOUGH

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Inside, nobody has to be patient."""
        with self._lock:
            outer, self._settles = self._settles, True
            try:
                yield
            finally:
                self._settles = outer

    @property
    def pending(self) -> bool:
        """Whether something is being compiled beside calls; not what the parent of a fork had asked for."""
        return not self._idle.is_set() and self._asker == os.getpid()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until nothing is being compiled beside calls; whether that is so."""
        return not self.pending or self._idle.wait(seconds)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, what is asked for is compiled."""
        with self._lock:
            outer, self._compiles = self._compiles, True
            try:
                yield
            finally:
                self._compiles = outer

    def place(self, padded: PaddedGraph) -> Artefacts | None:
        """Where a bucket's program is to be found, once compiled; None where its form forbids it, or nobody asked."""
        with self._lock:
            return self._artefacts(padded)

    def compiled(self, place: Artefacts, buffers: Sequence[torch.Tensor], sizes: torch.Tensor) -> Compiled | None:
        """A bucket's program, compiled; None where it is not ready, or Inductor forbids it."""
        leaves = [*buffers, sizes] if sizes.numel() else list(buffers)
        values = tuple(size for tensor in leaves for size in tensor.size())
        with self._lock:
            if self._compiles:
                self.wait()
            self._take_in()
            if self.shelf is not None and place.shelf is None and not self._shelved(place, leaves, self.shelf):
                return None
            artefact = place.get(leaves, values) if self._compiles else self._there(place, leaves, values)
            return None if artefact is None else Compiled(place, artefact, leaves)

    def _shelved(self, place: Artefacts, leaves: Sequence[Any], shelf: Shelf) -> bool:
        """Gives a program its part of the shelf; false where it is none that could be compiled."""
        try:
            place.shelf = shelf.part(f"padded {place.request(leaves).digest()}")
        except Exception as error:  # whatever FX may raise: eager's kernels serve
            pass_on(error)
            self.fail(error)
            return False
        return True

    def _there(self, place: Artefacts, leaves: Sequence[Any], values: tuple[int, ...]) -> Artefact | None:
        """What nobody has to wait for; what is not there is asked for, if somebody compiles beside calls."""
        found = place.known(values)
        if found is None and self._process is not None:
            found = place.kept(values)
            if found is None and not (self.pending or place.full):
                self._ask(place, leaves, values)
        return found

    def _ask(self, place: Artefacts, leaves: Sequence[Any], values: tuple[int, ...]) -> None:
        """Has another process compile a program."""
        if self._process is None or self._closed:
            return
        prepare_to_load()
        began = time.perf_counter()

        def told(answer: Answer) -> None:
            self._answered = place, values, answer, began
            self._answers += 1
            self._idle.set()

        self._idle.clear()
        self._asker = os.getpid()
        try:
            self._process.ask(place.request(leaves), told)
        except Exception as error:  # whatever FX may raise, too: eager's kernels serve
            self._idle.set()
            pass_on(error)
            self._only_waiting(
                str(error) if isinstance(error, UnsupportedError) else f"{type(error).__name__}: {error}"
            )

    def _take_in(self) -> None:
        """Loads what another process compiled."""
        answered, self._answered = self._answered, None
        if answered is None or self._closed:
            return
        place, values, answer, began = answered
        if answer.reason:
            self._only_waiting(answer.reason)
            return
        try:
            place.take(Saved(answer.assumed, values, answer.content))
        except Exception as error:  # whatever torch may raise: the buckets run eager's kernels
            pass_on(error)
            self._only_waiting(f"{type(error).__name__}: {error}")
            return
        events.emit(events.CompiledBeside(time.perf_counter() - began))

    def _only_waiting(self, reason: str) -> None:
        """From now on nothing is compiled beside calls."""
        self._process = None
        self._tell(reason)

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

    def _artefacts(self, padded: PaddedGraph) -> Artefacts | None:
        if self._closed:
            return None
        own = self._apart(padded)
        if own is None:
            self._tell(f"computed apart, the program at {dict(padded.region.caps)} is another one")
            return None
        chosen = worth_aligning(own)  # the same products at other capacities, too
        own = align(own, chosen)
        found = next((artefacts for template, artefacts in self._templates if template.serves(own)), None)
        if found is None and not (self._compiles or self._process):
            return None
        if found is None and len(self._templates) < _MAX_TEMPLATES:
            template = generalise(own, lambda region: align(self._pad(region), chosen))
            if template is not None:
                found = Artefacts(
                    template.graph, template.paths, template.slots, self.fail, _MAX_ARTEFACTS, options=_OPTIONS
                )
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
