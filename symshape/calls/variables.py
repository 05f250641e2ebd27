"""Places outside the arguments that programs write: how each is read and written, and what a call writes at its end.

A place that programs read *and* write (a counter, a cache of keys and values) is a variable: its value is read at each
call as if it were an argument, so that the value may change while the program stays.  What a program wrote while it was
traced is written at the end of each of its calls, with the call's own tensors and sizes.
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

from symshape.calls.alike import NOTHING
from symshape.calls.floats import leaf_of
from symshape.calls.naming import item_name
from symshape.calls.outputs import unflatten
from symshape.torch_internals import pytree

CONTAINERS = (list, dict, collections.OrderedDict, collections.defaultdict, collections.deque)
"""Classes of containers whose contents can be written again."""
Where = tuple[int, Hashable]


class Variable(Protocol):
    """A place outside the arguments."""

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def where(self) -> Where:
        """What two variables share only if they are the same place."""

    def read(self) -> Any:
        """Its value; ``NOTHING`` where there is none."""

    def write(self, value: Any) -> None:
        """Gives it a value, or takes it away with ``NOTHING``."""


@attrs.frozen(eq=False)
class Entry:
    """An entry of a dictionary of attributes or of globals."""

    owner: dict[Any, Any]
    key: Any
    name: str

    @property
    def where(self) -> Where:
        """The dictionary and the key."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """What stands under the key."""
        return dict.get(self.owner, self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Puts a value there."""
        if value is NOTHING:
            self.owner.pop(self.key, None)
        else:
            self.owner[self.key] = value


@attrs.frozen(eq=False)
class OfClass:
    """An attribute of a class itself."""

    owner: type
    key: str
    name: str

    @property
    def where(self) -> Where:
        """The class and the name."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """What stands in the class."""
        return self.owner.__dict__.get(self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Sets it past a metaclass's own way."""
        if value is not NOTHING:
            type.__setattr__(self.owner, self.key, value)
        elif self.key in self.owner.__dict__:
            type.__delattr__(self.owner, self.key)


@attrs.frozen(eq=False)
class Slot:
    """An attribute that stands in a slot."""

    owner: Any
    key: str
    name: str

    @property
    def where(self) -> Where:
        """The object and the name."""
        return id(self.owner), self.key

    def read(self) -> Any:
        """What the slot holds."""
        return getattr(self.owner, self.key, NOTHING)

    def write(self, value: Any) -> None:
        """Sets it past the class's own way."""
        if value is not NOTHING:
            object.__setattr__(self.owner, self.key, value)
        elif self.read() is not NOTHING:
            object.__delattr__(self.owner, self.key)


@attrs.frozen(eq=False)
class Gradient:
    """The field ``.grad`` of a tensor, which is not kept alive by it."""

    owner: weakref.ref[torch.Tensor]
    where: Where
    name: str

    @classmethod
    def of(cls, owner: torch.Tensor, key: str, name: str) -> Gradient:
        """That of a tensor, which is read and written under ``key``."""
        return cls(weakref.ref(owner), (id(owner), key), name)

    def read(self) -> Any:
        """The gradient, or None; ``NOTHING`` when the tensor is gone."""
        owner = self.owner()
        return NOTHING if owner is None else owner.grad

    def write(self, value: Any) -> None:
        """Sets it, or takes it away."""
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
class Number:
    """A place whose float (or tuple of floats) changes from call to call, such as an optimiser's rate.

    It is given as a ``FloatLeaf``.  A program reads it when it runs, so that one program serves every value.

    Attributes:
        variable: the place.
        plain: whether programs are given the float itself after all, and hold for that value only.
    """

    variable: Variable
    plain: bool = False

    @property
    def name(self) -> str:
        """The place's name."""
        return self.variable.name

    @property
    def where(self) -> Where:
        """The place."""
        return self.variable.where

    def read(self) -> Any:
        """The number as a tensor (or several); what is there, if that is no float."""
        value = self.variable.read()
        if self.plain or not is_number(value):
            return value
        return tuple(map(leaf_of, value)) if type(value) is tuple else leaf_of(value)

    def write(self, value: Any) -> None:
        """Gives the place numbers."""
        self.variable.write(value)


def is_number(value: Any) -> bool:
    """Whether a value is a float, or a tuple of nothing else (the ``betas`` of an optimiser)."""
    return type(value) is float or (type(value) is tuple and value != () and all(type(each) is float for each in value))


