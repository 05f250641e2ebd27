"""Attributes of modules and classes that hold other values while a function is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MISSING = object()


def own(owner: Any, name: str) -> Any:
    """Return the value that an owner itself has under a name, for :func:`put`."""
    return vars(owner).get(name, _MISSING)


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute to a value that :func:`own` returned; delete it if there was none."""
    if value is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


@contextmanager
def exchanged(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Return a context in which attributes, given as owner, name and value, hold these values."""
    before = [(owner, name, own(owner, name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for place in before:
            put(*place)
