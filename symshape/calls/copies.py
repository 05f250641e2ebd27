"""Copies of a call's arguments on memory of their own, so that a second run cannot touch what the
call writes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from symshape.torch_internals import pytree


def copy_call(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy a call's arguments: tensors get memory of their own, with their layout and the memory
    that they share.

    Other leaves are passed unchanged; containers are made anew. A copy is a leaf for autograd.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in tensors:
            key = leaf.untyped_storage()._cdata
            if key not in storages:
                storages[key] = leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
            tensors[id(leaf)] = _on(storages[key], leaf)
        return tensors[id(leaf)]

    return pytree.tree_map(copy, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


def _on(storage: torch.UntypedStorage, original: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``original`` on another storage, with its Python attributes."""
    fresh = torch.empty(0, dtype=original.dtype, device=original.device)
    with torch.no_grad():
        fresh.set_(storage, original.storage_offset(), original.size(), original.stride())
    if original.is_conj():
        fresh = fresh.conj()
    if original.is_neg():
        fresh = fresh._neg_view()
    if type(original) is torch.nn.Parameter:
        fresh = torch.nn.Parameter(fresh, original.requires_grad)
    else:
        fresh.requires_grad_(original.requires_grad)
    fresh.__dict__.update(original.__dict__)
    return fresh
