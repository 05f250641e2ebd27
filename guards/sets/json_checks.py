"""Checks on pieces of a JSON document: each function returns the piece, or raises with what is
wrong with it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, TypeVar

from guards.asking.reading import parse
from guards.errors import FormatError, GuardsError
from guards.terms import arithmetic

Json = Any
T = TypeVar("T")


def checked(value: Json, kind: type[T], what: str) -> T:
    """The value, of exactly this type (True is no integer).

    Raises:
        FormatError: it is of another type.

    >>> checked(True, int, "a size")
    Traceback (most recent call last):
    guards.errors.FormatError: a size must be of type int, not bool
    """
    if type(value) is not kind:
        raise FormatError(f"{what} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def integer(value: Json, what: str) -> int:
    """The value, an integer."""
    return checked(value, int, what)


def string(value: Json, what: str) -> str:
    """The value, a text."""
    return checked(value, str, what)


def symbol_name(value: Json) -> str:
    """The value, the name of a symbol: one that a text may use for it.

    >>> symbol_name("lambda")
    Traceback (most recent call last):
    guards.errors.FormatError: 'lambda' is not the name of a symbol
    """
    name = string(value, "the name of a symbol")
    try:
        if parse(name) is arithmetic.symbol(name):
            return name
    except (GuardsError, ValueError):
        pass
    raise FormatError(f"{name!r} is not the name of a symbol")


def array(value: Json, what: str) -> list[Json]:
    """The value, a list."""
    return checked(value, list, what)


def record(
    value: Json, what: str, required: Set[str], optional: Set[str] = frozenset()
) -> dict[str, Json]:
    """The value, an object with all ``required`` members and no others but ``optional`` ones.

    >>> record({"line": 3, "lane": 4}, "an origin", {"file", "line"})
    Traceback (most recent call last):
    guards.errors.FormatError: an origin lacks file, has unknown 'lane'
    """
    found = checked(value, dict, what)
    missing, unknown = required - found.keys(), found.keys() - required - optional
    if missing or unknown:
        wrong = [f"lacks {name}" for name in sorted(missing)] + [
            f"has unknown {name!r}" for name in sorted(unknown)
        ]
        raise FormatError(f"{what} {', '.join(wrong)}")
    return found