@attrs.frozen(eq=False)
class Closure:
    """A variable of a function around the program."""

    owner: types.CellType
    name: str

    @property
    def where(self) -> Where:
        """The cell."""
        return id(self.owner), ""

    def read(self) -> Any:
        """What the cell holds."""
        try:
            return self.owner.cell_contents
        except ValueError:
            return NOTHING

    def write(self, value: Any) -> None:
        """Sets it."""
        if value is not NOTHING:
            self.owner.cell_contents = value
        elif self.read() is not NOTHING:
            del self.owner.cell_contents


@attrs.frozen(eq=False)
class Contents:
    """What a list, dictionary or deque holds; its value is the container, and writing fills that very container."""

    owner: Any
    name: str

    @property
    def where(self) -> Where:
        """The container."""
        return id(self.owner), ""

    def read(self) -> Any:
        """The container."""
        return self.owner

    def write(self, value: Any) -> None:
        """Fills it with what another container of its class holds."""
        refill(self.owner, value)


@attrs.frozen(eq=False)
class Inner:
    """A container inside the value of a variable."""

    variable: Variable
    path: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The variable's name with the way to the container."""
        return functools.reduce(item_name, self.path, self.variable.name)

    @property
    def where(self) -> Where:
        """The variable's place and the way."""
        return hash(self.variable.where), self.path

    def read(self) -> Any:
        """The container."""
        found = self.variable.read()
        for key in self.path:
            found = found[key]
        return found

    def write(self, value: Any) -> None:
        """Fills it with what another container of its class holds."""
        self.writer()(value)

    def writer(self) -> Callable[[Any], None]:
        """What fills the container that is there now, wherever it is by then."""
        return functools.partial(refill, self.read())


def refill(container: Any, value: Any) -> None:
    """Gives a container the items of another."""
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
class Output:
    """Where among a program's flat outputs a leaf stands."""

    position: int


@attrs.frozen(eq=False)
class Shared:
    """A container that a program makes and stores in several places: one object for all of them in each call.

    Attributes:
        leaves: as those of a ``Write``.
        tree: how they nest.
    """

    leaves: Sequence[Any]
    tree: pytree.TreeSpec

    def value(self, flat: Sequence[Any], made: dict[Shared, Any]) -> Any:
        """Return the container for a call with these flat outputs; ``made`` holds those that exist already."""
        if self not in made:
            made[self] = _nested(self.leaves, self.tree, flat, made)
        return made[self]


@attrs.frozen(eq=False)
class Write:
    """What a program writes to a variable.

    Attributes:
        variable: where.
        leaves: an ``Output`` for what the graph computes, a ``Shared`` container; anything else is a constant.
        tree: how they nest.
    """

    variable: Variable
    leaves: Sequence[Any]
    tree: pytree.TreeSpec

    def value(self, flat: Sequence[Any], made: dict[Shared, Any]) -> Any:
        """Return the value for a call with these flat outputs; ``made`` holds the shared containers of this call."""
        return _nested(self.leaves, self.tree, flat, made)


def _nested(leaves: Sequence[Any], tree: pytree.TreeSpec, flat: Sequence[Any], made: dict[Shared, Any]) -> Any:
    values: list[Any] = []
    for each in leaves:
        kind = type(each)
        if kind is Output:
            values.append(flat[each.position])
        else:
            values.append(each.value(flat, made) if kind is Shared else each)
    return values[0] if tree.is_leaf() else unflatten(values, tree)


_written: dict[weakref.ref[Write], Where] = {}
"""What programs of this process write, for as long as they live: an id says nothing of an owner that is gone."""


def note_written(writes: Sequence[Write]) -> None:
    """A program writes these."""
    for each in writes:
        _written[weakref.ref(each, _forget)] = each.variable.where


def all_written() -> set[Where]:
    """Every place that a program of this process writes, as long as it lives."""
    return set(_written.copy().values())


def _forget(write: weakref.ref[Write]) -> None:
    _written.pop(write, None)


def writing(writes: Sequence[Write], results: int, build: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """From flat outputs to the result, having written.

    A container that a program fills and then exchanges for another one is filled as it was found.

    Args:
        writes: in their order.
        results: how many of the flat outputs are the result's.
        build: nests those.
    """
    inner = [(each, each.variable) for each in writes if isinstance(each.variable, Inner)]

    def build_and_write(flat: list[Any]) -> Any:
        made: dict[Shared, Any] = {}
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
    """The containers in a nested value that can be written to, each with the way to it."""
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
