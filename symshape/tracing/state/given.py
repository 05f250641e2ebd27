"""The containers that a function was called with: it may not change them, nor give them back.

A graph is called with the tensors and numbers in them; the lists and dictionaries themselves it never sees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from symshape.calls.records import is_record

_ADVICE = "which a graph would not do; return what is new instead"


class Given:
    """Positional and keyword arguments as a function is called with them while it is traced.

    What it does to records among them is another's affair (``tracing/record_writes.py``).

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        containers: the ids of the lists and dictionaries among them.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._leaves, self._tree = self._flattened()
        self.containers = {id(each) for each in _containers((*args, *kwargs.values()))}

    def _flattened(self) -> tuple[list[Any], pytree.TreeSpec]:
        return pytree.tree_flatten((tuple(self._args), dict(self._kwargs)), lambda each: is_record(type(each)))

    def changes(self, result: Any) -> list[str]:
        """What is wrong with the arguments afterwards, or with the result, in words."""
        leaves, tree = self._flattened()
        same = len(leaves) == len(self._leaves) and all(map(_is, leaves, self._leaves))
        if tree != self._tree or not same:
            return [f"changes a list or dictionary among its arguments, {_ADVICE}"]
        if any(id(each) in self.containers for each in _containers((result,))):
            return ["returns a list or dictionary that is an argument of its own; return a copy of it"]
        return []


def _is(one: Any, other: Any) -> bool:
    return one is other


def _containers(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, (list, dict, deque)):
            yield value
        if isinstance(value, dict):
            yield from _containers(value.values())
        elif isinstance(value, (list, tuple, deque)):
            yield from _containers(value)
