"""The streams that CUDA graphs are captured on, with a cuBLAS workspace that stays where it is.

cuBLAS works in a workspace that torch keeps for each pair of a handle (one a thread) and a stream; a graph has its
address.  Anybody may have torch give all of them back (``torch.compile(mode="reduce-overhead")`` does at each of its
recordings), and ``torch.cuda.empty_cache`` unmaps what was given back, unless it is in the pool of a graph that lives.
That it is in no such pool happens twice: whoever works on a stream first decides where its workspace is, and as torch
deals out 32 streams in turn, one of the user's can be one that we capture on; and graphs of one pool may use what was
allocated in a capture for another, which is gone.  A replay then is an illegal memory access.  Hence both are ours
alone: the stream is made by the driver, and its workspace is in a pool where nothing else is and that is never freed.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not in order with the legacy default stream, as torch's streams are not


@cache
def warm_up_stream(device: torch.device) -> torch.cuda.Stream:
    """What programs run on before they are captured; one for each device, as cuBLAS keeps 32 MiB for each stream."""
    return torch.cuda.Stream(device)


@cache
def capture_stream(device: torch.device, replayed_on: int) -> torch.cuda.Stream:
    """The stream that graphs are captured on which are replayed on a stream with this address.

    Graphs replayed on different streams are captured on different ones, so that their workspaces are apart.

    Raises: RuntimeError if the driver makes none.
    """
    del replayed_on  # is part of the key
    if torch.version.hip is not None:  # another driver: a stream that torch deals out, which may be the user's, too
        return torch.cuda.Stream(device)
    return torch.cuda.ExternalStream(_made_by_driver(device), device)


def _made_by_driver(device: torch.device) -> int:
    """The address of a new stream, which lives as long as the process.

    Raises: RuntimeError if there is no driver library, or with the driver's number of the error.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1")
    except OSError as missing:
        raise RuntimeError(f"the CUDA driver's library cannot be loaded: {missing}") from missing
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # the device's context is there and current
        error = driver.cuStreamCreate(ctypes.byref(made), ctypes.c_uint(_NON_BLOCKING))
    if error or made.value is None:
        raise RuntimeError(f"the CUDA driver made no stream on {device}: error {error}")
    return made.value


def keep_workspace(device: torch.device, stream: torch.cuda.Stream) -> None:
    """Sees to it that what cuBLAS works in on ``stream``, called by this thread, is in memory that stays.

    To be called before each capture on ``stream``, which nobody else uses: what was given back since the last one is
    taken from its pool again, which is mapped all the time.  No other stream has that pool, for its graphs may run
    meanwhile.  Takes 0.1 ms (H100, torch 2.11).

    Raises: RuntimeError if cuBLAS fails; torch.OutOfMemoryError.
    """
    with torch.cuda.device(device):  # the pool belongs to the device that is current when it is made
        pool, square, row = _pool(stream)
        with torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool, device), torch.no_grad():
            torch.mm(square, square)  # cuBLAS' workspace: 32 MiB on an H100
            torch.addmm(row, square, square)  # and that of cuBLASLt, which is another: 1 MiB


@cache
def _pool(stream: torch.cuda.Stream) -> tuple[torch.cuda.MemPool, torch.Tensor, torch.Tensor]:
    """The pool of a stream's workspaces, and what is multiplied."""
    return torch.cuda.MemPool(), torch.zeros(32, 32, device=stream.device), torch.zeros(32, device=stream.device)
