"""A call of something that is no ATen operator: run as it is, its results known from elsewhere.

Higher-order operators (``cond``, ``while_loop``, ``flex_attention`` …) take whole graphs as arguments.  Where a graph
is taken over from Dynamo, what they return is known beforehand, so such a call can stand in a graph of ours like an
operator: runners and rules that look at operators find one that they know nothing of, and leave it alone.
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
    """As much of an operator's schema as can be said: its name; that it writes to no argument, and gives no view."""

    name: str
    is_mutable: bool = False
    arguments: tuple[Any, ...] = ()
    returns: tuple[Any, ...] = ()


Path = tuple[Any, ...]
"""Where something is in what a call returns: one index or key after the other."""


class OpaqueCall:
    """Calls ``target`` on the leaves of its arguments, and answers parts of what it returns.

    Args:
        target: what is called.
        tree: how the leaves nest in ``(args, kwargs)``.
        picked: where the parts are.

    Attributes:
        tags: it may draw random numbers for all that is known.
    """

    namespace = "opaque"
    tags = (torch.Tag.nondeterministic_seeded,)

    def __init__(self, target: Callable[..., Any], tree: pytree.TreeSpec, picked: Sequence[Path]) -> None:
        self._target = target
        self._tree = tree
        self._picked = tuple(picked)
        name = getattr(target, "__name__", type(target).__name__)
        self._schema = OpaqueSchema(f"opaque::{name}")
        self._name = self._schema.name

    def __call__(self, *leaves: Any) -> list[Any]:
        """The parts of the result."""
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        result = self._target(*args, **kwargs)
        return [reduce(getitem, path, result) for path in self._picked]

    def __str__(self) -> str:
        return self._name.partition("::")[2]


class LiveCall(OpaqueCall):
    """A call that tells autograd something: of an ``autograd.Function`` of the program's, of ``requires_grad_()``.

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
        """The parts of the result."""
        if self._sizes:
            leaves = tuple(torch.Size(each) if i in self._sizes else each for i, each in enumerate(leaves))
        return super().__call__(*leaves)
