"""One program for a range of sizes: inputs are copied into buffers at their capacities, sizes beside them.

Each call runs the same padded program on the same buffers and copies the valid part of its results out: on the CPU op
by op, on CUDA as one CUDA graph for each bucket, all of them from one memory pool.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from symshape import events
from symshape.graph.codegen import compile_graph
from symshape.graph.program import Program
from symshape.graph.steps import values_in
from symshape.runtime.padding.planning import Choice, Plan, candidates, choose, plan
from symshape.runtime.padding.report import PaddingReport, padding_of, report_of
from symshape.runtime.padding.results import Answer, amount, narrower
from symshape.runtime.padding.transform import Refusal, device_of
from symshape.runtime.runners.fitness import check_recordable
from symshape.runtime.runners.fusion import fuse
from symshape.runtime.runners.protocol import Runner, Unfit

Replay = Callable[[], Sequence[torch.Tensor]]
"""Runs a padded program on its buffers; answers its tensors, which the next replay may overwrite."""

_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
_is_capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_REMEMBERED = 4096  # calls, by their sizes
_RESTING = 8  # a bucket leaves when this many calls for each bucket have passed without it


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


class CaptureFailed(Exception):
    """A padded program that cannot be captured as a CUDA graph, and why."""


class Bucket:
    """One padded program with its buffers.

    Attributes:
        made: the plan.
        buffers: the inputs at their capacities.
        sizes: the true sizes that the program reads.
        replay: runs the program.
        last_used: the number of the last call that it served.
    """

    def __init__(self, program: Program, made: Plan, device: torch.device, pool: Any) -> None:
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
        self.replay: Replay | None = None
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
            assert self.replay is not None
            return placement.answer(self.replay(), leaves)

    def _prepare(self) -> None:
        self._addresses = [tensor.data_ptr() for tensor in self._lifted]
        self.replay = self._captured() if self.sizes.device.type == "cuda" else self._again

    def _again(self) -> Sequence[torch.Tensor]:
        return self._run(self._arguments, ())

    def _captured(self) -> Replay:
        """The program as a CUDA graph in the shared pool; the buffers hold a call's inputs already."""
        device = self.sizes.device
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):  # warm up: libraries initialise
            self._again()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
                with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                    tensors = self._again()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize(device)
            raise CaptureFailed(str(error)) from error

        def replay() -> Sequence[torch.Tensor]:
            graph.replay()
            return tensors

        return replay


