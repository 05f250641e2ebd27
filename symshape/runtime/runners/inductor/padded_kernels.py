"""Inductor's kernels for padded programs: compiled once with symbolic capacities, captured at those
of each bucket.
"""

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
from symshape.runtime.runners.inductor.artefacts import Artefact, Artefacts, Saved, Shelf
from symshape.runtime.runners.inductor.code import prepare_to_load
from symshape.runtime.runners.inductor.compile_process import CompileProcess
from symshape.runtime.runners.inductor.compile_worker import Answer

__all__ = ["Compiled", "Kernels"]

_MAX_TEMPLATES = 4  # forms of padded programs
_ENOUGH = 3  # buckets whose agreement decides for the next ones
_MAX_ARTEFACTS = 3  # of a template: a compilation takes as long as thousands of calls
_OPTIONS = {"shape_padding": False}
"""Inductor's options: without its own padding of products, as inputs are aligned here and its
timing splits sizes.
"""


class Compiled:
    """A padded program compiled by Inductor, for one bucket: a call runs it on the bucket's
    buffers.
    """

    def __init__(self, artefacts: Artefacts, artefact: Artefact, leaves: Sequence[Any]) -> None:
        self._artefacts = artefacts
        self._artefact = artefact
        self._leaves = leaves

    def __call__(self) -> list[torch.Tensor]:
        """Run the program and return its tensors."""
        return self._artefacts.run(self._artefact, self._leaves)


