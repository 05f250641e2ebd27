"""The structure of a program's outputs: from flat outputs to nested ones, without a pytree walk
where it is simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import attrs
import torch

from symshape.calls import object_arguments
from symshape.calls.output_codegen import finishing, nesting
from symshape.torch_internals import pytree

Build = Callable[[list[Any]], Any]
_FIRST: Build = itemgetter(0)
Finish = Callable[[list[Any], Sequence[Any]], Any]
"""``finish(flat, leaves)``: write to the call's own objects, and nest the result."""


def builder(tree: pytree.TreeSpec) -> Build:
    """Return the function that nests flat outputs as ``tree`` says, or leaves them flat for a
    :func:`finisher`.
    """
    if tree.type is object_arguments.Outcome:
        return list if _needs_call(tree) else builder(tree.children()[0])
    if tree.is_leaf():
        return _FIRST  # a function of C's: a warm call has no frame for it
    if tree.type in (tuple, list) and all(child.is_leaf() for child in tree.children()):
        return tuple if tree.type is tuple else list
    nest = nesting(tree)
    return nest or (lambda flat: unflatten(flat, tree))


def finisher(tree: pytree.TreeSpec) -> Finish | None:
    """Return the function that ends a call of a program that writes to object arguments, or returns
    one.

    None where :func:`builder` is all.
    """
    if tree.type is not object_arguments.Outcome or not _needs_call(tree):
        return None
    return finishing(tree) or (lambda flat, leaves: _finished(tree, flat, leaves))


def _finished(tree: pytree.TreeSpec, flat: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """End a call as a :func:`finisher` does, for a structure of any depth."""
    returned, *writes = tree.children()
    building = _Building(iter(flat), (), leaves)
    result = building.build(returned)
    new = [building.children(each) for each in writes]  # all is built before anything is written
    for each, values in zip(writes, new, strict=True):
        position, _, names = each.context
        object_arguments.write(object_arguments.owner_of(leaves[position]), names, values)
    return result


def writes_records(tree: pytree.TreeSpec) -> bool:
    """Return whether a program with this structure of outputs writes to objects among its
    arguments.
    """
    return tree.type is object_arguments.Outcome and len(tree.children()) > 1


def result_of(built: Any) -> Any:
    """Return the result of a function, without its writes."""
    return built.result if type(built) is object_arguments.Outcome else built


def unflatten(flat: Sequence[Any], tree: pytree.TreeSpec, shared: Sequence[int] = ()) -> Any:
    """Nest as ``pytree.tree_unflatten`` does, but return a ``torch.Size`` where torch makes a
    tuple.

    Args:
        flat: the leaves.
        tree: how they nest.
        shared: for each container, outermost first, the number of the one that it is; nothing where
            none is another.
    """
    if not shared and not _is_unusual(tree):
        return pytree.tree_unflatten(flat, tree)
    return _Building(iter(flat), shared, ()).build(tree)


def _needs_call(tree: pytree.TreeSpec) -> bool:
    """Return whether an outcome writes to objects of the call, or returns one."""
    return tree.type in (object_arguments.ObjectWrite, object_arguments.ArgumentReference) or any(
        map(_needs_call, tree.children())
    )


def _is_unusual(tree: pytree.TreeSpec) -> bool:
    return (
        tree.type is torch.Size
        or tree.type in object_arguments.STAND_INS
        or any(map(_is_unusual, tree.children()))
    )


@attrs.define(eq=False)
class _Building:
    """One value that is being nested.

    Attributes:
        flat: its leaves, in order.
        shared: see :func:`unflatten`.
        given: the leaves of the call.
        built: the containers so far.
        made: the objects that were made so far, by their numbers.
    """

    flat: Iterator[Any]
    shared: Sequence[int]
    given: Sequence[Any]
    built: list[Any] = attrs.field(factory=list)
    made: dict[int, Any] = attrs.field(factory=dict)

    def build(self, tree: pytree.TreeSpec) -> Any:
        if tree.is_leaf():
            return next(self.flat)
        number = len(self.built)
        self.built.append(None)
        children = self.children(tree)
        if self.shared and self.shared[number] != number:  # its leaves are those of the first
            self.built[number] = self.built[self.shared[number]]
        else:
            self.built[number] = self._node(tree, children)
        return self.built[number]

    def children(self, tree: pytree.TreeSpec) -> list[Any]:
        """Build the children of a container."""
        return [self.build(child) for child in tree.children()]

    def _node(self, tree: pytree.TreeSpec, children: list[Any]) -> Any:
        kind, context = tree.type, tree.context
        if kind is torch.Size:
            return torch.Size(children)
        if kind is object_arguments.Record:
            made, names, *_ = context
            return object_arguments.assembled(made, names, children[1:])
        if kind is object_arguments.MadeObject:
            made, names, number = context
            self.made[number] = object_arguments.assembled(made, names, children)
            return self.made[number]
        if kind is object_arguments.MadeReference:
            return self.made[context]
        if kind is object_arguments.ArgumentReference:
            return object_arguments.owner_of(self.given[context])
        return (
            context
            if kind is object_arguments.HeldClass
            else pytree.SUPPORTED_NODES[kind].unflatten_fn(children, context)
        )
