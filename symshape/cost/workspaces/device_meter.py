"""The requests of a call on a CUDA device, read from the history of torch's allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

from symshape.runtime.runners.cuda.capture import between_captures
from symshape.runtime.runners.cuda.stream import warm_up_stream
from symshape.torch_internals import cuda

__all__ = ["DeviceMeter", "device_meter"]

T = TypeVar("T")
_MOST_EVENTS = 100_000  # of one call; an op makes a few dozen


def device_meter(device: torch.device) -> DeviceMeter | None:
    """Return what measures calls on a device; None where the allocator has no history to read.

    A history that the user records is left alone: nothing is measured then.
    """
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return None
    if (
        torch.cuda.get_allocator_backend() != "native"
        or cuda.records_history()
        or cuda.is_capturing()
    ):
        return None
    if cuda.record_history is None or cuda.allocator_snapshot is None:
        return None
    index: Any = device.index  # None for the current device
    return _meter(torch.cuda.current_device() if index is None else index)


@cache
def _meter(index: int) -> DeviceMeter:
    return DeviceMeter(torch.device("cuda", index))


class DeviceMeter:
    """Runs calls as a run before a capture does: on that stream, without gradients, in memory that
    is given back.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(
        self,
        prepare: Callable[[], Callable[[], Any]],
        read: Callable[[Any, Sequence[tuple[int, int]]], T],
    ) -> T:
        """Return ``read`` of the result of a call's second run and the requests that the run made,
        in order.

        The first run initialises libraries and has cuDNN choose its algorithm.

        Raises:
            RuntimeError: the call fails; a ``torch.OutOfMemoryError`` if memory is short.
        """
        device, stream = self._device, warm_up_stream(self._device)
        with between_captures(), torch.cuda.device(device):
            pool = torch.cuda.MemPool()
            stream.wait_stream(torch.cuda.current_stream(device))
            with (
                torch.no_grad(),
                torch.autocast("cuda", enabled=False),
                _aside(pool, stream, device),
            ):
                call = prepare()
                call()
                with _history():
                    result = call()
                    events = self._events(stream)
                found = read(result, events)
                del call, result
            stream.synchronize()
            return found

    def _events(self, stream: torch.cuda.Stream) -> list[tuple[int, int]]:
        """Return the address and the bytes of each request on a stream so far; 0 bytes where one is
        freed.
        """
        assert cuda.allocator_snapshot is not None
        history = cuda.allocator_snapshot()["device_traces"][self._device.index]
        return [
            (int(each["addr"]), int(each["size"]) if each["action"] == "alloc" else 0)
            for each in history
            if each["stream"] == stream.cuda_stream
            and each["action"] in ("alloc", "free_completed")
        ]


@contextmanager
def _aside(
    pool: torch.cuda.MemPool, stream: torch.cuda.Stream, device: torch.device
) -> Iterator[None]:
    """Run the context's kernels on a stream, in memory of a pool."""
    with torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool, device):
        yield


@contextmanager
def _history() -> Iterator[None]:
    """Record the allocator's history meanwhile, without the lines of code that ask."""
    assert cuda.record_history is not None
    cuda.record_history(enabled="all", context=None, max_entries=_MOST_EVENTS)
    try:
        yield
    finally:
        cuda.record_history(enabled=None)
