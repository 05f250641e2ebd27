"""A bucket: one padded program with its buffers, which hold inputs at their capacities, and the
true sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import attrs
import torch

from symshape import events
from symshape.graph.program import Program
from symshape.runtime.padding.planning import Plan, rows_of
from symshape.runtime.padding.result_rows import Row, copied_out
from symshape.runtime.padding.results import Answer, Lend, Part
from symshape.runtime.padding.wide_copies import may_gain, widened
from symshape.runtime.runners.cuda.capture import (
    CaptureFailed,
    Inside,
    Recording,
    Replay,
    captured,
)
from symshape.runtime.runners.cuda.graph_bytes import weight_of
from symshape.runtime.runners.cuda.launch import Launch, launcher
from symshape.runtime.runners.cuda.pool import GraphPool
from symshape.runtime.runners.device_time import DeviceTime
from symshape.runtime.runners.graph_store import Lease, Weight
from symshape.runtime.runners.inductor.artefacts import Artefacts
from symshape.runtime.runners.inductor.padded_kernels import Compiled, Kernels
from symshape.runtime.runners.padded.argument_writes import Again, copied_back, rewriting
from symshape.runtime.runners.padded.bound_inputs import BoundInputs
from symshape.runtime.runners.padded.buffers import Memory, Share, unchanged
from symshape.runtime.runners.padded.fusion import running
from symshape.runtime.runners.padded.placement import Placement
from symshape.runtime.runners.padded.true_sizes import TrueSizes
from symshape.runtime.runners.protocol import Note, silent
from symshape.tracing.garbage import seldom_collected
from symshape.tracing.traced_modes import with_autocast_off

_data_ptr = torch.Tensor.data_ptr
_LOOKS = 16  # calls between two checks whether another capture pays
_REPLAYS_TIMED = 2  # the first uploads the graph, so there is one more


_REPEATS = 5
"""The replays of each variant; the median counts."""


@attrs.frozen
class Variant:
    """A way to run a program.

    Attributes:
        kernels: whose kernels it runs: ``eager`` or ``inductor``.
        recording: the captured program.
        milliseconds: the time of a replay on the device, of a few; None if not measured.
    """

    kernels: str
    recording: Recording = attrs.field(repr=False)
    milliseconds: float | None = None


def measured(variants: Sequence[Variant], device: torch.device) -> tuple[Variant, ...]:
    """Return the variants with their times, the fastest first; they are timed in turn, for equal
    conditions.
    """
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(_REPEATS):
        for variant, found in zip(variants, times, strict=True):
            with DeviceTime(device) as timed:
                variant.recording.replay()
            found.append(timed.wait())
    pairs = zip(variants, times, strict=True)
    made = [attrs.evolve(each, milliseconds=sorted(found)[_REPEATS // 2]) for each, found in pairs]
    return tuple(sorted(made, key=lambda each: each.milliseconds or 0.0))


class Bucket:
    """One padded program with its buffers, captured and replayed.

    Attributes:
        program: the program, at any sizes.
        made: the plan.
        sizes: the true sizes that the program reads.
        recording: the captured program; None until it is captured.
        captures: the number of captures.
        milliseconds: how long the last capture took.
        planned_ms: how long planning and building took, before the first capture.
        loading: the ms of the last capture that captures at other sizes need not take: kernels were
            loaded.
        variants: the ways to run the program, the fastest first; empty before the first capture.
        prepares: whether the program had to run before a capture though its kernels were loaded.
        timing: the number of next replays that are timed on the device, and not launched from C++.
        wrote: whether the call in progress has written to arguments or buffers already.
        lease: the bucket's place in the store.
        words: the sizes that the bucket serves, in the caller's words.
        drop: removes the bucket from the store.
        on_leave: called with the bucket once it has left the store.

    Args:
        share: returns memory for the buffers that other buckets use too; None for own memory, also
            of its results.
        bound: the inputs that are read at the caller's address; shared by all buckets of a program.
        kernels: compiles the program too; None for eager's kernels alone.
        timed: whether the first replays are timed even if there is only one way to run the program.
        loaded: returns whether the program can be captured at any sizes without a run before.
        note: records events in the history of the compiled function.
    """

    def __init__(
        self,
        program: Program,
        made: Plan,
        device: torch.device,
        pool: GraphPool | None,
        kernels: Kernels | None = None,
        *,
        timed: bool = False,
        bound: BoundInputs | None = None,
        share: Share | None = None,
        loaded: Callable[[], bool] = bool,
        note: Note = silent,
    ) -> None:
        assert made.padded is not None
        assert made.results is not None
        self.program = program
        self.made, self._modes, self._drawing = (
            made,
            program.modes,
            device if program.graph.uses_randomness else None,
        )
        self._padded = made.padded
        self._results = made.results
        self._numbers = made.results.numbers
        self._parts = [Part(axes, self._numbers) for axes in made.padded.axes]
        self._rewrites = [
            (each.place, rewriting(each, self._numbers)) for each in made.padded.rewrites
        ]
        self._true_sizes = TrueSizes(self._numbers.places(made.padded.sizes), device)
        self._specs = [each.value.spec for each in made.padded.inputs[: len(made.padded.axes)]]
        self._bound = bound
        steady = bound.steady if bound is not None else ()
        self._moving = [place for place in range(len(self._specs)) if place not in steady]
        self._whole: list[int] = []  # steady inputs that are copied nevertheless
        self.sizes = self._true_sizes.tensor
        self._run, longer = running(made.padded, device, self._moving)
        self._use(
            Memory(self._specs, self.sizes.unbind(), longer).allocate_all(self._moving, share)
        )
        self._rows = rows_of(made)
        self._positions = [each.position for each in program.graph.inputs]
        self._launch: Launch | None = None
        self._lifted = [each.tensor for each in made.padded.lifted]
        self._pool, self._note, self._lent = pool, note, share is None
        self._kernels, self._timed, self._loaded = kernels, timed, loaded
        # the state of the kernels at the last request without result
        self._asked: int | None = None
        self._place: Artefacts | None = None  # this bucket's artefacts among the kernels'
        self.variants: tuple[Variant, ...] = ()
        self.recording: Recording | None = None
        self.captures = self._calls = self._look = 0
        self.timing, self.prepares = 0, False
        self._times: list[DeviceTime] = []
        self.milliseconds = self.planned_ms = self.loading = 0.0
        self.wrote = False
        self._addresses: list[int] = []
        self.lease: Lease
        self.words = ""
        self.drop: Callable[[], object]
        self.on_leave: list[Callable[[Bucket], object]] = []

    def _use(self, memory: Memory) -> None:
        self._memory = memory
        self._moved = [(self._parts[place], memory.buffers[place]) for place in self._moving]
        self._large = [number for number, (_, buffer) in enumerate(self._moved) if may_gain(buffer)]

    @property
    def buffers(self) -> list[torch.Tensor]:
        """The buffers that inputs are copied to, at their capacities, with the memory behind them
        for appending.
        """
        return self._memory.tensors

    @property
    def memory(self) -> Memory:
        """The memory that the program reads its inputs from."""
        return self._memory

    @staticmethod
    def weight_of(made: Plan, *, lent: bool = False) -> Weight:
        """Return the bytes of a bucket before it is made; ``lent`` is for a bucket whose results
        are lent.
        """
        assert made.padded is not None
        padded = made.padded
        return weight_of(
            padded.formulas or padded.graph, made.caps, None if lent else len(padded.axes)
        )

    @property
    def bytes(self) -> int:
        """The bytes of the buffers and of the capture: measured after a capture on a device, else
        counted.
        """
        weight = self.lease.weight
        if self.recording is None or self.recording.reserved is None:
            return weight.own + weight.shared + weight.buffers
        return sum(each.nbytes for each in self.buffers) + self.recording.reserved

    def covers(self, values: Mapping[str, int]) -> bool:
        """Return whether the bucket can serve calls with these sizes."""
        exact = all(values[name] == value for name, value in self.made.exact.items())
        return exact and all(values[name] <= cap for name, cap in self.made.caps.items())

    def place(self, values: Mapping[str, int], lend: Lend | None = None) -> Placement:
        """Return the placement of a call with these sizes; with ``lend``, results are lent instead
        of copied.
        """
        placement = Placement(values, self._numbers.at(values), lend)
        if self._timed:
            placement.fill = prod(values[name] / cap for name, cap in self.made.caps.items() if cap)
        return placement

    def _find_parts(self, placement: Placement) -> list[torch.Tensor]:
        """Compute where the inputs go: only what the device needs to start; the rest follows while
        the device works.
        """
        found = placement.numbers
        placement.inputs = parts = [part.apart(buffer, found) for part, buffer in self._moved]
        placement.memory = self._memory
        placement.sizes = self._true_sizes.of(found)
        merged = [
            (number, part.sizes_apart(found))
            for number, (part, _) in enumerate(self._moved)
            if part.merged
        ]
        placement.merged = merged
        return parts

    def _answering(self, placement: Placement) -> Answer:
        """Return the function that makes the results at this placement, and prepare its writes to
        arguments.
        """
        found = placement.numbers
        back: list[tuple[int, Again]] = [
            (position, partial(copied_back, self._parts[position].at(found), place))
            for position, place in self._padded.written
        ]
        back += [(place, again_at(found)) for place, again_at in self._rewrites]
        placement.back = back
        placement.answer = answer = self._results.at(placement.values, found, placement.lend)
        return answer

    def launched(self, leaves: Sequence[Any], placement: Placement) -> list[Any] | None:
        """Return the flat results of one call, launched from C++; None, with nothing done, if it
        cannot be.
        """
        launch, kernels = self._launch, self._kernels
        if launch is None or self.timing or placement.lend is not None:
            return None
        self._calls += 1
        if kernels is not None and self._wants(kernels):
            return None
        results = launch(leaves, placement.numbers)
        if results is not None and self._bound is not None:
            self._bound.stayed()
        return results

    def call(
        self, leaves: Sequence[Any], inputs: Sequence[torch.Tensor], placement: Placement
    ) -> list[Any]:
        """Return the flat results of one call."""
        self.wrote = False
        self._calls += 1
        with torch.no_grad():
            self._take(inputs, placement)
            try:
                replay = self._ready()
                tensors = self._timed_replay(replay) if self.timing else replay()
                self.wrote = bool(self._padded.stored)
                results = (placement.answer or self._answering(placement))(tensors, leaves)
                # only now: results may be views of written memory
                for position, again in placement.back:
                    self.wrote = True
                    again(inputs[position], tensors)
            finally:
                for place in self._bound.places if self._bound is not None else ():
                    self._memory.arguments[place] = None  # do not keep the caller's memory alive
            return results

    def _take(self, inputs: Sequence[torch.Tensor], placement: Placement) -> None:
        """Copy the inputs of a call that are not read at the caller's address, and write the true
        sizes.
        """
        given, targets, bound = list(inputs), placement.inputs, self._bound
        if targets is None or placement.memory is not self._memory:
            targets = self._find_parts(placement)
        if bound is not None and bound.steady:
            bound.see(inputs)
            for place in bound.places:
                self._memory.arguments[place] = inputs[place]
            given = [inputs[place] for place in self._moving]
            if len(bound.places) != len(bound.steady):
                targets = [*targets, *self._loose(bound)]
                given += [inputs[place] for place in self._whole]
        for place, shape in placement.merged:
            given[place] = given[place].reshape(shape)
        if self._large:
            targets = [*targets]
            for place in self._large:
                targets[place], given[place] = widened(targets[place], given[place])
        if len(given) == 1:
            targets[0].copy_(given[0])
        elif given:
            torch._foreach_copy_(targets, given)
        self._true_sizes.write(placement.sizes)

    def _loose(self, bound: BoundInputs) -> list[torch.Tensor]:
        """Return the buffers of the inputs that may be bound and are not."""
        if len(self._whole) != len(bound.steady) - len(bound.places):
            self._whole = [place for place in bound.steady if place not in bound.places]
            for place in self._whole:
                if place not in self._memory.buffers:
                    self._memory.allocate(place)
        return [self._memory.buffers[place] for place in self._whole]

    def warm_up(self) -> None:
        """Capture the program on zeroed buffers and run it once; its writes are undone.

        Buckets share memory: what another bucket left there may be an index beyond the end of a
        table.
        """
        with torch.no_grad(), unchanged(self._padded.stored, self._drawing):
            if self._bound is not None:
                self._bound.let_go()  # there is no call, so no inputs to read
                self._loose(self._bound)
            for each in self.buffers:
                each.zero_()
            self._true_sizes.write(
                self._true_sizes.of(self._numbers.at({**self.made.exact, **self.made.caps}))
            )
            self._ready()()

    def settle(self) -> None:
        """Capture Inductor's kernels if they are compiled by now, on zeroed buffers; not if inputs
        are bound.
        """
        kernels, read = self._kernels, self._bound is not None and self._bound.steady
        if self.recording is not None and kernels is not None and not read and self._wants(kernels):
            for each in self.buffers:
                each.zero_()  # the last call's data may be the cause of a failure
            with torch.no_grad():
                self._ready()

    def _ready(self) -> Replay:
        """Return the replay of the program, captured now unless it was captured for the present
        addresses.

        If the capture fails, the old recording stays, but is not used for the new addresses.
        """
        addresses = list(map(_data_ptr, self._lifted))
        if self._bound is not None:
            addresses += [-len(self._bound.places), *self._bound.addresses]
        if self.recording is None or self._addresses != addresses:
            why = "a tensor that is read in place has moved in memory" if self.captures else ""
            self._launch = None
            with seldom_collected(), unchanged(self._padded.stored, self._drawing):
                self.recording = self._first(why)
            self._addresses = addresses
            self.timing, self._times = _REPLAYS_TIMED if self._timed else 0, []
            self._asked = None
        if self._kernels is not None and self._wants(self._kernels):
            self._compile(self._kernels)
        alone = self._bound is None or not self._bound.steady or self.recording.launch is not None
        # else replay reads ``arguments`` of a call
        if self._launch is None and self._rows is not None and alone:
            self._launch = self._launcher(self.recording, self._rows)
        return self.recording.replay

    def _timed_replay(self, replay: Replay) -> Sequence[torch.Tensor]:
        """Replay the program for a call, and time it on the device."""
        self.timing -= 1
        with DeviceTime(self.sizes.device) as timed:
            tensors = replay()
        self._times.append(timed)
        return tensors

    def read_times(self) -> bool:
        """Record the time of a replay, as far as the device has ended; return whether no timed
        replay is left.

        The fastest of the first replays that served calls counts: the very first uploads the graph.
        """
        known = [found for each in self._times if (found := each.milliseconds()) is not None]
        if known and len(self.variants) == 1:
            self.variants = (attrs.evolve(self.variants[0], milliseconds=min(known)),)
        return not self.timing and len(known) == len(self._times)

    def _first(self, why: str) -> Recording:
        """Capture eager's kernels; or Inductor's at once if other buckets have found them to be
        faster.
        """
        kernels = self._kernels
        if kernels is not None and kernels.trusted and not self._timed:
            found = self._found(kernels)
            recording = None if found is None else self._with_inductors(kernels, *found)
            if found is not None and recording is not None:
                self._use_plain(found[1])
                self.variants = (Variant("inductor", recording),)
                return recording
        recording = self._recorded(self._again, why)
        self.variants = (Variant("eager", recording),)
        return recording

    def _wants(self, kernels: Kernels) -> bool:
        """Return whether it is time to ask for Inductor's kernels.

        If calls do not wait for compilers, they first have to lose the time of another capture,
        supposing that Inductor's kernels take half the time of eager's.  So the total is at most
        twice that of the right choice from the start.
        """
        if (
            len(self.variants) != 1
            or self.variants[0].kernels != "eager"
            or not kernels.due(self._asked)
        ):
            return False
        if not kernels.patient:
            return True
        if self._calls < self._look:
            return False
        self.read_times()
        if self.variants[0].milliseconds is None:
            self.variants = self._measured(self.variants)
        lost = self._calls * (self.variants[0].milliseconds or 0.0) / 2
        self._look = self._calls + (
            0 if (pays := lost >= self.planned_ms + self.milliseconds) else _LOOKS
        )
        return pays

    def _measured(self, variants: Sequence[Variant]) -> tuple[Variant, ...]:
        with unchanged(self._padded.stored, self._drawing):
            return measured(variants, self.sizes.device)

    def _launcher(self, recording: Recording, rows: tuple[Row, ...]) -> Launch | None:
        bound, moving = self._bound, [*self._moving]
        read = () if bound is None else bound.places
        moving += [place for place in (() if bound is None else bound.steady) if place not in read]
        replay = recording.replay if recording.launch is None else recording.launch
        found: Launch | None = launcher(
            *(
                replay,
                recording.tensors,
                [(self._positions[place], self._memory.buffers[place]) for place in moving],
            ),
            *(self._lifted, rows, self._true_sizes),
            device=self.sizes.device,
            copies=recording.copies,
            stays=[]
            if bound is None
            else [*zip((self._positions[each] for each in read), bound.addresses, strict=True)],
            splits=[self._parts[place].split for place in moving],
        )
        self._rows = rows if found is not None else None  # no launcher now means none later
        return found

    def _recorded(self, run: Replay, why: str, memory: Memory | None = None) -> Recording:
        start = time.perf_counter()
        device, buffers = (
            self.sizes.device,
            [(memory or self._memory).buffers[place] for place in self._moving],
        )
        inside = None if self._rows is None else Inside(buffers, partial(copied_out, self._rows))
        alone, draws = with_autocast_off(run, self._modes), self._drawing is not None
        reads = None
        if memory is None and self._loaded():
            reads = [each for each in (*self._memory.arguments, *self._lifted) if each is not None]
        recording = captured(
            alone, device, self._pool, draws=draws, lent=self._lent, inside=inside, reads=reads
        )
        self.captures += 1
        self.prepares |= recording.in_vain
        self.loading = recording.loading if self._loaded() else 0.0
        self.milliseconds = (time.perf_counter() - start) * 1e3
        if self._pool is not None:
            events.emit(events.GraphCaptured(tuple(self.made.caps.values()), self.milliseconds))
        how = "op by op on its buffers" if self._pool is None else "as a CUDA graph"
        self._note(
            "captured",
            sizes=self.words,
            text=f"{how}, {why}" if why else how,
            milliseconds=self.milliseconds,
        )
        return recording

    def _found(self, kernels: Kernels) -> tuple[Compiled, Memory] | None:
        """Return Inductor's code for the program, and the gapless memory that the code needs; None
        without code.

        Eager's kernels may append to inputs in place, in other memory: both exist until one kind is
        chosen.
        """
        self._place = self._place or kernels.place(self._padded)
        self._asked = kernels.state
        if self._place is None:
            return None
        try:
            memory = self._memory.plain()
        except torch.OutOfMemoryError:  # not enough for both memories
            self._kernels = None
            return None
        found = kernels.compiled(self._place, memory.arguments[: len(self._specs)], self.sizes)
        self._asked = kernels.state
        return None if found is None else (found, memory)

    def _with_inductors(
        self, kernels: Kernels, compiled: Compiled, memory: Memory
    ) -> Recording | None:
        try:
            return self._recorded(compiled, "with Inductor's kernels", memory)
        except CaptureFailed as error:
            kernels.fail(error)
            return None

    def _use_plain(self, memory: Memory) -> None:
        if memory is not self._memory:
            self._use(memory)
            self._run, _ = running(self._padded, self.sizes.device, ())

    def _compile(self, kernels: Kernels) -> None:
        """Capture Inductor's code for the program, if it is compiled; the faster kernels serve from
        now on.
        """
        found = self._found(kernels)
        recording = None if found is None else self._with_inductors(kernels, *found)
        if found is None or recording is None:
            return
        self.variants = self._measured((*self.variants, Variant("inductor", recording)))
        chosen = self.variants[0].kernels
        self.recording, self._launch = self.variants[0].recording, None
        self.variants = tuple(
            [attrs.evolve(each, recording=self.recording) for each in self.variants]
        )
        if chosen == "inductor":
            self._use_plain(found[1])
        kernels.chosen(chosen)
        times = {each.kernels: each.milliseconds or 0.0 for each in self.variants}
        events.emit(events.VariantChosen(dict(self.made.caps), chosen, times))
        told = ", ".join(f"{name}'s {time:.3g} ms" for name, time in times.items())
        self._note("kernels timed", sizes=self.words, text=f"{chosen}'s serve: {told}")

    def _again(self) -> Sequence[torch.Tensor]:
        return self._run(self._memory.arguments)
