"""Writes of a program into parts of its arguments, repeated on the caller's tensors instead of
whole copies.

A step of decoding writes one row of a cache.  The padded program computes the whole new cache,
since it reads it. Only the row goes back to the caller: the same op on the caller's tensor, with
the valid part of the written elements. That is right for any arguments of the op, because the
program itself does the same.  It is done only for ops that copy or fill: their results are exactly
the elements that the program went on with, without another rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import attrs

from meta_fns.padding.axes import Axis
from meta_fns.padding.padded import Padded
from meta_fns.torch_internals import OpOverload
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value
from symshape.runtime.padding.versions import Versions

__all__ = ["Answered", "Rewrite", "Rewrites"]

_PARTIAL = frozenset(f"aten::{name}" for name in ("index_copy_", "index_put_", "index_fill_"))
"""The ops that write a part of their tensor."""
_WHOLE = frozenset(f"aten::{name}" for name in ("copy_", "fill_", "zero_"))
"""The ops that write all of a tensor: usable if that tensor is a part of the argument."""
_PARTS = frozenset(f"aten::{name}" for name in ("slice", "select", "narrow"))
_TURNS = frozenset(
    f"aten::{name}" for name in ("transpose", "permute", "t", "unsqueeze", "alias", "detach")
)
_MOST = 8
"""The number of writes to one argument beyond which all of it is copied."""


@attrs.frozen
class Answered:
    """A tensor that a padded program returns: its index among the results, and the axes with its
    valid part.
    """

    place: int
    axes: tuple[Axis, ...] = attrs.field(eq=False)


@attrs.frozen(eq=False)
class Rewrite:
    """One write into a part of an argument.

    Attributes:
        place: the index of the argument among the inputs.
        views: the view ops that lead to the part, each with its other arguments.
        op: the op that writes.
        args, kwargs: the op's other arguments: formulas for sizes, and for tensors ``Padded``, or
            ``Answered`` once their indices among the results are known.
    """

    place: int
    views: tuple[tuple[OpOverload, tuple[Any, ...]], ...]
    op: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def tensors(self) -> list[Any]:
        """Return the tensors that the write reads."""
        return [
            each.tensor
            for each in _leaves((self.args, tuple(self.kwargs.values())))
            if isinstance(each, Padded)
        ]

    def answered_from(self, first: int) -> Rewrite:
        """Return the write for a program that returns its tensors one after the other from this
        index on.
        """
        places = count(first)
        args = _answered(self.args, places)
        return attrs.evolve(
            self,
            args=args,
            kwargs={name: _answered(each, places) for name, each in self.kwargs.items()},
        )

    def outline(self) -> Any:
        """Return the parts of the write that are the same for all capacities."""
        leaves = _leaves((self.args, tuple(self.kwargs.values())))
        return self.place, self.op, [each.place for each in leaves if isinstance(each, Answered)]


class Rewrites:
    """The collected writes into arguments.

    Args:
        graph: the traced program.
        versions: the present contents of its values.
    """

    def __init__(self, graph: Graph, versions: Versions) -> None:
        self._versions = versions
        self._places = {each.value: place for place, each in enumerate(graph.inputs)}
        self._storages = {id(each.value.storage): place for place, each in enumerate(graph.inputs)}
        self._found: list[Rewrite] = []
        self._whole: set[int] = set()

    def note(self, node: Node, written: Sequence[Value]) -> None:
        """Record that a node is about to write to these values."""
        places = [
            place for each in written if (place := self._storages.get(id(each.storage))) is not None
        ]
        if not places:
            return
        made = self._rewrite(node, written[0]) if len(written) == 1 else None
        if made is None or sum(each.place == made.place for each in self._found) >= _MOST:
            self._whole.update(places)
        else:
            self._found.append(made)

    def _rewrite(self, node: Node, value: Value) -> Rewrite | None:
        """Return the write if a copying op writes a part of an argument, else None."""
        name = node.op._schema.name
        chain = self._versions.views_of(value)
        base = chain[-1].args[0] if chain else value
        place = self._places.get(base)
        if place is None or not node.args or node.args[0] is not value:
            return None
        names = [each.op._schema.name for each in chain]
        if any(each not in _PARTS | _TURNS for each in names) or any(each.kwargs for each in chain):
            return None
        if name not in _PARTIAL and not (name in _WHOLE and any(each in _PARTS for each in names)):
            return None
        views = tuple((each.op, tuple(each.args[1:])) for each in reversed(chain))
        args, kwargs = self._now(tuple(node.args[1:])), self._now(dict(node.kwargs))
        plain = not any(map(_unknown, (*(rest for _, rest in views), args, tuple(kwargs.values()))))
        return Rewrite(place, views, node.op, args, kwargs) if plain else None

    def _now(self, arg: Any) -> Any:
        if type(arg) is Value:
            return self._versions.read(arg)
        if isinstance(arg, Mapping):
            return {name: self._now(each) for name, each in arg.items()}
        return (
            type(arg)([self._now(each) for each in arg]) if isinstance(arg, (list, tuple)) else arg
        )

    def of(self, written: Iterable[Value]) -> tuple[Rewrite, ...]:
        """Return the writes, in order, to those of these arguments that can be rewritten
        completely.
        """
        places = {self._places[value] for value in written} - self._whole
        return tuple(each for each in self._found if each.place in places)


def _leaves(arg: Any) -> Iterator[Any]:
    if isinstance(arg, (list, tuple)):
        for each in arg:
            yield from _leaves(each)
    else:
        yield arg


def _answered(arg: Any, places: Iterator[int]) -> Any:
    if isinstance(arg, Padded):
        return Answered(next(places), arg.axes)
    return (
        type(arg)([_answered(each, places) for each in arg])
        if isinstance(arg, (list, tuple))
        else arg
    )


def _unknown(arg: Any) -> bool:
    """Return whether an argument contains a float formula or an unread value, which are unknown in
    a call.
    """
    return any(type(each) is FloatTerm or type(each) is Value for each in _leaves(arg))
