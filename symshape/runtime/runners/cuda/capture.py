"""The capture of a function without arguments as one CUDA graph from a shared pool; no capture on
other devices.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import attrs
import torch

from symshape import forks
from symshape.graph.graph import Graph
from symshape.runtime.runners.cuda.copies_in_graph import Added, add_copies
from symshape.runtime.runners.cuda.pool import GraphPool
from symshape.runtime.runners.cuda.stream import capture_stream, keep_workspace, warm_up_stream
from symshape.torch_internals import cuda

T = TypeVar("T")
Replay = Callable[[], Sequence[torch.Tensor]]
"""Runs a program on its buffers and returns its tensors, which the next replay may overwrite."""

is_capturing: Callable[[], bool] = cuda.is_capturing
"""Returns whether the current stream is being captured.  CPU builds must not call it: it may raise
there.
"""
_end_allocation: Callable[[int, Any], None] = cuda.end_allocation
"""Ends the allocator's use of a pool on a device (2.11 to 2.13; absent in CPU builds)."""
_release: Callable[[int, Any], None] = cuda.release_pool
"""Decreases the number of graphs that use a pool (2.11 to 2.13; absent in CPU builds)."""

_PREPARING = ("cudnn", "fft")
"""The beginnings of names of ops whose libraries make plans for each size, with memory of their
own.
"""
_INVALIDATED = 901
"""cudaErrorStreamCaptureInvalidated: the capture was broken from outside (the program's own errors
have code 900).
"""
_one_at_a_time = forks.lock(outer=-1)
"""The lock around each capture.

Programs that are replayed on one stream are captured on one stream, with one workspace.  Two
programs that draw share a generator.  Waiting for a device breaks captures on it.
"""


@attrs.frozen(eq=False)
class Recording:
    """A program that can be replayed.

    Attributes:
        replay: runs the program and returns its tensors.
        reserved: the bytes by which the pool grew for it; None if there is no pool.
        loading: the ms of the run before the capture, which loads kernels; 0 without one.
        in_vain: whether a capture without such a run failed before.
        launch: runs the program and returns nothing; None if only ``replay`` can run it.
        tensors: the tensors that ``replay`` returns each time; empty if they vary.
        copies: the copies that the graph makes itself if run by ``launch``; None for none.
    """

    replay: Replay
    reserved: int | None = None
    launch: Callable[[], object] | None = None
    tensors: Sequence[torch.Tensor] = ()
    copies: Any = None
    loading: float = 0.0
    in_vain: bool = False


@attrs.frozen
class Inside:
    """The copies that a graph is to make itself.

    Attributes:
        buffers: the tensors that inputs are copied to.
        results: returns the tensors to copy out, given the program's tensors.
    """

    buffers: Sequence[torch.Tensor]
    results: Callable[[Any], Sequence[torch.Tensor]]


class CaptureFailed(Exception):
    """Raised for a program that cannot be captured as a CUDA graph, with the reason."""


def captured(
    run: Replay,
    device: torch.device,
    pool: GraphPool | None,
    *,
    draws: bool,
    lent: bool = False,
    inside: Inside | None = None,
    reads: Sequence[torch.Tensor] | None = None,
) -> Recording:
    """Return a recording of ``run``, which reads and writes the same memory at every replay.

    Args:
        run: the program on its buffers, which hold a call's inputs already.
        device: the device that the program computes on.
        pool: the memory of a CUDA graph; None on other devices.
        draws: whether the program draws random numbers.
        lent: whether results are read after another graph of the pool has run; else graphs reuse
            their memory.
        inside: the copies that the graph is to make itself; None for none.
        reads: the tensors outside that ``run`` reads, if the same ops were captured before at other
            sizes: their kernels are loaded, so nothing runs before the capture. None: ``run`` runs
            once before.

    Raises:
        CaptureFailed: the program cannot be captured.
        torch.OutOfMemoryError: there is not enough memory.
    """
    if pool is None:
        return Recording(run)
    if reads is not None:
        try:
            return _cuda_graph(run, device, pool, draws, lent, inside, addresses(reads))
        except CaptureFailed:  # a library prepares itself for these sizes
            pass
    start = time.perf_counter()
    with warmed_up_aside(device):
        elsewhere = addresses(run())
    loading = (time.perf_counter() - start) * 1e3
    made = _cuda_graph(run, device, pool, draws, lent, inside, elsewhere)
    return attrs.evolve(made, loading=loading, in_vain=reads is not None)


