"""The memory that sums over many rows ask for themselves on CUDA: biases' gradients, for instance.

Where few columns would leave a device idle, torch splits the rows over thread blocks, whose partial
sums meet in device memory: about as much as the summed tensor.  How many blocks share the rows is
known from the sizes and the device (``aten/src/ATen/native/cuda/Reduce.cuh``).  An H200 with torch
2.11 asked for these bytes; other versions and devices were not tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import attrs
import torch

from meta_fns.core.layout import contiguous_strides
from symshape.cost.workspaces.op_requests import is_known
from symshape.graph.steps import Node
from symshape.runtime.runners.cuda.graph_bytes import integer_at

__all__ = ["Multiprocessors", "partial_sums"]

_SUMS = (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mean.dim)
_THREADS, _WARP = 512, 32  # of a block that sums single columns; of a warp
_FEWEST, _MOST = 16, 256  # values that a thread sums
_COUNTER = 4  # bytes


@attrs.frozen
class Multiprocessors:
    """The multiprocessors of a device.

    Attributes:
        count: how many there are.
        threads: the most threads of each.
    """

    count: int = 132
    threads: int = 2048

    @classmethod
    def here(cls) -> Multiprocessors:
        """Return those of the current CUDA device; of an H100 if there is none."""
        if not torch.cuda.is_available():
            return cls()
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        return cls(device.multi_processor_count, device.max_threads_per_multi_processor)

    def partial_sums(self, rows: int, columns: int, itemsize: int) -> tuple[int, ...]:
        """Return the bytes of partial sums and of the blocks' counters; empty if a block sums a
        column alone.

        >>> Multiprocessors(132, 2048).partial_sums(16384, 2048, 4)
        (138412032, 64)
        >>> Multiprocessors(132, 2048).partial_sums(1000, 2048, 4)
        ()

        Args:
            rows: the number of values of a sum.
            columns: the number of sums, next to each other in memory.
            itemsize: the bytes of a partial sum.
        """
        together = next(each for each in (4, 2, 1) if columns % each == 0)  # columns of a thread
        width, height = _block(columns // together, rows, _THREADS // together)
        if rows < min(height * _FEWEST, _MOST):
            return ()
        values = -(-rows // height)  # of a thread
        blocks = -(-(columns // together) // width)
        wanted = self.count * (self.threads // (width * height))
        if values < _MOST or blocks > wanted:
            return ()
        sharing = max(min(-(-wanted // blocks), -(-values // _FEWEST)), -(-values // _MOST))
        if sharing < 2:
            return ()
        return itemsize * columns * sharing * width * together, _COUNTER * blocks


def _block(columns: int, rows: int, threads: int) -> tuple[int, int]:
    """Return the threads of a block along columns and along rows, both powers of two."""
    wide, high = (min(1 << each.bit_length() - 1, threads) for each in (columns, rows))
    width = min(wide, _WARP)
    height = min(high, threads // width)
    return min(wide, threads // height), height


def partial_sums(node: Node, values: Mapping[str, int], device: Multiprocessors) -> tuple[int, ...]:
    """Return the bytes that an op asks for, besides its result, while it sums rows on CUDA.

    The rows are the leading dimensions of a contiguous tensor. Sums of single rows ask for little.
    They are left out, as are sums of other layouts or of sizes without a value, and AMD's devices.

    Args:
        node: the call of an op.
        values: the values of symbols.
        device: where it runs.
    """
    if node.op not in _SUMS:
        return ()
    spec, dims = node.args[0].spec, node.args[1]
    on_cuda = spec.device.type == "cuda" and torch.version.hip is None
    if not on_cuda or not spec.dtype.is_floating_point or not dims or not spec.sizes:
        return ()
    if not all(is_known(each, values) for each in (*spec.sizes, *spec.strides)):
        return ()
    sizes, strides = (
        [integer_at(each, values) for each in part] for part in (spec.sizes, spec.strides)
    )
    summed = {integer_at(dim, values) % len(sizes) for dim in dims}
    wide = [place for place, size in enumerate(sizes) if size != 1]
    along = contiguous_strides(tuple(sizes))
    leading = [place in summed for place in wide]
    if leading != sorted(leading, reverse=True) or any(
        strides[place] != along[place] for place in wide
    ):
        return ()
    rows = prod(sizes[place] for place in wide if place in summed)
    columns = prod(sizes[place] for place in wide if place not in summed)
    if min(rows, columns) < 2:
        return ()
    made = node.outputs[0]
    dtype = spec.dtype if made is None else made.spec.dtype
    return device.partial_sums(rows, columns, max(dtype.itemsize, 4))