class Kernels:
    """Inductor's compilations of the padded programs of one traced program.

    Nothing is compiled in a thread (``compile_process`` says why).  Either the caller waits, or
    another process compiles one program after the other, and the next call loads its code.

    Args:
        pad: makes the padded program of a region, without sharing equal parts.
        in_calls: whether calls compile; else :meth:`waiting` does, and calls use the existing code.
        process: compiles beside calls; None if no process does.

    Attributes:
        reason: why a program runs eager's kernels for good, the first time that happened; else
            empty.
        shelf: the store of compilations between processes; None for no store.
    """

    def __init__(
        self, pad: Pad, in_calls: bool = True, process: CompileProcess | None = None
    ) -> None:
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
        self._idle = threading.Event()  # set while no other process compiles
        self._idle.set()
        self._asker = 0  # the process that asked for something last
        self.reason = ""
        self.shelf: Shelf | None = None

    @property
    def state(self) -> int:
        """A number that changes when more compiled programs may be available than before."""
        return (
            -1
            if self._closed
            else 2 * (len(self._templates) + len(self) + self._answers) + self._compiles
        )

    def due(self, seen: int | None) -> bool:
        """Return whether it is time to ask for a compiled program; ``seen``: the state at the last
        request.
        """
        if self._closed or seen == self.state:
            return False
        if self._compiles or len(self) > 0:
            return True
        return self._process is not None and not self.pending

    @property
    def patient(self) -> bool:
        """Return whether a capture must pay: a bucket makes one only after it has lost that much
        time without.
        """
        there = len(self) > 0 or self._answered is not None
        return self._process is not None and there and not (self._compiles or self._settles)

    def chosen(self, kernels: str) -> None:
        """Record whose kernels were faster in a bucket."""
        self._choices[kernels] += 1

    @property
    def trusted(self) -> bool:
        """Return whether Inductor's kernels were faster in every one of several buckets, so that no
        other is timed.
        """
        known = self._process is not None and not self._closed and len(self) > 0
        return known and not self._choices["eager"] and self._choices["inductor"] >= _ENOUGH

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Let captures be made without having to pay (see :attr:`patient`) inside the context."""
        with self._lock:
            outer, self._settles = self._settles, True
            try:
                yield
            finally:
                self._settles = outer

    @property
    def pending(self) -> bool:
        """Return whether another process is compiling; requests of the parent of a fork do not
        count.
        """
        return not self._idle.is_set() and self._asker == os.getpid()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until no other process compiles; return whether that is so."""
        return not self.pending or self._idle.wait(seconds)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Compile requested programs inside the context, while the caller waits."""
        with self._lock:
            outer, self._compiles = self._compiles, True
            try:
                yield
            finally:
                self._compiles = outer

    def place(self, padded: PaddedGraph) -> Artefacts | None:
        """Return the artefacts of a bucket's program; None if its form forbids compilation, or it
        was not requested.
        """
        with self._lock:
            return self._artefacts(padded)

    def compiled(
        self, place: Artefacts, buffers: Sequence[torch.Tensor], sizes: torch.Tensor
    ) -> Compiled | None:
        """Return a bucket's compiled program; None if it is not ready, or Inductor cannot compile
        it.
        """
        leaves = [*buffers, sizes] if sizes.numel() else list(buffers)
        values = tuple(size for tensor in leaves for size in tensor.size())
        with self._lock:
            if self._compiles:
                self.wait()
            self._take_in()
            if (
                self.shelf is not None
                and place.shelf is None
                and not self._shelved(place, leaves, self.shelf)
            ):
                return None
            artefact = (
                place.get(leaves, values) if self._compiles else self._there(place, leaves, values)
            )
            return None if artefact is None else Compiled(place, artefact, leaves)

    def _shelved(self, place: Artefacts, leaves: Sequence[Any], shelf: Shelf) -> bool:
        """Give a program its part of the store; return False if the program cannot be compiled."""
        try:
            place.shelf = shelf.part(f"padded {place.request(leaves).digest()}")
        except Exception as error:  # FX may raise anything: eager's kernels serve
            pass_on(error)
            self.fail(error)
            return False
        return True

    def _there(
        self, place: Artefacts, leaves: Sequence[Any], values: tuple[int, ...]
    ) -> Artefact | None:
        """Return code that exists already; if there is none, ask the compiling process for it and
        return None.
        """
        found = place.known(values)
        if found is None and self._process is not None:
            found = place.kept(values)
            if found is None and not (self.pending or place.full):
                self._ask(place, leaves, values)
        return found

    def _ask(self, place: Artefacts, leaves: Sequence[Any], values: tuple[int, ...]) -> None:
        """Ask the compiling process for a program."""
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
        except Exception as error:  # FX, too, may raise anything: eager's kernels serve
            self._idle.set()
            pass_on(error)
            self._only_waiting(
                str(error)
                if isinstance(error, UnsupportedError)
                else f"{type(error).__name__}: {error}"
            )

    def _take_in(self) -> None:
        """Load the code that the compiling process has sent."""
        answered, self._answered = self._answered, None
        if answered is None or self._closed:
            return
        place, values, answer, began = answered
        if answer.reason:
            self._only_waiting(answer.reason)
            return
        try:
            place.take(Saved(answer.assumed, values, answer.content))
        except Exception as error:  # torch may raise anything: the buckets run eager's kernels
            pass_on(error)
            self._only_waiting(f"{type(error).__name__}: {error}")
            return
        events.emit(events.CompiledBeside(time.perf_counter() - began))

    def _only_waiting(self, reason: str) -> None:
        """Stop using the compiling process, for this reason."""
        self._process = None
        self._tell(reason)

    def fail(self, error: Exception) -> None:
        """Compile no more: compiled code cannot be run."""
        self._closed = True
        self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, reason: str) -> None:
        self.reason = self.reason or reason
        events.emit(events.RunnerFallback("inductor's kernels", "eager's kernels", reason))

    def release(self) -> None:
        """Drop the compilations and compile no more."""
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
            self._tell(
                f"computed separately, the program at {dict(padded.region.caps)} is another one"
            )
            return None
        chosen = worth_aligning(own)  # the same products at other capacities, too
        own = align(own, chosen)
        found = next(
            (artefacts for template, artefacts in self._templates if template.serves(own)), None
        )
        if found is None and not (self._compiles or self._process):
            return None
        if found is None and len(self._templates) < _MAX_TEMPLATES:
            template = generalise(own, lambda region: align(self._pad(region), chosen))
            if template is not None:
                found = Artefacts(
                    template.graph,
                    template.paths,
                    template.slots,
                    self.fail,
                    _MAX_ARTEFACTS,
                    options=_OPTIONS,
                )
                self._templates.append((template, found))
        if found is None:
            self._tell(
                f"the program at {dict(padded.region.caps)} has no form in common with those of "
                "other capacities"
            )
        return found

    def _apart(self, padded: PaddedGraph) -> PaddedGraph | None:
        """Pad a bucket's program again without sharing equal parts; None if its inputs or outputs
        then differ.
        """
        region = padded.region
        own = self._pad(Region(region.given, region.exact, region.caps))
        places = [[place for place, _ in each.outputs.values()] for each in (own, padded)]
        alike = len(own.sizes) == len(padded.sizes) and all(map(is_, own.sizes, padded.sizes))
        alike = alike and places[0] == places[1] and own.written == padded.written
        alike = alike and [each.outline() for each in own.rewrites] == [
            each.outline() for each in padded.rewrites
        ]
        counts = [(len(each.graph.inputs), len(each.graph.outputs)) for each in (own, padded)]
        return own if alike and counts[0] == counts[1] else None
