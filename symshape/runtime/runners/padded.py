"""One program for a range of sizes: inputs are copied into buffers at their capacities, sizes beside them.

Each call runs the same padded program on the same buffers and copies the valid part of its results out: on the CPU op
by op, on CUDA as one CUDA graph for each bucket, all of them from one memory pool.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape import events
from symshape.graph.program import Program
from symshape.graph.steps import values_in
from symshape.options import Options
from symshape.runtime.padding.planning import Choice, Plan, candidates, choose, plan
from symshape.runtime.padding.report import PaddingReport, padding_of, report_of
from symshape.runtime.padding.results import aliased_storages
from symshape.runtime.padding.transform import Refusal, device_of, pad
from symshape.runtime.runners.bucket import Bucket, Placement
from symshape.runtime.runners.capture import CaptureFailed
from symshape.runtime.runners.fitness import check_recordable
from symshape.runtime.runners.graph_store import GraphStore
from symshape.runtime.runners.kernels import Kernels
from symshape.runtime.runners.protocol import Runner, Unfit

_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
_is_capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_REMEMBERED = 4096  # calls, by their sizes
_PATIENCE = 256  # calls before a program is compiled in the background
_RESTING = 8  # a bucket leaves when this many calls for each bucket have passed without it


class PaddedRunner:
    """Runs a program through padded programs, one for each bucket of sizes.

    Args:
        program: what is to be run.
        eager: serves what no bucket can.
        store: where the graphs of the compiled function are kept.
        options: how buckets are kept and results are answered.

    Raises:
        Unfit: the program cannot be run again and again on buffers, or has no size that can be padded.
    """

    def __init__(self, program: Program, eager: Runner, store: GraphStore, options: Options) -> None:
        self._program = program
        self._eager = eager.run
        self._store = store
        self._options = options
        self._limit = store.limit
        self._positions = [each.position for each in program.graph.inputs]
        self._symbols = [(name, place) for name, place in program.positions.items()]
        self._device = _check_fit(program)
        self._kernels = self._make_kernels(options)
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
            if self._kernels is not None:
                self._kernels.release()

    def describe(self) -> str:
        """How many buckets there are for the program, and whose kernels they run."""
        compiled = sum(each.variants[0].kernels == "inductor" for each in self._buckets.values() if each.variants)
        return f"padded, {len(self._buckets)} buckets" + (f", {compiled} of Inductor's kernels" if compiled else "")

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
        bucket = self._buckets[key] = Bucket(
            self._program, made, self._device, self._pool(stream), self._kernels
        )
        events.emit(events.BucketMade(dict(made.caps), dict(made.exact), (time.perf_counter() - start) * 1e3))
        return bucket

    def _make_kernels(self, options: Options) -> Kernels | None:
        if options.kernels == "eager":
            return None
        graph, device = self._program.graph, self._device
        aliased = aliased_storages(graph)
        patience = _PATIENCE if options.kernels == "auto" else None
        return Kernels(lambda region: pad(graph, region, device, aliased), patience)

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
