"""The streams that CUDA graphs are captured on, each with a cuBLAS workspace at a fixed address.

cuBLAS works in a workspace that torch keeps for each pair of a handle (one a thread) and a stream;
a graph contains its address.  Any code may have torch return all workspaces to the allocator, as
``torch.compile(mode="reduce-overhead")`` does at each of its recordings.
``torch.cuda.empty_cache`` then unmaps them, unless they are in the pool of a live graph.  A replay
that uses an unmapped workspace accesses illegal memory.

A workspace can be outside such a pool for two reasons.  The first user of a stream decides where
its workspace is, and torch deals out 32 streams in turn, so that a user's stream can be one that
symshape captures on.  And graphs of one pool may use a workspace allocated in a capture for another
graph, which is gone.  Hence both are private: the stream is made by the driver, and its workspace
is alone in a pool that is never freed.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

# CU_STREAM_NON_BLOCKING: not in order with the legacy default stream, as torch's streams are not
_NON_BLOCKING = 1


@cache
def warm_up_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for runs before a capture; one a device, as cuBLAS keeps 32 MiB for each
    stream.
    """
    return torch.cuda.Stream(device)


@cache
def capture_stream(device: torch.device, replayed_on: int) -> torch.cuda.Stream:
    """Return the stream for capturing graphs that are replayed on the stream with this address.

    Graphs replayed on different streams are captured on different streams, so that they share no
    workspace.

    Raises:
        RuntimeError: the driver makes no stream.
    """
    del replayed_on  # is part of the key
    # another driver: use a torch stream, which may be the user's too
    if torch.version.hip is not None:
        return torch.cuda.Stream(device)
    return torch.cuda.ExternalStream(_made_by_driver(device), device)


def _made_by_driver(device: torch.device) -> int:
    """Return the address of a new stream, which lives as long as the process.

    Raises:
        RuntimeError: there is no driver library, or the driver failed, with its error number.
    """
    try:
        driver = ctypes.CDLL("nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1")
    except OSError as missing:
        raise RuntimeError(f"the CUDA driver's library cannot be loaded: {missing}") from missing
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # creates the device's context and makes it current
        error = driver.cuStreamCreate(ctypes.byref(made), ctypes.c_uint(_NON_BLOCKING))
    if error or made.value is None:
        raise RuntimeError(f"the CUDA driver could not create a stream on {device}: error {error}")
    return made.value


def keep_workspace(device: torch.device, stream: torch.cuda.Stream) -> None:
    """Place this thread's cuBLAS workspaces on ``stream`` in memory that stays mapped.

    Call it before each capture on ``stream``, which no other code uses.  A workspace that was
    returned since the last capture is allocated again from the same pool, which stays mapped.  No
    other stream has that pool, for the graphs of two streams may run at the same time.  Takes 0.1
    ms (H100, torch 2.11).

    Raises:
        RuntimeError: cuBLAS fails.
        torch.OutOfMemoryError: there is not enough memory.
    """
    # the pool belongs to the device that is current when it is made
    with torch.cuda.device(device):
        pool, square, row = _pool(stream)
        with torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool, device), torch.no_grad():
            torch.mm(square, square)  # cuBLAS' workspace: 32 MiB on an H100
            torch.addmm(row, square, square)  # cuBLASLt's own workspace: 1 MiB


@cache
def _pool(stream: torch.cuda.Stream) -> tuple[torch.cuda.MemPool, torch.Tensor, torch.Tensor]:
    """Return the pool of a stream's workspaces, and the operands of the products that allocate
    them.
    """
    return (
        torch.cuda.MemPool(),
        torch.zeros(32, 32, device=stream.device),
        torch.zeros(32, device=stream.device),
    )
