"""Attributes of modules and classes that hold other values while a function is traced; functions
that stand in for others in traced code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MISSING = object()


def own(owner: Any, name: str) -> Any:
    """Return the value that an owner itself has under a name, for :func:`put`."""
    return vars(owner).get(name, _MISSING)


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute to a value that :func:`own` returned; delete it if there was none."""
    if value is not _MISSING:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


@contextmanager
def exchanged(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Return a context in which attributes, given as owner, name and value, hold these values."""
    before = [(owner, name, own(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        _put_all(before)


def _put_all(places: list[tuple[Any, str, Any]]) -> None:
    """Set attributes to values that :func:`own` returned; an interrupt is raised after the last."""
    try:
        for place in places:
            put(*place)
    except BaseException:
        for place in places:
            put(*place)
        raise


# -- Replacement functions that compare equal to the functions that they replace in traced code.
class StandIn(functools.partial[Any]):
    """A callable that calls a function of ours, but compares, hashes and prints as the original.

    >>> import math
    >>> root = standing_for(math.sqrt, lambda number: "ours")
    >>> root(4), root == math.sqrt, math.sqrt == root, {math.sqrt: 1}[root], root.__name__
    ('ours', True, True, 1, 'sqrt')
    """

    original: Any

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.original

    def __hash__(self) -> int:
        return hash(self.original)

    def __repr__(self) -> str:
        return repr(self.original)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "original"), name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.original)


def standing_for(original: Any, ours: Callable[..., Any]) -> Any:
    """Return a stand-in for ``original`` that calls ``ours``; if ``ours`` is a class, return the
    class.
    """
    if isinstance(ours, type):
        return ours
    made = StandIn(ours)
    vars(made)["original"] = original
    return made
