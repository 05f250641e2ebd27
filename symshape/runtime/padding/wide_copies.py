"""Copies of tensors with gaps in fewer, wider elements: the same bytes in half the time, for
elements of two bytes.

Torch copies a tensor with gaps element by element, and a device moves 2 bytes as fast as 8.  So a
large copy is made through views of a wider dtype, if the views contain the same bytes.
``runners/compiled_launch.cpp`` does the same for the calls that it serves.
"""

from __future__ import annotations

import torch

__all__ = ["copied", "least_bytes", "may_gain", "widened"]

LEAST = 1 << 20
"""The least bytes of a copy that is examined: the views take a few µs of the host."""
DEVICES = frozenset({"cuda"})
"""The device types where wide copies pay: a CPU copies rows of any dtype at the speed of its
memory.
"""

_WIDE = torch.int64
_PLAIN = torch.Tensor, torch.nn.Parameter


def least_bytes(device: torch.device) -> int:
    """Return the least bytes of a copy on a device that may be made wide; 0 if none is."""
    return LEAST if device.type in DEVICES else 0


def may_gain(buffer: torch.Tensor) -> bool:
    """Return whether any copy into this buffer, or out of it, could be made in wider elements."""
    return (
        buffer.nbytes >= LEAST
        and buffer.itemsize < _WIDE.itemsize
        and buffer.device.type in DEVICES
    )


def widened(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target and the source of a copy, as views with wider elements if the copy is large
    and has gaps.

    >>> torch.empty(2, 8, dtype=torch.int16)[:, :4].view(torch.int64).shape
    torch.Size([2, 1])
    """
    if (
        source.nbytes < LEAST
        or target.device.type not in DEVICES
        or not _same_bytes(target, source)
    ):
        return target, source
    return target.view(_WIDE), source.view(_WIDE)


def copied(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Copy the source to the target and return the target."""
    if source.nbytes < LEAST:
        return target.copy_(source)
    wide, read = widened(target, source)
    wide.copy_(read)
    return target


def _same_bytes(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Return whether a copy can be made in wider elements; False for contiguous tensors, which need
    none.
    """
    if (
        target.dtype is not source.dtype
        or target.device != source.device
        or target.shape != source.shape
    ):
        return False
    if type(target) not in _PLAIN or type(source) not in _PLAIN:
        return False
    if target.layout is not torch.strided or source.layout is not torch.strided:
        return False
    factor = _WIDE.itemsize // target.itemsize
    if factor < 2 or not target.dim() or target.size(-1) % factor:
        return False
    if target.is_contiguous() and source.is_contiguous():
        return False
    return _divides(target, factor) and _divides(source, factor)


def _divides(tensor: torch.Tensor, factor: int) -> bool:
    """Return whether each wider element would cover ``factor`` adjacent elements, aligned in
    memory.
    """
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.stride(-1) != 1:
        return False
    apart = (*tensor.stride()[:-1], tensor.storage_offset())
    return not any(each % factor for each in apart) and tensor.data_ptr() % _WIDE.itemsize == 0
