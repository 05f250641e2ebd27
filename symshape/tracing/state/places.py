"""The places that a program reads: how to read each again, what was found there, and its name for people.

Nobody changes one; they are not frozen because a trace makes thousands, and a frozen one takes twice as long to make.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import is_
from typing import Any

import attrs
import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""Values that are compared by value; everything else is compared by identity."""
MISSING = object()


@attrs.define(eq=False)
class Cell:
    """An entry of a dictionary, or the variable of a closure."""

    owner: Any  # a mapping or a closure cell
    key: Any
    value: Any
    name: str

    def read(self) -> Any:
        """What is there now."""
        if isinstance(self.owner, types.CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return MISSING
        if isinstance(self.owner, dict):  # past whatever its class does about look-ups
            return dict.get(self.owner, self.key, MISSING)
        return self.owner.get(self.key, MISSING)


@attrs.define(eq=False)
class Attribute:
    """An attribute that stands in no dictionary: a slot, what a class answers, ``__code__`` of a function."""

    owner: Any
    key: str
    value: Any
    name: str

    def read(self) -> Any:
        """What is there now."""
        return getattr(self.owner, self.key, MISSING)


@attrs.frozen(eq=False)
class Answer:
    """The answer to a question that is asked again: a flag of torch's, a context variable, a look-up of its own."""

    owner: Callable[[], Any]
    value: Any
    name: str
    key: str = ""

    def read(self) -> Any:
        """The answer now."""
        return self.owner()

    def holds(self) -> bool:
        """Whether the answer is what it was."""
        return same(self.owner(), self.value)


SPECIAL = "its special names"


@attrs.frozen(eq=False)
class Keys:
    """All keys of a dictionary, in order: the names of attributes that were listed, or that a class must not gain.

    Attributes:
        key: ``SPECIAL`` where only names count that Python looks up by itself (``__bool__``).
    """

    owner: Any
    value: tuple[Any, ...]
    name: str
    key: str = "its keys"

    @property
    def special(self) -> bool:
        """Whether only names count that Python looks up by itself."""
        return self.key == SPECIAL

    def read(self) -> tuple[Any, ...]:
        """The keys now."""
        return special_names(self.owner) if self.special else tuple(self.owner)

    def holds(self) -> bool:
        """Whether they are those that there were."""
        return self.read() == self.value


_NOT_CALLED = frozenset({"__class__", "__dict__", "__doc__", "__module__", "__weakref__", "__annotations__"})


def is_special(key: str) -> bool:
    """Whether a name in a class is one that Python looks up by itself."""
    return key.startswith("__") and key.endswith("__") and key not in _NOT_CALLED


def special_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those among the names in a class."""
    return tuple(filter(is_special, names))


class WeakAttribute:
    """Asks for an attribute of an object that it does not keep alive; ``MISSING`` when the object is gone."""

    __slots__ = ("_key", "owner")

    def __init__(self, owner: Any, key: str) -> None:
        self.owner, self._key = weakref.ref(owner), key

    def __call__(self) -> Any:
        """What is there now."""
        owner = self.owner()
        return MISSING if owner is None else getattr(owner, self._key, MISSING)


Place = Cell | Attribute | Answer | Keys


@attrs.define(eq=False)
class Container:
    """A list, dictionary, set or deque, or the bytes of an array, with the items that it held."""

    owner: Any
    items: Any
    name: str

    def read(self) -> Any:
        """The items that it holds now."""
        return items_of(self.owner)

    def unchanged(self) -> bool:
        """Whether it holds the very same items, or equal plain ones."""
        if not self.items and isinstance(self.owner, dict):
            return not dict.__len__(self.owner)
        now = items_of(self.owner)
        then = self.items
        return len(now) == len(then) and (all(map(is_, now, then)) or all(map(same_item, now, then)))

    def put_back(self) -> None:
        """Gives it its old items back."""
        if isinstance(self.owner, dict):
            kind: Any = OrderedDict if isinstance(self.owner, OrderedDict) else dict  # which keeps its order apart
            kind.clear(self.owner)
            for key, value in zip(self.items[::2], self.items[1::2], strict=True):
                kind.__setitem__(self.owner, key, value)
        elif isinstance(self.owner, list):
            self.owner[:] = self.items
        elif isinstance(self.owner, bytearray):
            self.owner[:] = self.items[0]
        elif isinstance(self.owner, deque):
            self.owner.clear()
            self.owner.extend(self.items)
        elif isinstance(self.owner, set):
            self.owner.clear()
            self.owner.update(self.items)
        else:  # a NumPy array
            self.owner[...] = type(self.owner)(self.owner.shape, self.owner.dtype, self.items[3])


def items_of(owner: Any) -> Any:
    """The items of a container; keys and values of a dictionary; the content of an array."""
    if isinstance(owner, dict):
        kind: Any = OrderedDict if isinstance(owner, OrderedDict) else dict
        return tuple(chain.from_iterable(kind.items(owner)))
    if isinstance(owner, list):
        return tuple(list.__iter__(owner))
    if isinstance(owner, (set, frozenset, deque, tuple)):
        return tuple(owner)
    if isinstance(owner, bytearray):
        return (bytes(owner),)
    return (str(owner.dtype), str(owner.shape), str(owner.strides), owner.tobytes())  # a NumPy array


def same_item(now: Any, then: Any) -> bool:
    """Whether an item of a container is what it was; a tuple by its items."""
    if type(now) is not tuple or type(then) is not tuple:
        return same(now, then)
    return now is then or (len(now) == len(then) and all(map(same_item, now, then)))


def same(now: Any, then: Any) -> bool:
    """Whether a place still holds what it held: the same object, or an equal plain value."""
    return now is then or (type(now) is type(then) and isinstance(now, PLAIN) and repr(now) == repr(then))


def same_items(now: Any, then: Any) -> bool:
    """Whether a container still holds the items that it held."""
    return len(now) == len(then) and all(map(same, now, then))
