"""A function without arguments as one CUDA graph from a shared pool; on other devices, as itself."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import attrs
import torch

from symshape import forks
from symshape.runtime.runners.capture_generator import begin_aside
from symshape.runtime.runners.capture_stream import capture_stream, keep_workspace, warm_up_stream
from symshape.runtime.runners.copies_inside import Added, add_copies
from symshape.runtime.runners.graph_pool import GraphPool
from symshape.runtime.runners.unowned import addresses, unowned
from symshape.torch_internals import cuda

T = TypeVar("T")
Replay = Callable[[], Sequence[torch.Tensor]]
"""Runs a program on its buffers; answers its tensors, which the next replay may overwrite."""

is_capturing: Callable[[], bool] = cuda.is_capturing
"""Whether somebody captures on the current stream.  Not to be asked in CPU builds, where it may raise."""
_end_allocation: Callable[[int, Any], None] = cuda.end_allocation
"""Tells the allocator of a device that memory comes from a pool no more (2.11 to 2.13; absent in CPU builds)."""
_release: Callable[[int, Any], None] = cuda.release_pool
"""Tells it that one graph less has the pool (likewise)."""

_INVALIDATED = 901
"""cudaErrorStreamCaptureInvalidated: nothing that the program did itself, which has an error of its own (900)."""
_one_at_a_time = forks.lock(outer=-1)
"""Held by whoever captures: programs that are replayed on one stream are captured on one, in one workspace; two that
draw share a generator; and waiting for a device breaks captures there."""


@attrs.frozen(eq=False)
class Recording:
    """What can be replayed.

    Attributes:
        replay: runs it.
        reserved: the bytes by which the pool grew for it; None where there is no pool.
        launch: runs it and answers nothing; None where only ``replay`` does.
        tensors: what ``replay`` answers each time; empty where that is not the same.
        copies: those that it makes itself if ``launch`` runs it; None for none.
    """

    replay: Replay
    reserved: int | None = None
    launch: Callable[[], object] | None = None
    tensors: Sequence[torch.Tensor] = ()
    copies: Any = None


@attrs.frozen
class Inside:
    """Copies that a graph is to make itself.

    Attributes:
        buffers: what inputs are copied to.
        results: from what the program answers to what is copied out of it.
    """

    buffers: Sequence[torch.Tensor]
    results: Callable[[Any], Sequence[torch.Tensor]]


class CaptureFailed(Exception):
    """A program that cannot be captured as a CUDA graph, and why."""


def captured(
    run: Replay,
    device: torch.device,
    pool: GraphPool | None,
    *,
    draws: bool,
    lent: bool = False,
    inside: Inside | None = None,
) -> Recording:
    """What runs ``run`` again and again: it reads and writes the same memory at every replay.

    Args:
        run: the program on its buffers, which hold a call's inputs already.
        device: where it computes.
        pool: the memory of a CUDA graph; None elsewhere.
        draws: whether it draws random numbers.
        lent: whether what it makes is read after another graph of the pool has run; else they use the same memory.
        inside: the copies that a graph is to make itself; None for none.

    Raises:
        CaptureFailed: it cannot be captured.
        torch.OutOfMemoryError: there is no memory for it.
    """
    return Recording(run) if pool is None else _cuda_graph(run, device, pool, draws, lent, inside)


def _cuda_graph(
    run: Replay, device: torch.device, pool: GraphPool, draws: bool, lent: bool, inside: Inside | None
) -> Recording:
    with warmed_up_aside(device):
        elsewhere = addresses(run())
    before = _reserved(device)
    tensors: Sequence[torch.Tensor]
    try:
        graph, tensors, copies = record(run, device, pool, inside, draws=draws)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        settle(device)
        raise CaptureFailed(str(error)) from error
    if not lent and torch.cuda.get_allocator_backend() == "native":  # others have their own ways with what is freed
        tensors = unowned(tensors, elsewhere)

    alone = replay_alone(graph, copies)

    def replay() -> Sequence[torch.Tensor]:
        alone()
        return tensors

    return Recording(replay, max(0, _reserved(device) - before), graph.replay, tensors, copies)


def _reserved(device: torch.device) -> int:
    """As ``torch.cuda.memory_reserved``, which takes milliseconds to spell out all that is counted."""
    counted = torch.cuda.memory.memory_stats_as_nested_dict(device)
    return int(counted["reserved_bytes"]["all"]["current"]) if counted else 0


def replay_alone(graph: torch.cuda.CUDAGraph, copies: Any) -> Callable[[], None]:
    """What runs a graph without the copies that it can make itself."""
    if copies is None:
        return graph.replay

    def replay() -> None:
        copies.turn_off()
        graph.replay()

    return replay


@contextmanager
def warmed_up_aside(device: torch.device) -> Iterator[None]:
    """What runs inside runs on another stream, in order with the current one: libraries initialise before a capture."""
    current, side = torch.cuda.current_stream(device), warm_up_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


def record(
    run: Callable[[], T], device: torch.device, pool: GraphPool, inside: Inside | None = None, *, draws: bool
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """A CUDA graph of ``run``, what it answered (tensors in the graph's memory), and the copies that it makes itself.

    These are None where none are wanted, or there can be none.  It is tried once more where memory is short, when what
    nobody uses was given back to the device, and where another thread broke the capture by waiting for the device.

    Args:
        run: what is captured.
        device: where it computes.
        pool: the memory of the graph.
        inside: the copies that it is to make itself; None for none.
        draws: whether random numbers are drawn.

    Raises:
        torch.OutOfMemoryError: there is no memory for it.
        RuntimeError: it cannot be captured.
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


def settle(device: torch.device) -> None:
    """Waits for a device on which a capture failed; no other one is under way, which that would break."""
    with _one_at_a_time:
        torch.cuda.synchronize(device)


def _record(
    run: Callable[[], T], device: torch.device, pool: GraphPool, inside: Inside | None, draws: bool
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """One capture, without the garbage collection that ``torch.cuda.graph`` begins with (most of a capture's time).

    Nor is there one while it lasts: a graph or an event that died in the middle would spoil it.
    """
    capture = _Capture(torch.cuda.CUDAGraph(keep_graph=inside is not None), pool.handle(), draws)
    stream = capture_stream(device, torch.cuda.current_stream(device).cuda_stream)
    keep_workspace(device, stream)
    torch.cuda.synchronize(device)
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(), torch.cuda.stream(stream):
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # sizes of 0 leave nothing to launch
            capture.begin(device)
            try:
                results = run()
            except BaseException:
                with suppress(RuntimeError):  # says that the capture is broken, which is known
                    capture.end()
                raise
            capture.end()
            pool.keep(capture.graph)
            copies = None if inside is None else _copies(capture.graph, inside, results, device, draws)
    finally:
        if collects:
            gc.enable()
    return capture.graph, results, copies


def _copies(graph: torch.cuda.CUDAGraph, inside: Inside, results: Any, device: torch.device, draws: bool) -> Any:
    """Makes a graph executable, with nodes for its copies if that can be."""
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

    Where one fails, torch leaves its allocator as if the capture were going on, and its generator of random numbers,
    if that is in it: freed memory would wait for its end, that of the pool for ever, and the next ``torch.rand`` on the
    device would be an error.  Both are set right.
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
            _end_allocation(device, self.pool)  # an error where that was not begun, or is over
            _release(device, self.pool)
        if not self.draws:
            return
        nothing = torch.cuda.CUDAGraph()  # its end is one of the generator's, too
        with suppress(RuntimeError):
            nothing.capture_begin(capture_error_mode="thread_local")
            nothing.capture_end()
