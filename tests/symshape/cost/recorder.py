"""The live bytes of tensors while a program runs, as a dispatch mode sees them: what peak memory is held against."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Counts the bytes of storages from the op that made them until nobody holds them.

    ``peak`` is the most after any op, with the bytes of the tensors that were there before (``held``).
    """

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        super().__init__()
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in held}
        self.known = set(storages)
        self.live = self.peak = sum(storages.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size
