"""A function without arguments as one CUDA graph from a shared pool; on other devices, as itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

Replay = Callable[[], Sequence[torch.Tensor]]
"""Runs a program on its buffers; answers its tensors, which the next replay may overwrite."""


@attrs.frozen(eq=False)
class Recording:
    """What can be replayed.

    Attributes:
        replay: runs it.
        reserved: the bytes by which the pool grew for it; None where there is no pool.
    """

    replay: Replay
    reserved: int | None = None


class CaptureFailed(Exception):
    """A program that cannot be captured as a CUDA graph, and why."""


def captured(run: Replay, device: torch.device, pool: Any) -> Recording:
    """What runs ``run`` again and again: it reads and writes the same memory at every replay.

    Args:
        run: the program on its buffers, which hold a call's inputs already.
        device: where it computes.
        pool: the memory pool of a CUDA graph; None elsewhere.

    Raises:
        CaptureFailed: it cannot be captured.
        torch.OutOfMemoryError: there is no memory for it.
    """
    return _cuda_graph(run, device, pool) if device.type == "cuda" else Recording(run)


def _cuda_graph(run: Replay, device: torch.device, pool: Any) -> Recording:
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # warm up: libraries initialise
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    before = torch.cuda.memory_reserved(device)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                tensors = run()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        raise CaptureFailed(str(error)) from error

    def replay() -> Sequence[torch.Tensor]:
        graph.replay()
        return tensors

    return Recording(replay, max(0, torch.cuda.memory_reserved(device) - before))
