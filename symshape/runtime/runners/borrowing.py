"""Results that are lent: they lie in the memory of a bucket and are right until the next call."""

from __future__ import annotations

import torch

from symshape import forks

__all__ = ["Lender", "lend"]


def lend(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of its own over the same memory."""
    return tensor.detach()


class Lender:
    """Lends copies that turn to poison at the next call, so that whoever reads them too late sees it."""

    def __init__(self) -> None:
        self._lent: list[torch.Tensor] = []
        self._lock = forks.lock()

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy with the tensor's sizes and strides, until the next ``spoil``."""
        with self._lock:
            made = tensor.clone()
            self._lent.append(made)
            return made

    def spoil(self) -> None:
        """Poisons what was lent."""
        with self._lock:
            lent, self._lent = self._lent, []
        for tensor in lent:
            _poison(tensor)


def _poison(tensor: torch.Tensor) -> None:
    """NaN, or the largest integer, or the opposite of what a boolean was, without autograd's counting the write."""
    with torch.no_grad():
        memory = tensor.data
        if memory.dtype is torch.bool:
            memory.logical_not_()
        elif memory.dtype.is_floating_point or memory.dtype.is_complex:
            memory.fill_(torch.nan)
        else:
            memory.fill_(torch.iinfo(memory.dtype).max)
