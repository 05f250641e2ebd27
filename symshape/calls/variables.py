"""Variables: places outside the arguments that programs write, how each is read and written, and
the writes of a call.

A place that programs read *and* write (a counter, a cache of keys and values) is a variable. Its
value is read at each call as if it were an argument, so that the program serves other values too.
Writes that a program made while it was traced are repeated at the end of each of its calls, with
the call's own tensors and sizes.
"""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch

from symshape.calls.constant_keys import NOTHING
from symshape.calls.floats import leaf_of
from symshape.calls.naming import item_name
from symshape.calls.outputs import unflatten
from symshape.torch_internals import pytree

CONTAINERS = (list, dict, collections.OrderedDict, collections.defaultdict, collections.deque)
"""Classes of containers whose contents can be written."""
Where = tuple[int, Hashable]


class Variable(Protocol):
    """A place outside the arguments."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def where(self) -> Where:
        """A key that two variables share only if they are the same place."""

    def read(self) -> Any:
        """Return the value; ``NOTHING`` if there is none."""

    def write(self, value: Any) -> None:
        """Set the value; ``NOTHING`` deletes it."""


@attrs.frozen(eq=False)
class DictionaryItem:
    """An entry of a dictionary of attributes or of globals."""

    owner: dict[Any, Any]
    key: Any
    name: str

    @property
    def where(self) -> Where:
        """The dictionary and the key."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """Return the value under the key."""
        return dict.get(self.owner, self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Set the value under the key."""
        if value is NOTHING:
            self.owner.pop(self.key, None)
        else:
            self.owner[self.key] = value


@attrs.frozen(eq=False)
class ClassAttribute:
    """An attribute of a class itself."""

    owner: type
    key: str
    name: str

    @property
    def where(self) -> Where:
        """The class and the name."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """Return the attribute of the class."""
        return self.owner.__dict__.get(self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Set the attribute without the metaclass's ``__setattr__``."""
        if value is not NOTHING:
            type.__setattr__(self.owner, self.key, value)
        elif self.key in self.owner.__dict__:
            type.__delattr__(self.owner, self.key)


@attrs.frozen(eq=False)
class SlotAttribute:
    """An attribute in a slot."""

    owner: Any
    key: str
    name: str

    @property
    def where(self) -> Where:
        """The object and the name."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """Return the value in the slot."""
        return getattr(self.owner, self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Set the slot without the class's ``__setattr__``."""
        if value is not NOTHING:
            object.__setattr__(self.owner, self.key, value)
        elif self.read() is not NOTHING:
            object.__delattr__(self.owner, self.key)


@attrs.frozen(eq=False)
class Gradient:
    """The field ``.grad`` of a tensor, which is held weakly."""

    owner: weakref.ref[torch.Tensor]
    where: Where
    name: str

    @classmethod
    def of(cls, owner: torch.Tensor, key: str, name: str) -> Gradient:
        """Return the gradient field of a tensor, identified by the tensor and ``key``."""
        return cls(weakref.ref(owner), (id(owner), key), name)

    def read(self) -> Any:
        """Return the gradient, or None; ``NOTHING`` when the tensor is gone."""
        owner = self.owner()
        return NOTHING if owner is None else owner.grad

    def write(self, value: Any) -> None:
        """Set the gradient, or remove it."""
        owner = self.owner()
        if owner is not None:
            owner.grad = None if value is NOTHING else value


class GradientsRead(BaseException):
    """The traced program reads gradients of earlier calls: a program for later calls is given them.

    Attributes:
        variables: the gradients.
    """

    def __init__(self, variables: Sequence[Gradient]) -> None:
        super().__init__(variables)
        self.variables = list(variables)


