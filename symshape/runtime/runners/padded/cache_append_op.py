"""The op that appends keys and values to a padded cache in place, and its CUDA kernel
(:mod:`.growing_buffers` decides when it may).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape import events
from symshape.torch_internals import cuda

__all__ = ["APPENDED_IN_PLACE", "kernel_compiles", "write_by_kernel"]

_library = torch.library.Library("symshape", "FRAGMENT")
_library.define(
    "appended_(Tensor(a!) first, Tensor[] rest, Tensor start, Tensor fill, int dim) -> Tensor(a!)"
)
_failed: list[str] = []  # why the kernel is not tried again


@torch.library.impl(_library, "appended_", "CompositeExplicitAutograd")
def _appended_in_place(
    first: torch.Tensor,
    rest: Sequence[torch.Tensor],
    start: torch.Tensor,
    fill: torch.Tensor,
    dim: int,
) -> torch.Tensor:
    """Return ``first`` extended in place: unchanged up to ``start``, then ``rest``, then ``fill``.

    The memory of ``first`` (…, n, …) continues in its own strides for the sizes of ``rest``,
    tensors (…, m, …).  The result is a view (…, n + m, …) of that memory.  ``start`` 0-d int64, at
    most n; ``fill`` 0-d.  Elements of ``first`` from ``start`` on are overwritten.
    """
    behind = rest[0] if len(rest) == 1 else torch.cat(list(rest), dim)
    sizes = list(first.shape)
    sizes[dim] += behind.size(dim)
    whole = first.as_strided(sizes, first.stride())
    if whole.numel() and not _by_kernel(whole, behind, start, fill, dim):
        _by_ops(whole, behind, start, fill, dim)
    return whole


def _by_kernel(
    whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int
) -> bool:
    """Append with one kernel that touches only new positions; return False if no kernel can."""
    if not whole.is_cuda or _failed or not kernel_compiles():
        return False
    try:
        return write_by_kernel(whole, behind, start, fill, dim)
    except torch.OutOfMemoryError:
        raise
    except (
        Exception
    ) as error:  # the compiler is missing or fails: torch's ops raise errors of the arguments
        _failed.append(f"{type(error).__name__}: {error}")
        events.emit(events.RunnerFallback("a kernel that appends", "torch's ops", _failed[0]))
        return False


def _by_ops(
    whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int
) -> None:
    """Append with torch's ops, which read and write the whole tensor."""
    shape = [1] * whole.dim()
    shape[dim] = -1
    beyond = (torch.arange(whole.size(dim), device=whole.device) >= start).view(shape)
    torch.where(beyond, fill, whole, out=whole)
    more = behind.size(dim)
    whole.index_copy_(
        dim, start.view(1) if more == 1 else start + torch.arange(more, device=start.device), behind
    )


APPENDED_IN_PLACE: OpOverload = torch.ops.symshape.appended_.default
"""The in-place op, for graphs."""


# -- the kernel ------------------------------------------------------------------------------------
#
# It touches only the positions from the valid part's end on.  Only the device knows where that is.
# Torch's ops would read and write the whole cache to decide for each element; here each block
# begins where the valid part ends.  NVRTC compiles the kernel in a fraction of a second, where
# Triton takes two or three (``tests/bench/results/regret*``).


_THREADS = 256  # of a block
_BLOCKS = 2048  # blocks that share the work, if there is enough of it
_MOST = 2**31 - 1  # sizes and strides are passed as 32-bit integers
_MOST_BLOCKS = 65535  # along the second dimension of a grid
_INTEGERS = {
    1: (torch.int8, "char"),
    2: (torch.int16, "short"),
    4: (torch.int32, "int"),
    8: (torch.int64, "long long"),
}
"""The integer type of each element size in bytes, in torch and in C."""

Dim = tuple[int, int, int]
"""A size, and its strides in the memory and in the appended tensor."""

_SOURCE = """
typedef %s Element;

extern "C" __global__ void append(
    Element* whole, const Element* behind, const long long* start_at, const Element* fill_at,
    int total, int more, int second, int width, int lanes,
    int whole_first, int whole_second, int whole_place, int whole_inner,
    int behind_first, int behind_second, int behind_place, int behind_inner)
{
    const long long first = blockIdx.x / second, other = blockIdx.x %% second;
    whole += first * whole_first + other * whole_second;
    behind += first * behind_first + other * behind_second;
    const long long start = *start_at;
    const Element fill = *fill_at;
    const int places = blockDim.x / lanes, lane = threadIdx.x %% lanes;
    const long long step = (long long)gridDim.y * places;
    long long place = start + blockIdx.y * places + threadIdx.x / lanes;
    for (; place < total; place += step)
        for (long long inner = lane; inner < width; inner += lanes)
            whole[place * whole_place + inner * whole_inner] = place - start < more
                ? behind[(place - start) * behind_place + inner * behind_inner] : fill;
}
"""


def kernel_compiles() -> bool:
    """Return whether this torch compiles CUDA source."""
    return cuda.compile_kernel is not None


@cache
def _kernel(itemsize: int, device: int) -> Any:
    """Return the kernel for elements of so many bytes, compiled and loaded on a device."""
    assert cuda.compile_kernel is not None
    with torch.cuda.device(device):
        return cuda.compile_kernel(_SOURCE % _INTEGERS[itemsize][1], "append")


def write_by_kernel(
    whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int
) -> bool:
    """Write ``behind`` into ``whole`` from ``start`` on, then ``fill`` up to its end; return
    whether that was done.

    Elements before ``start`` are neither read nor written.  All tensors are on one device;
    ``start`` is 0-d int64, ``fill`` 0-d.  Tensors of more than three dimensions that do not merge,
    or of huge strides, are left to torch's ops.
    """
    inner, outer = _dims(whole, behind, dim)
    total, width = whole.size(dim), inner[0]
    if whole.element_size() not in _INTEGERS or whole.is_complex() or len(outer) > 2:
        return False
    first, second = [(1, 0, 0)] * (2 - len(outer)) + outer
    rows, lanes = first[0] * second[0], _power_of_two(min(width, _THREADS))
    strides = [
        (first[i], second[i], tensor.stride(dim), inner[i])
        for i, tensor in ((1, whole), (2, behind))
    ]
    if max(rows, total, width, *strides[0], *strides[1]) > _MOST:
        return False
    places = _THREADS // lanes
    parts = max(1, min(-(-total // places), _BLOCKS // rows, _MOST_BLOCKS))
    dtype, _ = _INTEGERS[whole.element_size()]
    # bytes are copied, whatever their dtype
    bits = [each.view(dtype) for each in (whole, behind, fill)]
    with torch.cuda.device_of(whole):
        _kernel(whole.element_size(), whole.get_device())(
            grid=(rows, parts, 1),
            block=(_THREADS, 1, 1),
            args=[
                *bits[:2],
                start,
                bits[2],
                total,
                behind.size(dim),
                second[0],
                width,
                lanes,
                *strides[0],
                *strides[1],
            ],
        )
    return True


def _power_of_two(number: int) -> int:
    """Return the least power of two that is no less than a number."""
    return 1 << (number - 1).bit_length()


def _dims(whole: torch.Tensor, behind: torch.Tensor, dim: int) -> tuple[Dim, list[Dim]]:
    """Return the dimensions except ``dim``, merged where both tensors allow it: the innermost one
    and the others.
    """
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
