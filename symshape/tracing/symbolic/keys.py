"""Dictionary keys that a program computes from sizes: ``{x.shape[0] / 2: x}``.

To put a number into a dictionary is to hash it, and a guard fixes the number then.  The key object
in the dictionary is still symbolic.  No call except the traced one may get that object.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from symshape.torch_internals import pytree

_NUMBERS: dict[type, Callable[[Any], Any]] = {
    torch.SymInt: int,
    torch.SymFloat: float,
    torch.SymBool: bool,
}


def plain_key(key: Any) -> Any:
    """Return a key, or nested tuples, lists and frozen sets of keys, with plain numbers for
    symbolic ones.

    A guard fixes each symbolic number.

    >>> plain_key((1, ["a", 2.5]))
    (1, ['a', 2.5])
    """
    kind = type(key)
    if kind in _NUMBERS:
        return _NUMBERS[kind](key)
    if kind not in (tuple, list, frozenset):
        return key
    plain = [plain_key(each) for each in key]
    return key if all(map(operator.is_, plain, key)) else kind(plain)


def with_plain_keys(tree: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a pytree structure with plain numbers for the symbolic ones among its keys."""
    if tree.is_leaf():
        return tree
    before = tree.children()
    children = [with_plain_keys(each) for each in before]
    context = plain_key(tree.context)
    if context is tree.context and all(map(operator.is_, children, before)):
        return tree
    return pytree.TreeSpec(tree.type, context, children)
