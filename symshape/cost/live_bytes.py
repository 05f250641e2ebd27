"""The live bytes of tensors while code runs, measured by a dispatch mode: the check on the
formulas.

>>> import torch
>>> x = torch.ones(1000)
>>> with LiveBytes([x]) as seen:
...     y = (x + 1).sum()
>>> seen.peak, seen.live
(8004, 4004)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from symshape.torch_internals import pytree
from symshape.torch_internals.dispatch import TorchDispatchMode


def every_byte(storage: torch.UntypedStorage) -> int:
    """Return the bytes of a storage."""
    return storage.nbytes()


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the bytes of storages, from the op that makes them until nobody holds them.

    Attributes:
        live: bytes of the tensors that are there now, with those that were there before (``held``).
        peak: the most after any op.
        changes: the number of each storage made, with its bytes, and of each that nobody holds any
            more, with 0; in order.
    """

    def __init__(
        self,
        held: Iterable[torch.Tensor],
        counted: Callable[[torch.UntypedStorage], int] = every_byte,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counted = counted
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in held}
        self._known = set(storages)
        self.changes: list[tuple[int, int]] = []
        self._made = 0
        self.live = self.peak = sum(map(counted, storages.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, and count the storages that it makes."""
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = self._counted(storage)
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        self.changes.append((self._made, size))
        weakref.finalize(storage, self._gone, key, size, self._made)
        self._made += 1

    def _gone(self, key: int, size: int, number: int) -> None:
        self._known.discard(key)
        self.live -= size
        self.changes.append((number, 0))
