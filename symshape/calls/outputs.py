"""From a program's flat outputs to its own structure, without a pytree walk where the structure is simple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from symshape.calls.pytrees import unflatten

Build = Callable[[list[Any]], Any]


def builder(tree: pytree.TreeSpec) -> Build:
    """The function that nests flat outputs as ``tree`` says."""
    if tree.is_leaf():
        return lambda flat: flat[0]
    if tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children()):
        return tuple if tree.type is tuple else list
    return lambda flat: unflatten(flat, tree)
