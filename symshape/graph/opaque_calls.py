"""Calls of callables that are no ATen operators: run unchanged, with results that are known from
elsewhere.

Higher-order operators (``cond``, ``while_loop``, ``flex_attention`` …) take whole graphs as
arguments. In a graph from Dynamo the metadata of their results is known, so such a call stands in
our graph like an operator. Runners and rules that look at operators know nothing of it, and do not
change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import attrs
import torch

from symshape.torch_internals import pytree


@attrs.frozen
class OpaqueSchema:
    """The known part of such a call's schema: its name; that it writes to no argument, and returns
    no view.
    """

    name: str
    is_mutable: bool = False
    arguments: tuple[Any, ...] = ()
    returns: tuple[Any, ...] = ()


Path = tuple[Any, ...]
"""The path to a value in the result of a call: one index or key after the other."""


class OpaqueCall:
    """A call of ``target`` on the leaves of its arguments, which returns parts of the result.

    Args:
        target: what is called.
        tree: how the leaves nest in ``(args, kwargs)``.
        picked: where the parts are.

    Attributes:
        tags: it may draw random numbers for all that is known.
    """

    namespace = "opaque"
    tags = (torch.Tag.nondeterministic_seeded,)

    def __init__(
        self, target: Callable[..., Any], tree: pytree.TreeSpec, picked: Sequence[Path]
    ) -> None:
        self._target = target
        self._tree = tree
        self._picked = tuple(picked)
        name = getattr(target, "__name__", type(target).__name__)
        self._schema = OpaqueSchema(f"opaque::{name}")
        self._name = self._schema.name

    def __call__(self, *leaves: Any) -> list[Any]:
        """Call the target; return parts of its result."""
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        result = self._target(*args, **kwargs)
        return [reduce(getitem, path, result) for path in self._picked]

    def __str__(self) -> str:
        return self._name.partition("::")[2]


class LiveCall(OpaqueCall):
    """A call that autograd must see: of a user's ``autograd.Function``, of ``requires_grad_()``.

    It has to run where gradients are recorded, with the real tensors: no compiler takes it.

    Args:
        target: what is called.
        tree: how the leaves nest in ``(args, kwargs)``.
        picked: where the parts are.
        name: what it is called in texts.
        sizes: which of the leaves are a ``torch.Size``; a graph gives lists.
        sees_history: whether what it is given has to have the history that it has in eager.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        tree: pytree.TreeSpec,
        picked: Sequence[Path],
        name: str,
        sizes: frozenset[int] = frozenset(),
        *,
        sees_history: bool = True,
    ) -> None:
        super().__init__(target, tree, picked)
        self.sees_history = sees_history
        self._schema = OpaqueSchema(f"opaque::{name}")
        self._name = self._schema.name
        self._sizes = sizes

    def __call__(self, *leaves: Any) -> list[Any]:
        """Call the target; return parts of its result."""
        if self._sizes:
            leaves = tuple(
                torch.Size(each) if i in self._sizes else each for i, each in enumerate(leaves)
            )
        return super().__call__(*leaves)
