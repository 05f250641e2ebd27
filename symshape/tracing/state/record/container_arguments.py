"""The lists and dictionaries among a function's arguments: the function's changes to them, and
returns of them.

A graph is called with the tensors and numbers inside the containers, and never sees the containers
themselves.  If the graph serves calls instead of the function, those calls write to the containers
(``calls/argument_writes.py``).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from symshape.calls import variables
from symshape.calls.argument_writes import ArgumentContents, At, Held, Path, paths_of
from symshape.calls.constant_keys import PLAIN
from symshape.calls.object_kinds import is_record
from symshape.calls.variables import containers_in
from symshape.errors import Problem, Reason
from symshape.torch_internals import pytree
from symshape.tracing.state.undo.writes import Change
from symshape.tracing.symbolic.keys import plain_key, with_plain_keys

_ADVICE = "which a compiled graph would not repeat; return the new values instead"


class Given:
    """The positional and keyword arguments with which a function is called while it is traced.

    Writes to records among them are handled elsewhere (``tracing/record_writes.py``).

    Args:
        args: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        containers: the ids of the lists, dictionaries and deques among them.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._leaves, self._tree = self._flattened()
        found = paths_of((tuple(args), dict(kwargs)))
        self._paths = {id(each): path for path, each in reversed(found)}
        self._before = [
            (path, each, copy.copy(each)) for path, each in found if self._paths[id(each)] == path
        ]
        self.containers = {id(each) for each in _containers((*args, *kwargs.values()))}

    def _flattened(self) -> tuple[list[Any], pytree.TreeSpec]:
        return pytree.tree_flatten((tuple(self._args), dict(self._kwargs)), is_record)

    def writes(self, is_kept: Callable[[Any], bool]) -> list[Change]:
        """Return the changed contents of lists and dictionaries, and restore the old ones for the
        checks that follow.

        Args:
            is_kept: returns whether an object existed before the trace, so that every later call
                has the very same one.
        """
        changed = [
            (path, each, before)
            for path, each, before in self._before
            if not _same_items(each, before)
        ]
        found = [self._change(path, each, before, is_kept) for path, each, before in changed]
        for _, each, before in changed:
            variables.refill(each, before)
        return found

    def _change(
        self, path: Path, container: Any, before: Any, is_kept: Callable[[Any], bool]
    ) -> Change:
        pairs = list(before.items() if isinstance(before, dict) else enumerate(before))
        held = {id(item): key for key, item in reversed(pairs) if type(item) not in PLAIN}
        keys = tuple(map(plain_key, container)) if isinstance(container, dict) else None
        items = list(container if keys is None else container.values())
        new = [Held(held[id(each)]) if id(each) in held else each for each in items]
        paths = self._paths
        leaves, tree = pytree.tree_flatten(
            new, is_leaf=lambda each: each is not new and (id(each) in paths or is_kept(each))
        )
        leaves = [At(paths[id(each)]) if id(each) in paths else each for each in leaves]
        made = [
            id(each)
            for way, each in containers_in(new)
            if way and id(each) not in paths and not is_kept(each)
        ]
        tree = with_plain_keys(tree)
        contents = ArgumentContents(path, keys, f"a {type(container).__name__} among its arguments")
        return Change(contents, leaves, tree, tuple(made), f"changes {contents.name}")

    def returned(self, result: Any) -> tuple[Any, dict[int, Path]]:
        """Return the result with None for each argument container in it, and their paths by number
        of the leaf.
        """
        paths = self._paths
        leaves, tree = pytree.tree_flatten(result, lambda each: id(each) in paths)
        found = {
            position: paths[id(each)] for position, each in enumerate(leaves) if id(each) in paths
        }
        if not found:
            return result, {}
        return pytree.tree_unflatten(
            [None if i in found else each for i, each in enumerate(leaves)], tree
        ), found

    def changes(self, result: Any) -> list[Problem]:
        """Return the problems with the arguments after the trace, or with the result."""
        leaves, tree = self._flattened()
        same = len(leaves) == len(self._leaves) and all(map(_is, leaves, self._leaves))
        if tree != self._tree or not same:
            return [
                Problem(
                    f"changes a list or dictionary among its arguments, {_ADVICE}", Reason.STATE
                )
            ]
        if any(id(each) in self.containers for each in _containers((result,))):
            return [
                Problem(
                    "returns a list or dictionary that is an argument; return a copy of it",
                    Reason.OBJECTS,
                )
            ]
        return []


def _same_items(now: Any, before: Any) -> bool:
    # for dictionaries, ``map`` compares the keys
    if len(now) != len(before) or not all(map(_is, now, before)):
        return False
    return not isinstance(now, dict) or all(map(_is, now.values(), before.values()))


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
