"""Objects that are nothing but themselves, held so that they may die: a key must not keep an argument alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Identity:
    """Equal to another one of the very same object, while that lives; afterwards to itself alone.

    >>> class Owner: ...
    >>> owner = Owner()
    >>> Identity(owner) == Identity(owner), Identity(owner) == Identity(Owner())
    (True, False)
    """

    __slots__ = ("_hash", "_reference")

    def __init__(self, value: Any) -> None:
        self._reference = weakref.ref(value)
        self._hash = id(value)

    @property
    def value(self) -> Any:
        """The object; None when it is gone."""
        return self._reference()

    def when_gone(self, call: Callable[[Any], object]) -> weakref.ref[Any] | None:
        """A reference that calls ``call`` when the object dies, for as long as the reference itself lives."""
        value = self.value
        return None if value is None else weakref.ref(value, call)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(other) is Identity and self.value is not None and other.value is self.value

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return "an object that is gone" if self.value is None else repr(self.value)


def by_value(value: Any) -> bool:
    """Whether an object may be equal to another one, or cannot be held weakly."""
    kind: Any = type(value)
    if kind.__eq__ is not object.__eq__ or kind.__hash__ is not object.__hash__:
        return True
    return not getattr(kind, "__weakrefoffset__", 0)
