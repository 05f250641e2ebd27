"""Copies with gaps in fewer, wider elements: the same bytes in half of the time, where an element has two.

Torch copies what is no single block of memory element by element, and a device moves 2 bytes as fast as 8.  So a large
copy is made through views of another dtype, if nothing but the bytes of each element tells one from the other.
``runners/compiled_launch.cpp`` does the same for the calls that it serves.
"""

from __future__ import annotations

import torch

__all__ = ["copied", "least_bytes", "may_gain", "widened"]

LEAST = 1 << 20
"""Bytes from which on a copy is looked at: the views take a few µs of the host."""
DEVICES = frozenset({"cuda"})
"""Where it pays: a CPU copies rows of any dtype at the speed of its memory."""

_WIDE = torch.int64
_PLAIN = torch.Tensor, torch.nn.Parameter


def least_bytes(device: torch.device) -> int:
    """From how many bytes on copies on a device are made wide; 0 where none is."""
    return LEAST if device.type in DEVICES else 0


def may_gain(buffer: torch.Tensor) -> bool:
    """Whether any copy into this buffer, or out of it, could be made in wider elements."""
    return buffer.nbytes >= LEAST and buffer.itemsize < _WIDE.itemsize and buffer.device.type in DEVICES


def widened(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and source of a copy, in wider elements where both are large, with gaps, and the same bytes then.

    >>> torch.empty(2, 8, dtype=torch.int16)[:, :4].view(torch.int64).shape
    torch.Size([2, 1])
    """
    if source.nbytes < LEAST or target.device.type not in DEVICES or not _same_bytes(target, source):
        return target, source
    return target.view(_WIDE), source.view(_WIDE)


def copied(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The target, with the elements of the source."""
    if source.nbytes < LEAST:
        return target.copy_(source)
    wide, read = widened(target, source)
    wide.copy_(read)
    return target


def _same_bytes(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a copy is one of wider elements; not where it is one of a whole block anyway."""
    if target.dtype is not source.dtype or target.device != source.device or target.shape != source.shape:
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
    """Whether so many elements lie in a row wherever one of the wider elements would begin."""
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.stride(-1) != 1:
        return False
    apart = (*tensor.stride()[:-1], tensor.storage_offset())
    return not any(each % factor for each in apart) and tensor.data_ptr() % _WIDE.itemsize == 0
