"""The op that puts keys and values behind a padded cache where it lies (:mod:`.extended_buffers` says where it may)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meta_fns.torch_internals import OpOverload
from symshape import events
from symshape.runtime.runners import appending_kernel

__all__ = ["APPENDED_IN_PLACE"]

_library = torch.library.Library("symshape", "FRAGMENT")
_library.define("appended_(Tensor(a!) first, Tensor[] rest, Tensor start, Tensor fill, int dim) -> Tensor(a!)")
_failed: list[str] = []  # why the kernel is not asked again


@torch.library.impl(_library, "appended_", "CompositeExplicitAutograd")
def _appended_in_place(
    first: torch.Tensor, rest: Sequence[torch.Tensor], start: torch.Tensor, fill: torch.Tensor, dim: int
) -> torch.Tensor:
    """``first`` with the memory behind it: up to ``start`` as it was, then ``rest``, then ``fill``.

    ``first`` (…, n, …) lies in memory that goes on for the sizes of ``rest``, tensors (…, m, …), in its own strides:
    what is answered is (…, n + m, …) there.  ``start`` 0-d int64, at most n; ``fill`` 0-d.  What lay from ``start`` on
    does not matter, and is gone.
    """
    behind = rest[0] if len(rest) == 1 else torch.cat(list(rest), dim)
    sizes = list(first.shape)
    sizes[dim] += behind.size(dim)
    whole = first.as_strided(sizes, first.stride())
    if whole.numel() and not _by_kernel(whole, behind, start, fill, dim):
        _by_ops(whole, behind, start, fill, dim)
    return whole


def _by_kernel(whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int) -> bool:
    """In one kernel that touches what is new alone; False where there is none for it."""
    if not whole.is_cuda or _failed or not appending_kernel.available():
        return False
    try:
        return appending_kernel.write(whole, behind, start, fill, dim)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of a compiler that is missing or refuses: torch's ops say the rest
        _failed.append(f"{type(error).__name__}: {error}")
        events.emit(events.RunnerFallback("a kernel that appends", "torch's ops", _failed[0]))
        return False


def _by_ops(whole: torch.Tensor, behind: torch.Tensor, start: torch.Tensor, fill: torch.Tensor, dim: int) -> None:
    """By torch's ops, which read and write all of it."""
    shape = [1] * whole.dim()
    shape[dim] = -1
    beyond = (torch.arange(whole.size(dim), device=whole.device) >= start).view(shape)
    torch.where(beyond, fill, whole, out=whole)
    more = behind.size(dim)
    whole.index_copy_(dim, start.view(1) if more == 1 else start + torch.arange(more, device=start.device), behind)


APPENDED_IN_PLACE: OpOverload = torch.ops.symshape.appended_.default
"""It, for graphs."""
