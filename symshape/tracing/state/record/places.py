"""The places that a program reads: each has an owner and key to read it again, its old value, and a
name for people.

Places are never changed.  They are not frozen because a trace makes thousands, and a frozen one
takes twice as long to make.
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
"""The types that are compared by value; everything else is compared by identity."""
MISSING = object()


@attrs.define(eq=False)
class Cell:
    """The entry of a dictionary, or the variable of a closure."""

    owner: Any  # a mapping or a closure cell
    key: Any
    value: Any
    name: str

    def read(self) -> Any:
        """Return the value that is there now."""
        if isinstance(self.owner, types.CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return MISSING
        if isinstance(self.owner, dict):  # bypasses look-ups of the subclass
            return dict.get(self.owner, self.key, MISSING)
        return self.owner.get(self.key, MISSING)


@attrs.define(eq=False)
class Attribute:
    """The attribute that is stored in no dictionary: a slot, an attribute of a class, ``__code__``
    of a function.
    """

    owner: Any
    key: str
    value: Any
    name: str

    def read(self) -> Any:
        """Return the value that is there now."""
        return getattr(self.owner, self.key, MISSING)


@attrs.frozen(eq=False)
class Answer:
    """The answer to a question that is asked again: a flag of torch, a context variable, a custom
    look-up.
    """

    owner: Callable[[], Any]
    value: Any
    name: str
    key: str = ""

    def read(self) -> Any:
        """Return the answer now."""
        return self.owner()

    def holds(self) -> bool:
        """Return whether the answer is the same as before."""
        return same(self.owner(), self.value)


SPECIAL = "its special names"


@attrs.frozen(eq=False)
class Keys:
    """All keys of a dictionary, in order: attribute names that were listed, or that a class must
    not gain.

    Attributes:
        key: ``SPECIAL`` if only the names count that Python looks up implicitly (``__bool__``).
    """

    owner: Any
    value: tuple[Any, ...]
    name: str
    key: str = "its keys"

    @property
    def special(self) -> bool:
        """Return whether only the names count that Python looks up implicitly."""
        return self.key == SPECIAL

    def read(self) -> tuple[Any, ...]:
        """Return the keys now."""
        return special_names(self.owner) if self.special else tuple(self.owner)

    def holds(self) -> bool:
        """Return whether the keys are the same as before."""
        return self.read() == self.value


_NOT_CALLED = frozenset(
    {"__class__", "__dict__", "__doc__", "__module__", "__weakref__", "__annotations__"}
)


def is_special(key: str) -> bool:
    """Return whether a name in a class is one that Python looks up implicitly."""
    return key.startswith("__") and key.endswith("__") and key not in _NOT_CALLED


def special_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a class that Python looks up implicitly."""
    return tuple(filter(is_special, names))


class WeakAttribute:
    """The reader of an attribute of an object that it does not keep alive; ``MISSING`` when the
    object is gone.
    """

    __slots__ = ("_key", "owner")

    def __init__(self, owner: Any, key: str) -> None:
        self.owner, self._key = weakref.ref(owner), key

    def __call__(self) -> Any:
        """Return the value that is there now."""
        owner = self.owner()
        return MISSING if owner is None else getattr(owner, self._key, MISSING)


class WeakQuestion:
    """A question about an object that it does not keep alive; ``MISSING`` when that is gone."""

    __slots__ = ("_ask", "owner")

    def __init__(self, owner: Any, ask: Callable[[Any], Any]) -> None:
        self.owner, self._ask = weakref.ref(owner), ask

    def __call__(self) -> Any:
        """Return the answer now."""
        owner = self.owner()
        return MISSING if owner is None else self._ask(owner)


Place = Cell | Attribute | Answer | Keys


@attrs.define(eq=False)
class Container:
    """The list, dictionary, set, deque, bytearray or NumPy array that was read, with the items that
    it held.
    """

    owner: Any
    items: Any
    name: str

    def read(self) -> Any:
        """Return the items that the container holds now."""
        return items_of(self.owner)

    def unchanged(self) -> bool:
        """Return whether the container holds the very same items, or equal plain ones."""
        if not self.items and isinstance(self.owner, dict):
            return not dict.__len__(self.owner)
        now = items_of(self.owner)
        then = self.items
        return len(now) == len(then) and (
            all(map(is_, now, then)) or all(map(same_item, now, then))
        )

    def put_back(self) -> None:
        """Put the old items back into the container."""
        if isinstance(self.owner, dict):
            # its order is separate
            kind: Any = OrderedDict if isinstance(self.owner, OrderedDict) else dict
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
    """Return the items of a container: keys and values of a dictionary by turns, the content of an
    array.
    """
    if isinstance(owner, dict):
        kind: Any = OrderedDict if isinstance(owner, OrderedDict) else dict
        return tuple(chain.from_iterable(kind.items(owner)))
    if isinstance(owner, list):
        return tuple(list.__iter__(owner))
    if isinstance(owner, (set, frozenset, deque, tuple)):
        return tuple(owner)
    if isinstance(owner, bytearray):
        return (bytes(owner),)
    # a NumPy array
    return (str(owner.dtype), str(owner.shape), str(owner.strides), owner.tobytes())


def same_item(now: Any, then: Any) -> bool:
    """Return whether an item of a container is the same as before; tuples are compared item by
    item.
    """
    if type(now) is not tuple or type(then) is not tuple:
        return same(now, then)
    return now is then or (len(now) == len(then) and all(map(same_item, now, then)))


def same(now: Any, then: Any) -> bool:
    """Return whether a place still holds its old value: the same object, or an equal plain
    value.
    """
    return now is then or (
        type(now) is type(then) and isinstance(now, PLAIN) and repr(now) == repr(then)
    )


def same_items(now: Any, then: Any) -> bool:
    """Return whether a container still holds its old items."""
    return len(now) == len(then) and all(map(same, now, then))
