"""Results that are lent: they share a bucket's memory and are valid until the next call."""

from __future__ import annotations

import torch

from symshape import forks

__all__ = ["Lender", "lend"]


def lend(tensor: torch.Tensor) -> torch.Tensor:
    """Return a new tensor object over the same memory."""
    return tensor.detach()


class Lender:
    """A lender of copies that are poisoned at the next call, so that a late read is noticed."""

    def __init__(self) -> None:
        self._lent: list[torch.Tensor] = []
        self._lock = forks.lock()

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy with the tensor's sizes and strides, valid until the next :meth:`spoil`."""
        with self._lock:
            made = tensor.clone()
            self._lent.append(made)
            return made

    def spoil(self) -> None:
        """Poison the copies lent so far."""
        with self._lock:
            lent, self._lent = self._lent, []
        for tensor in lent:
            _poison(tensor)


def _poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with NaN or the largest integer, or negate its booleans, unseen by autograd."""
    with torch.no_grad():
        memory = tensor.data
        if memory.dtype is torch.bool:
            memory.logical_not_()
        elif memory.dtype.is_floating_point or memory.dtype.is_complex:
            memory.fill_(torch.nan)
        else:
            memory.fill_(torch.iinfo(memory.dtype).max)