class PaddedRunner:
    """Runs a program through padded programs, one for each bucket of sizes.

    Args:
        program: what is to be run.
        eager: serves what no bucket can.
        limit: the number of buckets kept.

    Raises:
        Unfit: the program cannot be run again and again on buffers, or has no size that can be padded.
    """

    def __init__(self, program: Program, eager: Runner, limit: int) -> None:
        self._program = program
        self._eager = eager.run
        self._limit = limit
        self._positions = [each.position for each in program.graph.inputs]
        self._symbols = [(name, place) for name, place in program.positions.items()]
        self._device = _check_fit(program)
        self._buckets: OrderedDict[Any, Bucket] = OrderedDict()
        self._calls: OrderedDict[Any, tuple[Bucket, Placement] | None] = OrderedDict()
        self._refusals: dict[str, Refusal] = {}
        self._pools: dict[int, Any] = {}
        self._clock = 0
        self._released = False
        self._lock = threading.RLock()

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """The flat outputs of one call."""
        if self._device.type == "cpu" or not _is_capturing():
            with self._lock:
                self._clock += 1
                found = self._found(tuple(values))
                if found is not None:
                    bucket, placement = found
                    bucket.last_used = self._clock
                    try:
                        return bucket.call(leaves, [leaves[position] for position in self._positions], placement)
                    except torch.OutOfMemoryError as error:
                        self._give_up(bucket, f"out of memory: {error}")
                    except CaptureFailed as error:
                        self.release()
                        events.emit(events.RunnerFallback("padded", "eager", f"capture failed: {error}"))
                    except (IndexError, RuntimeError) as error:
                        # eager refuses the data in its own words, or, for an empty result, does not look at it
                        events.emit(events.RunnerFallback("padded", "eager", f"for one call: {error}"))
        return self._eager(leaves, values)

    def release(self) -> None:
        """Forgets the buckets and makes no more."""
        with self._lock:
            self._released = True
            self._buckets.clear()
            self._calls.clear()
            self._pools.clear()

    def describe(self) -> str:
        """How many buckets there are for the program."""
        return f"padded, {len(self._buckets)} buckets"

    def padding(self) -> PaddingReport:
        """What came of each symbol, in the bucket with the most repairs."""
        with self._lock:
            if not self._buckets:
                return padding_of(self._program)
            return report_of(self._program, max((each.made for each in self._buckets.values()), key=_repairs))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets, oldest first."""
        return tuple(self._buckets.values())

    def _found(self, values: tuple[int, ...]) -> tuple[Bucket, Placement] | None:
        """The bucket for a call and its place in it; None where it runs op by op."""
        if self._released:
            return None
        stream = _current_stream(self._device.index or 0) if self._device.type == "cuda" else 0
        key = (values, stream)
        found = self._calls.get(key)
        if found is None:
            sizes = {name: values[place] for name, place in self._symbols}
            bucket = self._bucket(sizes, stream)
            if bucket is None:
                return None
            if len(self._calls) >= _REMEMBERED:
                self._calls.popitem(last=False)
            found = self._calls[key] = (bucket, bucket.place(sizes))
        return found

    def _bucket(self, sizes: Mapping[str, int], stream: int) -> Bucket | None:
        """The bucket for these sizes: the one made for them, a new one if there is room, a larger one, or none."""
        start = time.perf_counter()
        chosen = choose(self._program, sizes, self._refusals)
        if not chosen.caps:
            return None
        found = self._buckets.get(_key(stream, chosen))
        if found is not None:
            return found
        if len(self._buckets) >= self._limit and not self._resting():
            return next((each for (s, *_), each in self._buckets.items() if s == stream and each.covers(sizes)), None)
        made = plan(self._program, sizes, self._refusals)
        self._tell(made)
        if made.padded is None:
            return None
        key = _key(stream, made)  # another one where something was refused only now
        found = self._buckets.get(key)
        if found is not None:
            return found
        while len(self._buckets) >= self._limit:
            self._forget(*self._oldest())
        bucket = self._buckets[key] = Bucket(self._program, made, self._device, self._pool(stream))
        events.emit(events.BucketMade(dict(made.caps), dict(made.exact), (time.perf_counter() - start) * 1e3))
        return bucket

    def _tell(self, made: Plan) -> None:
        for name, refusal in made.refusals.items():
            if name not in self._refusals:
                events.emit(events.PaddingRefused(name, str(refusal)))
        self._refusals.update(made.refusals)

    def _pool(self, stream: int) -> Any:
        if self._device.type != "cuda":
            return None
        if stream not in self._pools:
            self._pools[stream] = torch.cuda.graph_pool_handle()
        return self._pools[stream]

    def _oldest(self) -> tuple[Any, Bucket]:
        """The bucket that was used longest ago."""
        return min(self._buckets.items(), key=lambda item: item[1].last_used)

    def _resting(self) -> bool:
        """Whether a bucket has not been used for so long that another one may take its place."""
        return self._clock - self._oldest()[1].last_used > _RESTING * self._limit

    def _forget(self, key: Any, bucket: Bucket) -> None:
        del self._buckets[key]
        for call in [call for call, found in self._calls.items() if found is not None and found[0] is bucket]:
            del self._calls[call]

    def _give_up(self, bucket: Bucket, reason: str) -> None:
        for key in [key for key, each in self._buckets.items() if each is bucket]:
            self._forget(key, bucket)
        events.emit(events.RunnerFallback("padded", "eager", reason))


def _repairs(made: Plan) -> int:
    return len(made.padded.repairs) if made.padded is not None else 0


def _key(stream: int, chosen: Choice | Plan) -> Any:
    return stream, tuple(sorted(chosen.exact.items())), tuple(sorted(chosen.caps.items()))


def _check_fit(program: Program) -> torch.device:
    graph = program.graph
    check_recordable(program)
    if graph.mutates_inputs:
        raise Unfit("it writes to its arguments, parameters or buffers")
    if not program.modes.plain:
        raise Unfit("it runs under autocast or a default device")
    device = device_of(graph)
    read = {value for node in graph.nodes for value in (*values_in(node.args), *values_in(node.kwargs))}
    read.update(values_in(graph.outputs), (each.value for each in graph.inputs))
    read.update(node.outputs[0] for node in graph.nodes if node.outputs and node.outputs[0] is not None)
    devices = {value.spec.device for value in read}  # what nobody reads may lie anywhere: random states do
    if len(devices) > 1:
        raise Unfit(f"it computes on {', '.join(sorted(map(str, devices)))}, not on one device")
    if not candidates(program):
        raise Unfit("it has no size that could be padded")
    return device
