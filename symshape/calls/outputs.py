"""From a program's flat outputs to its own structure, without a pytree walk where the structure is simple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Build = Callable[[list[Any]], Any]


def builder(tree: pytree.TreeSpec) -> Build:
    """The function that nests flat outputs as ``tree`` says."""
    if tree.is_leaf():
        return lambda flat: flat[0]
    if tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children()):
        return tuple if tree.type is tuple else list
    return lambda flat: unflatten(flat, tree)


def unflatten(flat: Sequence[Any], tree: pytree.TreeSpec) -> Any:
    """``pytree.tree_unflatten``, but a ``torch.Size`` comes back as one (torch makes it a tuple)."""
    if not _has_size(tree):
        return pytree.tree_unflatten(flat, tree)
    return _build(iter(flat), tree)


def _has_size(tree: pytree.TreeSpec) -> bool:
    return tree.type is torch.Size or any(_has_size(child) for child in tree.children())


def _build(leaves: Any, tree: pytree.TreeSpec) -> Any:
    if tree.is_leaf():
        return next(leaves)
    children = [_build(leaves, child) for child in tree.children()]
    if tree.type is torch.Size:
        return torch.Size(children)
    return pytree.SUPPORTED_NODES[tree.type].unflatten_fn(children, tree.context)
