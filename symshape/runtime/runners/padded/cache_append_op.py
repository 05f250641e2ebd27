"""The op that appends keys and values to a padded cache in place (:mod:`.extended_buffers` decides
when it may).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.torch_internals import OpOverload
from symshape import events
from symshape.runtime.runners.padded import cache_append_kernel

__all__ = ["APPENDED_IN_PLACE"]

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
    if not whole.is_cuda or _failed or not cache_append_kernel.available():
        return False
    try:
        return cache_append_kernel.write(whole, behind, start, fill, dim)
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