@attrs.define(eq=False)
class FloatPlace:
    """A place whose float (or tuple of floats) changes from call to call, such as an optimiser's
    learning rate.

    The program is given a ``FloatLeaf`` and reads it when it runs, so that one program serves every
    value.

    Attributes:
        variable: the place.
        plain: whether programs are given the float itself after all, and hold for that value only.
    """

    variable: Variable
    plain: bool = False

    @property
    def name(self) -> str:
        """The name of the place."""
        return self.variable.name

    @property
    def where(self) -> Where:
        """The place."""
        return self.variable.where

    def read(self) -> Any:
        """Return the number as a tensor (or several); another value unchanged."""
        value = self.variable.read()
        if self.plain or not is_number(value):
            return value
        return tuple(map(leaf_of, value)) if type(value) is tuple else leaf_of(value)

    def write(self, value: Any) -> None:
        """Write numbers to the place."""
        self.variable.write(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a float, or a non-empty tuple of floats (the ``betas`` of an
    optimiser).
    """
    return type(value) is float or (
        type(value) is tuple and value != () and all(type(each) is float for each in value)
    )


@attrs.frozen(eq=False)
class ClosureVariable:
    """A variable of a function around the program."""

    owner: types.CellType
    name: str

    @property
    def where(self) -> Where:
        """The cell."""
        return id(self.owner), ""

    def read(self) -> Any:
        """Return the value of the cell."""
        try:
            return self.owner.cell_contents
        except ValueError:
            return NOTHING

    def write(self, value: Any) -> None:
        """Set the cell."""
        if value is not NOTHING:
            self.owner.cell_contents = value
        elif self.read() is not NOTHING:
            del self.owner.cell_contents


@attrs.frozen(eq=False)
class Contents:
    """The contents of a list, dictionary or deque. The value is the container itself; a write fills
    it in place.
    """

    owner: Any
    name: str

    @property
    def where(self) -> Where:
        """The container."""
        return id(self.owner), ""

    def read(self) -> Any:
        """Return the container."""
        return self.owner

    def write(self, value: Any) -> None:
        """Replace its items by those of another container of its class."""
        refill(self.owner, value)


@attrs.frozen(eq=False)
class InnerContainer:
    """A container inside the value of a variable."""

    variable: Variable
    path: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The variable's name with the path to the container."""
        return functools.reduce(item_name, self.path, self.variable.name)

    @property
    def where(self) -> Where:
        """The variable's place and the path."""
        return hash(self.variable.where), self.path

    def read(self) -> Any:
        """Return the container."""
        found = self.variable.read()
        for key in self.path:
            found = found[key]
        return found

    def write(self, value: Any) -> None:
        """Replace its items by those of another container of its class."""
        self.writer()(value)

    def writer(self) -> Callable[[Any], None]:
        """Return a function that fills the present container, even if another one is in its place
        by then.
        """
        return functools.partial(refill, self.read())


def refill(container: Any, value: Any) -> None:
    """Replace the items of a container by those of another."""
    if isinstance(container, dict):
        items = list(value.items())
        container.clear()
        container.update(items)
    elif isinstance(container, list):
        container[:] = value
    else:
        items = list(value)
        container.clear()
        container.extend(items)


@attrs.frozen
class OutputReference:
    """A leaf that is computed by the program: its position among the flat outputs."""

    position: int


@attrs.frozen(eq=False)
class SharedContainer:
    """A container that a program makes and stores in several places: one object for all of them in
    each call.

    Attributes:
        leaves: as those of a ``Write``.
        tree: how they nest.
    """

    leaves: Sequence[Any]
    tree: pytree.TreeSpec

    def value(self, flat: Sequence[Any], made: dict[SharedContainer, Any]) -> Any:
        """Return the container for a call with these flat outputs; ``made`` holds those that exist
        already.
        """
        if self not in made:
            made[self] = _nested(self.leaves, self.tree, flat, made)
        return made[self]


@attrs.frozen(eq=False)
class Write:
    """A write of a program to a variable.

    Attributes:
        variable: where.
        leaves: what: an ``OutputReference`` for what the graph computes, a ``SharedContainer`` for
            a container that is kept in several places; anything else is a constant.
        tree: how the leaves nest.
    """

    variable: Variable
    leaves: Sequence[Any]
    tree: pytree.TreeSpec

    def value(self, flat: Sequence[Any], made: dict[SharedContainer, Any]) -> Any:
        """Return the value for a call with these flat outputs; ``made`` holds the shared containers
        of this call.
        """
        return _nested(self.leaves, self.tree, flat, made)


def _nested(
    leaves: Sequence[Any],
    tree: pytree.TreeSpec,
    flat: Sequence[Any],
    made: dict[SharedContainer, Any],
) -> Any:
    values: list[Any] = []
    for each in leaves:
        kind = type(each)
        if kind is OutputReference:
            values.append(flat[each.position])
        else:
            values.append(each.value(flat, made) if kind is SharedContainer else each)
    return values[0] if tree.is_leaf() else unflatten(values, tree)


_written: dict[weakref.ref[Write], Where] = {}
"""The places that live programs write. A dead entry is removed, since its id may be used again."""


def note_written(writes: Sequence[Write]) -> None:
    """Note the places that a program writes."""
    for each in writes:
        _written[weakref.ref(each, _forget)] = each.variable.where


def all_written() -> set[Where]:
    """Return every place that a live program of this process writes."""
    return set(_written.copy().values())


def _forget(write: weakref.ref[Write]) -> None:
    _written.pop(write, None)


def writing(
    writes: Sequence[Write], results: int, build: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    """Return the function that writes, and turns flat outputs into the result.

    A container that a program fills and then replaces by another one is filled in place.

    Args:
        writes: in their order.
        results: how many of the flat outputs are the result's.
        build: nests those.
    """
    inner = [(each, each.variable) for each in writes if isinstance(each.variable, InnerContainer)]

    def build_and_write(flat: list[Any]) -> Any:
        made: dict[SharedContainer, Any] = {}
        values = {each: each.value(flat, made) for each in writes}
        if not inner:
            for each, value in values.items():
                each.variable.write(value)
            return build(flat[:results])
        found = {each: variable.writer() for each, variable in inner}
        for each, value in values.items():
            found.get(each, each.variable.write)(value)
        return build(flat[:results])

    return build_and_write


def containers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the mutable containers in a nested value, each with its path."""
    found: list[tuple[tuple[Any, ...], Any]] = []
    if type(value) in CONTAINERS:
        found.append((path, value))
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple, collections.deque)):
        items = list(enumerate(value))
    for key, item in items:
        found += containers_in(item, (*path, key))
    return found
