"""The CUDA-graph runner: one graph for each exact set of sizes, static inputs, copied outputs, a
bounded number.

A call copies its inputs into the graph's buffers, replays, and clones the outputs on the same
stream, so no later replay changes a result.  Parameters and buffers are used in place; their
addresses are checked on each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch.autograd import forward_ad

from symshape import events
from symshape.calls.generator_states import nothing_collected
from symshape.calls.questions import is_transformed
from symshape.graph.codegen import compiled
from symshape.graph.detached_values import detached_values
from symshape.graph.program import Program
from symshape.graph.random_states import RandomStates
from symshape.graph.steps import Value, values_in
from symshape.runtime.policy.eviction import FADES
from symshape.runtime.policy.ledger import Ledger
from symshape.runtime.policy.size_offers import SizeOffers
from symshape.runtime.runners.cuda.capture import (
    Inside,
    is_capturing,
    record,
    replay_alone,
    settle,
    warmed_up_aside,
)
from symshape.runtime.runners.cuda.capture_faults import around_uncaptured
from symshape.runtime.runners.cuda.graph_bytes import weight_of
from symshape.runtime.runners.cuda.launch import launcher
from symshape.runtime.runners.cuda.static_outputs import Outputs, is_dense
from symshape.runtime.runners.eager import EagerRunner
from symshape.runtime.runners.graph_store import GraphKey, GraphStore, Lease, Weight
from symshape.runtime.runners.pieces.recordable import check_recordable
from symshape.runtime.runners.protocol import Cut, Note, Runner, Unfit, silent
from symshape.runtime.runners.work import Work, estimates_of
from symshape.torch_internals import cuda

_current_stream: Callable[[int], int] = cuda.current_stream
"""Returns the raw stream of a device, without making a Stream object (2.11 to 2.13; absent in CPU
builds).
"""
_APART = (
    "the call is part of another capture, or what the program writes shares memory with "
    "another input or parameter"
)
# calls at the same addresses: a capture (0.6 ms) is earned back at about 2.5 µs a call
_WORTH_A_GRAPH = 256
_MOST_SIZES = 10_000  # sizes remembered as refused


@attrs.frozen(eq=False)
class Captured:
    """A captured CUDA graph with its buffers.

    Attributes:
        replay: runs the CUDA graph on its buffers.
        inputs: the static input tensors, in the order of the program's inputs.
        outputs: returns the flat outputs after a replay, given the call's leaves.
        addresses: the data pointers of the lifted tensors at capture.
        launch: serves calls in one pass of C++; None if that is not possible.
    """

    replay: Callable[[], object]
    inputs: list[torch.Tensor]
    outputs: Callable[[Sequence[Any]], list[Any]]
    addresses: list[int]
    repeats: Repeats = attrs.field(factory=lambda: Repeats())
    launch: Any = None


class Repeats:
    """The count of successive calls whose inputs had the same addresses, and the graph that reads
    them in place.

    A caller whose inputs are always in the same memory (a serving loop with buffers of its own) is
    spared the copy: after ``_WORTH_A_GRAPH`` such calls the program is captured once more on that
    memory.  That graph is replayed only for inputs at exactly these addresses, and dropped when
    other addresses come.
    """

    __slots__ = ("addresses", "count", "direct")

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.count = 0
        self.direct: Captured | None = None

    def see(self, addresses: list[int], before: int = 0) -> bool:
        """Record a call's input addresses; return whether it is time to capture on them.

        ``before``: the number of successive calls with these addresses that were counted elsewhere,
        with this one.
        """
        if before == _WORTH_A_GRAPH:
            self.addresses, self.count = addresses, before - 1
        if addresses != self.addresses:
            self.addresses, self.count, self.direct = addresses, 0, None
        self.count += 1
        return self.count == _WORTH_A_GRAPH


class CudaGraphRunner:
    """A runner with one CUDA graph for each exact set of sizes.

    With ``patient``, sizes are captured once the ledger says that it pays: their calls run eagerly
    until then.

    Attributes:
        instead: the runner of the pieces, if the whole program could not be captured; else None.

    Raises:
        Unfit: the program cannot be captured (no CUDA, data-dependent sizes, random numbers,
            gradients …).
    """

    def __init__(
        self,
        program: Program,
        eager: EagerRunner,
        store: GraphStore,
        *,
        patient: bool = False,
        note: Note = silent,
        cut: Cut | None = None,
    ) -> None:
        self._program = program
        self._eager = eager.fallback
        self._captured_run = eager.fallback
        self._store = store
        self._note = note
        self._number = store.number()
        self._positions = [each.position for each in program.graph.inputs]
        self._lifted = program.lifted_tensors
        self._leases: dict[Any, Lease] = {}  # by sizes and stream: those that C++ serves
        self._estimates = estimates_of(program.graph)
        self._symbols = list(program.positions.items())
        work, ledger = Work(program.graph, tuple(program.positions)), Ledger(store.promise)
        self._offers = (
            SizeOffers(ledger, self._estimates, work, "a graph of {}".format) if patient else None
        )
        self._refused: set[tuple[int, ...]] = set()
        self._device = _check_fit(program)
        mutated = {id(value.storage) for value in program.graph.mutated}
        self._written = [
            i for i, each in enumerate(program.graph.inputs) if id(each.value.storage) in mutated
        ]
        lifted = [each for each in program.graph.lifted if not each.constant]
        self._written_lifted = [each.tensor for each in lifted if id(each.value.storage) in mutated]
        self._writes = bool(self._written or self._written_lifted)
        self._draws = program.graph.uses_randomness
        detached = detached_values(program.graph.nodes)
        self._detached = [
            i
            for i, each in enumerate(program.graph.outputs)
            if type(each) is Value and each in detached
        ]
        self._told = False
        self._released = False
        self._cut = cut
        self.instead: Runner | None = None
        self._lock = store.lock
        self._index = self._device.index or 0

    def run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Return the flat outputs of one call."""
        # C++ sees other transforms
        if self._leases and forward_ad._current_level < 0 and not is_capturing():
            with self._lock:
                lease = self._leases.get((tuple(values), _current_stream(self._index)))
                if lease is not None:
                    serving: Captured = lease.item.repeats.direct or lease.item
                    found: list[Any] | None = (
                        None if serving.launch is None else serving.launch(leaves, ())
                    )
                    if found is not None:
                        self._store.clock = now = self._store.clock + 1
                        credit = lease.credit  # ``use``, without a call of Python's
                        credit.amount = (
                            credit.amount * FADES ** (now - credit.last_used) + credit.gain
                        )
                        credit.last_used = now
                        return found
        if is_transformed():  # copies of inputs would lose torch.func's transforms
            return self._eager(leaves, values)
        if self.instead is not None:
            return self.instead.run(leaves, values)
        # no gradients are recorded; and written tensors may require gradients
        with torch.no_grad():
            return self._run(leaves, values)

    def _run(self, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Run one call step by step, when no C++ launch serves it."""
        inputs = [leaves[position] for position in self._positions]
        if is_capturing() or (self._writes and self._overlapping(inputs)):
            if not self._told:
                self._told = True
                events.emit(events.RunnerFallback("cudagraph", "eager", _APART))
                self._note("ran op by op", text=_APART)
            return self._eager(leaves, values)
        with self._lock:
            key = self.key(values)
            captured: Captured | None = self._store.get(key)
            if captured is not None and captured.addresses != [t.data_ptr() for t in self._lifted]:
                self._store.remove(key)
                captured = None
            if captured is None:
                captured = self._capture_or_none(key, leaves, values)
            if captured is not None:
                repeats = captured.repeats
                before = (
                    0
                    if captured.launch is None or repeats.direct is not None
                    else captured.launch.repeated
                )
                addresses = [tensor.data_ptr() for tensor in inputs]
                if repeats.see(addresses, before) and inputs and not self._written:
                    repeats.direct = self._capture_direct(key, leaves, values)
                if repeats.direct is not None:
                    repeats.direct.replay()
                    return repeats.direct.outputs(leaves)
                if len(inputs) == 1:
                    captured.inputs[0].copy_(inputs[0])
                elif inputs:
                    torch._foreach_copy_(captured.inputs, inputs)
                captured.replay()
                for position in self._written:
                    inputs[position].copy_(captured.inputs[position])
                return captured.outputs(leaves)
        if self._offers is None:
            return self._eager(leaves, values)
        run = compiled(self._eager)  # no part of an eager call's time
        start = time.perf_counter()
        results = run(leaves, values)
        self._estimates.eager_host.saw((time.perf_counter() - start) * 1e3)
        return results

    def _overlapping(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether memory that the program writes may be shared with another input or a
        lifted tensor.

        Copies of the inputs would be wrong then.
        """
        memory = [tensor.untyped_storage().data_ptr() for tensor in inputs]
        filled = [address for address in memory if address]
        if len(set(filled)) != len(filled):
            return True
        return any(tensor.untyped_storage().data_ptr() in filled for tensor in self._lifted)

    def key(self, values: Sequence[int]) -> GraphKey:
        """Return the key of the graph for these sizes on the current stream."""
        return GraphKey(self._number, tuple(values), _current_stream(self._index))

    def release(self) -> None:
        """Drop this program's graphs and capture no more."""
        with self._lock:
            self._released = True
            self._store.drop(self._number)
            if self.instead is not None:
                self.instead.release()

    @property
    def graphs(self) -> int:
        """Return the number of its graphs."""
        return len(self._store.of(self._number))

    def describe(self) -> str:
        """Return the runner's name and its number of graphs."""
        if self.instead is not None:
            return self.instead.describe()
        return f"cudagraph, {self.graphs} graphs"

    def _capture_or_none(
        self, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> Captured | None:
        if self._released or key.sizes in self._refused:
            return None
        sizes = tuple([values[place] for _, place in self._symbols])
        offers, answer = self._offers, None
        if offers is not None:
            answer = offers.ask(sizes, (), [sizes]) if self._estimates.ready else None
            if answer is None or answer.makes is None:
                return None
        weight, credit = self._weight(values), None if answer is None else answer.credit
        if not self._store.admits(key, key.stream, weight, credit):
            if offers is not None:
                offers.failed(sizes, dearer=False)
            return None
        try:
            captured = self._capture(key, leaves, values)
            gone = partial(self._note, "dropped", values=key.sizes, text="others were wanted more")
            place = (key.sizes, key.stream)
            lease = self._store.put(
                key,
                captured,
                program=key.program,
                pool=key.stream,
                weight=weight,
                leave=partial(self._leases.pop, place, None),
                evicted=gone,
            )
            if answer is not None:
                lease.credit.begin(answer.credit, answer.gain, self._store.clock)
            if captured.launch is not None:
                self._leases[place] = lease
            return captured
        except Unfit as error:
            reason = str(error)
        except RuntimeError as error:
            reason = f"capture failed: {error}"
            settle(self._device)
            if not isinstance(error, torch.OutOfMemoryError):
                self.instead = around_uncaptured(
                    self._cut, self._program, self._device, leaves, values
                )
                if self.instead is not None:
                    self._store.drop(self._number)  # graphs of other sizes serve no more
        if len(self._refused) >= _MOST_SIZES:
            self._refused.clear()
        self._refused.add(key.sizes)
        events.emit(events.RunnerFallback("cudagraph", "eager", reason))
        self._note("ran op by op", values=key.sizes, text=reason)
        return None

    def _weight(self, values: Sequence[int]) -> Weight:
        """Return the bytes of a graph for these sizes, if the store counts bytes."""
        if self._store.memory is None:
            return Weight()
        return weight_of(
            self._program.graph, {name: values[at] for name, at in self._program.positions.items()}
        )

    def _capture(self, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]) -> Captured:
        start = time.perf_counter()
        inputs = [_static_copy(leaves[position]) for position in self._positions]
        static = list(leaves)
        for position, tensor in zip(self._positions, inputs, strict=True):
            static[position] = tensor
        kept = [tensor.clone() for tensor in self._written_lifted]
        with nothing_collected():
            random = torch.cuda.get_rng_state(self._device) if self._draws else None
        try:
            with warmed_up_aside(self._device):  # also proves that these sizes run
                self._captured_run(static, values)
            graph, flat, copies = self._record(key, static, values, inputs)
        finally:  # undo the warm-up's writes
            for tensor, before in zip(self._written_lifted, kept, strict=True):
                tensor.copy_(before)
            if random is not None:  # the replay draws the numbers that eager would
                torch.cuda.set_rng_state(random, self._device)
        outputs = Outputs(
            flat, dict(zip(self._positions, inputs, strict=True)), self._lifted, self._detached
        )
        milliseconds = (time.perf_counter() - start) * 1e3
        if self._offers is not None:
            self._estimates.price.saw(milliseconds)
            self._offers.bought(tuple([values[place] for _, place in self._symbols]), milliseconds)
        events.emit(events.GraphCaptured(tuple(values), milliseconds))
        self._note(
            "captured", values=tuple(values), text="as a CUDA graph", milliseconds=milliseconds
        )
        return self._captured(graph, inputs, outputs, copies)

    def _captured(
        self, graph: Any, inputs: list[torch.Tensor], outputs: Outputs, copies: Any
    ) -> Captured:
        """Return a captured graph with its launcher."""
        rows = None if self._writes else outputs.rows()
        launch = None
        if rows is not None:
            pairs = list(zip(self._positions, inputs, strict=True))
            launch = launcher(
                graph.replay, (), pairs, self._lifted, rows, worth=_WORTH_A_GRAPH, copies=copies
            )
        addresses = [tensor.data_ptr() for tensor in self._lifted]
        return Captured(replay_alone(graph, copies), inputs, outputs, addresses, launch=launch)

    def _record(
        self,
        key: GraphKey,
        leaves: Sequence[Any],
        values: Sequence[int],
        buffers: Sequence[torch.Tensor],
    ) -> tuple[torch.cuda.CUDAGraph, list[Any], Any]:
        """Capture one run, with the copies to these buffers; the outputs are in the graph's
        memory.
        """
        inside = None
        if not self._writes:
            known = {id(each) for each in (*leaves, *self._lifted)}
            inside = Inside(buffers, partial(_computed, known))
        run = partial(self._captured_run, leaves, values)
        return record(run, self._device, self._store.pool(key.stream), inside, draws=self._draws)

    def _capture_direct(
        self, key: GraphKey, leaves: Sequence[Any], values: Sequence[int]
    ) -> Captured | None:
        """Capture a graph that reads the call's own inputs in place; return None if that is not
        possible.
        """
        start = time.perf_counter()
        try:
            graph, flat, copies = self._record(key, leaves, values, ())
            inputs = {position: leaves[position] for position in self._positions}
            outputs = Outputs(flat, inputs, self._lifted, self._detached)
            outputs.let_go_of_inputs()
        except (Unfit, RuntimeError):
            return None
        milliseconds = (time.perf_counter() - start) * 1e3
        events.emit(events.GraphCaptured(tuple(values), milliseconds))
        self._note(
            "captured",
            values=tuple(values),
            text="on the memory of the arguments",
            milliseconds=milliseconds,
        )
        return self._direct(graph, inputs, outputs, copies)

    def _direct(
        self, graph: Any, inputs: Mapping[int, torch.Tensor], outputs: Outputs, copies: Any
    ) -> Captured:
        """Return a graph that reads these inputs in place, with its launcher for calls with the
        same addresses.
        """
        rows = None if self._writes else outputs.rows()
        launch = None
        if rows is not None:
            stays = [(position, tensor.data_ptr()) for position, tensor in inputs.items()]
            launch = launcher(graph.replay, (), (), self._lifted, rows, copies=copies, stays=stays)
        addresses = [tensor.data_ptr() for tensor in self._lifted]
        return Captured(replay_alone(graph, copies), [], outputs, addresses, launch=launch)


def _computed(known: set[int], flat: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors to copy out of a graph: each tensor once, without those that existed
    before.
    """
    found = {
        id(each): each for each in flat if isinstance(each, torch.Tensor) and id(each) not in known
    }
    return list(found.values())


def _check_fit(program: Program) -> torch.device:
    graph = program.graph
    if not torch.cuda.is_available():
        raise Unfit("there is no CUDA device")
    read = {
        value for node in graph.nodes for value in (*values_in(node.args), *values_in(node.kwargs))
    }
    read.update(values_in(graph.outputs))
    read -= RandomStates.of(graph).inside
    devices = {value.spec.device for value in read} | {
        each.value.spec.device for each in graph.inputs
    }
    devices |= {
        node.outputs[0].spec.device
        for node in graph.nodes
        if node.outputs and node.outputs[0] is not None
    }
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise Unfit(
            f"it computes on {', '.join(sorted(map(str, devices))) or 'no device'}, not on one "
            "CUDA device"
        )
    check_recordable(program, draws=True)
    return next(iter(devices))


def _static_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a buffer with the tensor's sizes, strides and values."""
    extent = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)
    )
    if tensor.numel() and not is_dense(tensor):
        raise Unfit(
            f"an input has gaps in memory ({tensor.numel()} elements over {extent} elements of "
            "memory)"
        )
    copy = torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)
