"""A function without arguments as one CUDA graph from a shared pool; on other devices, as itself."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import attrs
import torch

from symshape.runtime.runners.capture_stream import capture_stream, keep_workspace, warm_up_stream
from symshape.runtime.runners.copies_inside import Added, add_copies
from symshape.runtime.runners.unowned import addresses, unowned

T = TypeVar("T")
Replay = Callable[[], Sequence[torch.Tensor]]
"""Runs a program on its buffers; answers its tensors, which the next replay may overwrite."""

_end_allocation: Callable[[int, Any], None] = getattr(torch._C, "_cuda_endAllocateToPool", lambda device, pool: None)
"""Tells the allocator of a device that memory comes from a pool no more (2.11 to 2.13; absent in CPU builds)."""


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
        draws: whether it draws random numbers.
    """

    buffers: Sequence[torch.Tensor]
    results: Callable[[Any], Sequence[torch.Tensor]]
    draws: bool = False


class CaptureFailed(Exception):
    """A program that cannot be captured as a CUDA graph, and why."""


def captured(
    run: Replay, device: torch.device, pool: Any, *, lent: bool = False, inside: Inside | None = None
) -> Recording:
    """What runs ``run`` again and again: it reads and writes the same memory at every replay.

    Args:
        run: the program on its buffers, which hold a call's inputs already.
        device: where it computes.
        pool: the memory pool of a CUDA graph; None elsewhere.
        lent: whether what it makes is read after another graph of the pool has run; else they use the same memory.
        inside: the copies that a graph is to make itself; None for none.

    Raises:
        CaptureFailed: it cannot be captured.
        torch.OutOfMemoryError: there is no memory for it.
    """
    return _cuda_graph(run, device, pool, lent, inside) if device.type == "cuda" else Recording(run)


def _cuda_graph(run: Replay, device: torch.device, pool: Any, lent: bool, inside: Inside | None) -> Recording:
    with warmed_up_aside(device):
        elsewhere = addresses(run())
    before = torch.cuda.memory_reserved(device)
    tensors: Sequence[torch.Tensor]
    try:
        graph, tensors, copies = record(run, device, pool, inside)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        raise CaptureFailed(str(error)) from error
    if not lent and torch.cuda.get_allocator_backend() == "native":  # others have their own ways with what is freed
        tensors = unowned(tensors, elsewhere)

    alone = replay_alone(graph, copies)

    def replay() -> Sequence[torch.Tensor]:
        alone()
        return tensors

    return Recording(replay, max(0, torch.cuda.memory_reserved(device) - before), graph.replay, tensors, copies)


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
    run: Callable[[], T], device: torch.device, pool: Any, inside: Inside | None = None
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """A CUDA graph of ``run``, what it answered (tensors in the graph's memory), and the copies that it makes itself.

    These are None where none are wanted, or there can be none.  Where memory is short, what nobody uses is given back
    to the device, and it is tried once more.

    Raises:
        torch.OutOfMemoryError: there is no memory for it.
        RuntimeError: it cannot be captured.
    """
    try:
        return _record(run, device, pool, inside)
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(device)
        gc.collect()
        torch.cuda.empty_cache()
    return _record(run, device, pool, inside)


def _record(
    run: Callable[[], T], device: torch.device, pool: Any, inside: Inside | None
) -> tuple[torch.cuda.CUDAGraph, T, Any]:
    """One capture, without the garbage collection that ``torch.cuda.graph`` begins with (most of a capture's time).

    Nor is there one while it lasts: a graph or an event that died in the middle would spoil it.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=inside is not None)
    stream = capture_stream(device, torch.cuda.current_stream(device).cuda_stream)
    keep_workspace(device, stream)
    torch.cuda.synchronize(device)
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(), torch.cuda.stream(stream):
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # sizes of 0 leave nothing to launch
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                results = run()
            except BaseException:
                with suppress(RuntimeError):  # says that the capture is broken, which is known
                    _end(graph, pool)
                raise
            _end(graph, pool)
            copies = None if inside is None else _copies(graph, inside, results, device)
    finally:
        if collects:
            gc.enable()
    return graph, results, copies


def _copies(graph: torch.cuda.CUDAGraph, inside: Inside, results: Any, device: torch.device) -> Any:
    """Makes a graph executable, with nodes for its copies if that can be."""
    added: Added | None = add_copies(graph, inside.buffers, inside.results(results))
    graph.instantiate()
    if added is None:
        return None
    try:
        return added.bind(-1 if inside.draws else device.index or 0)
    except RuntimeError:
        added.remove()
        graph.instantiate()
        return None


def _end(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    """Ends a capture.

    Where that fails, torch leaves its generator of random numbers and its allocator as if it were going on: the next
    ``torch.rand`` on the device would be an error, and freed memory would wait for its end.  A capture of nothing, and
    a word to the allocator, set them right.
    """
    try:
        graph.capture_end()
    except RuntimeError:
        if pool is not None:
            with suppress(RuntimeError):
                _end_allocation(torch.cuda.current_device(), pool)
        nothing = torch.cuda.CUDAGraph()
        with suppress(RuntimeError):
            nothing.capture_begin(capture_error_mode="thread_local")
            nothing.capture_end()
        raise
