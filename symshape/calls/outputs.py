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
    if not _has_size(tree):
        if all(child.is_leaf() for child in tree.children()):
            nest, context = pytree.SUPPORTED_NODES[tree.type].unflatten_fn, tree.context
            return lambda flat: nest(list(flat), context)
        return lambda flat: pytree.tree_unflatten(flat, tree)
    return lambda flat: unflatten(flat, tree)


def unflatten(flat: Sequence[Any], tree: pytree.TreeSpec, shared: Sequence[int] = ()) -> Any:
    """``pytree.tree_unflatten``, but a ``torch.Size`` comes back as one (torch makes it a tuple).

    Args:
        flat: the leaves.
        tree: how they nest.
        shared: for each container, outermost first, the number of the one that it is; nothing where none is another.
    """
    if not shared and not _has_size(tree):
        return pytree.tree_unflatten(flat, tree)
    return _build(iter(flat), tree, shared, [])


def _has_size(tree: pytree.TreeSpec) -> bool:
    return tree.type is torch.Size or any(_has_size(child) for child in tree.children())


def _build(leaves: Any, tree: pytree.TreeSpec, shared: Sequence[int], built: list[Any]) -> Any:
    if tree.is_leaf():
        return next(leaves)
    number = len(built)
    built.append(None)
    children = [_build(leaves, child, shared, built) for child in tree.children()]
    if shared and shared[number] != number:  # its leaves are those of the first
        built[number] = built[shared[number]]
    elif tree.type is torch.Size:
        built[number] = torch.Size(children)
    else:
        built[number] = pytree.SUPPORTED_NODES[tree.type].unflatten_fn(children, tree.context)
    return built[number]