def loads_for_sizes(graph: Graph) -> bool:
    """Return whether ops of a graph may prepare something on the device for each new size, so that
    they must run once before they are captured.
    """
    return torch.backends.cudnn.benchmark or any(
        getattr(node.op, "namespace", "") != "aten"
        or node.op._opname.lstrip("_").startswith(_PREPARING)
        for node in graph.nodes
    )


def _cuda_graph(
    run: Replay,
    device: torch.device,
    pool: GraphPool,
    draws: bool,
    lent: bool,
    inside: Inside | None,
    elsewhere: Collection[int],
) -> Recording:
    before = _reserved(device)
    tensors: Sequence[torch.Tensor]
    try:
        graph, tensors, copies = record(run, device, pool, inside, draws=draws)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        settle(device)
        raise CaptureFailed(str(error)) from error
    # other allocators free memory differently
    if not lent and torch.cuda.get_allocator_backend() == "native":
        tensors = unowned(tensors, elsewhere)

    alone = replay_alone(graph, copies)

    def replay() -> Sequence[torch.Tensor]:
        alone()
        return tensors

    return Recording(replay, max(0, _reserved(device) - before), graph.replay, tensors, copies)


def _reserved(device: torch.device) -> int:
    """Return ``torch.cuda.memory_reserved``, without the milliseconds that it takes to format all
    statistics.
    """
    counted = torch.cuda.memory.memory_stats_as_nested_dict(device)
    return int(counted["reserved_bytes"]["all"]["current"]) if counted else 0


def replay_alone(graph: torch.cuda.CUDAGraph, copies: Any) -> Callable[[], None]:
    """Return a function that replays a graph without the copies that the graph can make itself."""
    if copies is None:
        return graph.replay

    def replay() -> None:
        copies.turn_off()
        graph.replay()

    return replay


@contextmanager
def warmed_up_aside(device: torch.device) -> Iterator[None]:
    """Run the context's kernels on a side stream, in order with the current one, to initialise
    libraries.
    """
    current, side = torch.cuda.current_stream(device), warm_up_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


