"""What is put behind a padded cache where it lies, in Triton: only the positions from its end on are touched.

Where the valid part ends is known on the device alone.  Torch's ops would read and write all of the cache to decide
for each element; here each program begins where the valid part ends.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # there is none for this platform
    triton = None

__all__ = ["KERNEL", "write"]

_TILE = 1024  # elements that a program writes at once: 8 for each of its threads
_WIDEST = 256
_PROGRAMS = 2048  # so many share the work, where there is enough of it
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOST = 2**31 - 1

Dim = tuple[int, int, int]
"""A size, and the strides of the memory and of what is new."""


def _behind(  # type: ignore[no-untyped-def]
    whole,
    behind,
    start_at,
    fill_at,
    total,
    more,
    second,
    width,
    whole_first,
    whole_second,
    whole_place,
    whole_inner,
    behind_first,
    behind_second,
    behind_place,
    behind_inner,
    PLACES: tl.constexpr,
    INNER: tl.constexpr,
):
    row = tl.program_id(0)
    first = (row // second).to(tl.int64)
    other = (row % second).to(tl.int64)
    whole += first * whole_first + other * whole_second
    behind += first * behind_first + other * behind_second
    start = tl.load(start_at).to(tl.int32)
    fill = tl.load(fill_at)
    inner = tl.program_id(2) * INNER + tl.arange(0, INNER)
    inside = (inner < width)[None, :]
    inner = inner.to(tl.int64)[None, :]
    begin = start + tl.program_id(1) * PLACES
    while begin < total:
        place = begin + tl.arange(0, PLACES)
        number = place - start
        new = (number < more)[:, None]
        written = (place < total)[:, None] & inside
        number = number.to(tl.int64)[:, None]
        found = tl.load(behind + number * behind_place + inner * behind_inner, mask=written & new, other=0)
        target = whole + place.to(tl.int64)[:, None] * whole_place + inner * whole_inner
        tl.store(target, tl.where(new, found, fill), mask=written)
        begin += tl.num_programs(1) * PLACES


KERNEL: Any = None if triton is None else triton.jit(do_not_specialize=["total", "more", "second"])(_behind)
"""The kernel; None where there is no Triton."""


def write(whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int) -> bool:
    """Has ``whole`` hold ``behind`` from ``start`` on, then ``fill`` up to its end; False, with nothing done, if not.

    What is before ``start`` is neither read nor written.  All on one device; ``start`` and ``fill`` 0-d.  Tensors of
    unusual layouts are not for it, and nothing is without Triton.
    """
    dtype = _INTEGERS.get(whole.element_size())
    inner, outer = _dims(whole, behind, dim)
    if dtype is None or whole.is_complex() or len(outer) > 2 or whole.size(dim) > _MOST or inner[0] > _MOST:
        return False
    first, second = [(1, 0, 0)] * (2 - len(outer)) + outer
    rows, total, width = first[0] * second[0], whole.size(dim), inner[0]
    block = min(triton.next_power_of_2(width), _WIDEST)
    places = max(1, min(_TILE // block, triton.next_power_of_2(total)))
    blocks = triton.cdiv(width, block)
    parts = max(1, min(triton.cdiv(total, places), _PROGRAMS // (rows * blocks), 1 << 15))
    if rows > _MOST or blocks > 65535:
        return False
    bits = [each.view(dtype) for each in (whole, behind)]  # the same bytes, whatever they stand for
    strides = [(first[i], second[i], tensor.stride(dim), inner[i]) for i, tensor in ((1, whole), (2, behind))]
    with torch.cuda.device_of(whole):
        KERNEL[(rows, parts, blocks)](
            *(*bits, start, fill.view(dtype), total, behind.size(dim), second[0], width, *strides[0], *strides[1]),
            PLACES=places,
            INNER=block,
        )
    return True


def _dims(whole: torch.Tensor, behind: torch.Tensor, dim: int) -> tuple[Dim, list[Dim]]:
    """The dimensions but this one, several as one where they lie like one: the innermost, and the others."""
    found: list[Dim] = []
    for d, size in enumerate(whole.shape):
        if d == dim or size == 1:
            continue
        own, new = whole.stride(d), behind.stride(d)
        if found and found[-1][1:] == (size * own, size * new):
            found[-1] = (found[-1][0] * size, own, new)
        else:
            found.append((size, own, new))
    found.sort(key=lambda each: each[1])
    return (found[0], found[1:]) if found else ((1, 1, 1), [])