def record(
    run: Callable[[], T],
    device: torch.device,
    pool: GraphPool,
    inside: Inside | None = None,
    *,
    draws: bool,
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """Return a CUDA graph of ``run``, its result (tensors in the graph's memory), and the graph's
    own copies.

    The copies are None if none are wanted or possible.  A capture is repeated once: if memory is
    short, after unused memory was returned to the device; or if another thread broke the capture by
    waiting for the device.

    Args:
        run: the function to capture.
        device: the device that it computes on.
        pool: the memory of the graph.
        inside: the copies that the graph is to make itself; None for none.
        draws: whether ``run`` draws random numbers.

    Raises:
        torch.OutOfMemoryError: there is not enough memory.
        RuntimeError: ``run`` cannot be captured.
    """
    with _one_at_a_time:
        try:
            return _record(run, device, pool, inside, draws)
        except torch.OutOfMemoryError:
            torch.cuda.synchronize(device)
            gc.collect()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            if getattr(error, "error_code", None) != _INVALIDATED:
                raise
            torch.cuda.synchronize(device)
        return _record(run, device, pool, inside, draws)


@contextmanager
def between_captures() -> Iterator[None]:
    """Wait until no other thread captures, and let none begin meanwhile."""
    with _one_at_a_time:
        yield


def settle(device: torch.device) -> None:
    """Wait for a device on which a capture failed, at a time when no other capture is in
    progress.
    """
    with between_captures():
        torch.cuda.synchronize(device)


def _record(
    run: Callable[[], T], device: torch.device, pool: GraphPool, inside: Inside | None, draws: bool
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """Capture once, without the garbage collection with which ``torch.cuda.graph`` begins (most of
    a capture's time).

    Garbage collection is also off during the capture: a graph or an event that died then would
    break it.
    """
    capture = _Capture(torch.cuda.CUDAGraph(keep_graph=inside is not None), pool.handle(), draws)
    stream = capture_stream(device, torch.cuda.current_stream(device).cuda_stream)
    keep_workspace(device, stream)
    torch.cuda.synchronize(device)
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(), torch.cuda.stream(stream):
            # sizes of 0 leave nothing to launch
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            try:
                capture.begin(device)
                try:
                    results = run()
                except BaseException:
                    with suppress(RuntimeError):  # the broken capture raises again here
                        capture.end()
                    raise
                capture.end()
            finally:
                if draws:
                    # the beginning sets the generator's offset on this stream to 0: without a wait
                    # that may come after a replay on another stream has set its own
                    with suppress(RuntimeError):
                        stream.synchronize()
            pool.keep(capture.graph)
            copies = (
                None if inside is None else _copies(capture.graph, inside, results, device, draws)
            )
    finally:
        if collects:
            gc.enable()
    return capture.graph, results, copies


def _copies(
    graph: torch.cuda.CUDAGraph, inside: Inside, results: Any, device: torch.device, draws: bool
) -> Any:
    """Instantiate a graph, with nodes for its copies if possible; return the copies or None."""
    added: Added | None = add_copies(graph, inside.buffers, inside.results(results))
    graph.instantiate()
    if added is None:
        return None
    try:
        return added.bind(-1 if draws else device.index or 0)
    except RuntimeError:
        added.remove()
        graph.instantiate()
        return None


@attrs.frozen
class _Capture:
    """The beginning and the end of a capture.

    If either fails, torch leaves its allocator in the state of a capture in progress, and its
    random generator too if the capture uses it.  Freed memory would then wait for the capture's
    end, memory of the pool for ever, and the next ``torch.rand`` on the device would raise.  Both
    states are repaired.
    """

    graph: torch.cuda.CUDAGraph
    pool: Any
    draws: bool

    def begin(self, device: torch.device) -> None:
        begin = partial(self.graph.capture_begin, pool=self.pool, capture_error_mode="thread_local")
        try:
            if self.draws:
                begin()
            else:
                begin_aside(begin, device)
        except RuntimeError:
            self._set_right()
            raise

    def end(self) -> None:
        try:
            self.graph.capture_end()
        except RuntimeError:
            self._set_right()
            raise

    def _set_right(self) -> None:
        device = torch.cuda.current_device()
        with suppress(RuntimeError):
            # raises if the allocation has not begun or has ended
            _end_allocation(device, self.pool)
            _release(device, self.pool)
        if not self.draws:
            return
        nothing = torch.cuda.CUDAGraph()  # the end of its capture also ends the generator's
        with suppress(RuntimeError):
            nothing.capture_begin(capture_error_mode="thread_local")
            nothing.capture_end()


def begin_aside(begin: Callable[[], object], device: torch.device) -> None:
    """Begin a capture that draws no random numbers, and leave the device's generator outside the
    capture.

    torch has one generator a device.  During a capture the generator is in capture mode for all
    threads: ``torch.rand`` in another thread raises ("Offset increment outside graph capture"), and
    in the same thread too after a capture that failed half way.  So the capture begins with a spare
    state, which is replaced at once.

    Args:
        begin: begins the capture; it may raise.
        device: the device, with its index.
    """
    default = torch.cuda.default_generators[device.index or 0]
    own = default.graphsafe_get_state()
    aside = default.clone_state()
    aside.seed()  # a thread that draws at this very moment gets different numbers from all others
    default.graphsafe_set_state(aside)
    try:
        begin()
    finally:
        default.graphsafe_set_state(own)


# -- results without ownership ---------------------------------------------------------------------
#
# Tensors over a CUDA graph's memory that do not own it: later captures from the pool may reuse it.
# Results of a replay are copied out before another graph of its stream is replayed, so the results
# of all buckets can use the same memory.  The pool itself lives as long as any of its graphs.


_storage_at: Callable[[int, torch.device, int], Any] | None = cuda.storage_at
"""Returns a storage over memory with another owner (2.11 to 2.13; torch's CUDA graph trees use it).
"""


def addresses(tensors: Sequence[torch.Tensor]) -> frozenset[int]:
    """Return the addresses of the tensors' storages."""
    return frozenset(each.untyped_storage().data_ptr() for each in tensors)


def unowned(tensors: Sequence[torch.Tensor], before: Collection[int]) -> list[torch.Tensor]:
    """Return the same tensors; those with memory from a capture's pool are replaced by tensors that
    do not own it.

    Args:
        tensors: the results of a function during its capture.
        before: :func:`addresses` of the results of the same function just before, outside a
            capture: memory at one of them (an argument, a parameter, a constant) is not from the
            pool.
    """
    made: dict[int, Any] = {}
    found = []
    for each in tensors:
        memory = each.untyped_storage()
        address = memory.data_ptr()
        if (
            _storage_at is None
            or not address
            or address in before
            or each.is_conj()
            or each.is_neg()
        ):
            found.append(each)
            continue
        if address not in made:
            made[address] = _storage_at(address, each.device, memory.nbytes())
        over = torch.empty(0, dtype=each.dtype, device=each.device)
        found.append(over.set_(made[address], each.storage_offset(), each.size(), each.stride()))
    return found
