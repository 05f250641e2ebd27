"""Plain values as JSON, exactly: reading returns the very same value, or fails."""

from __future__ import annotations

import base64
import binascii
import math
import types
from collections.abc import Callable
from typing import Any

import torch

from guards.text.escaping import printable
from symshape.calls.constant_keys import digits
from symshape.store.store_errors import EntryError, NotStorable

Json = Any

LARGEST_INTEGER = 1 << 4096
_DEEPEST = 32
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
_LAYOUTS = {str(each): each for each in vars(torch).values() if isinstance(each, torch.layout)}
_FORMATS = {
    str(each): each for each in vars(torch).values() if isinstance(each, torch.memory_format)
}

_TAGGED: dict[type, Callable[[Any], dict[str, Json]]] = {
    float: lambda v: {"float": v.hex() if math.isfinite(v) else digits(v)},
    complex: lambda v: {"complex": [to_json(v.real), to_json(v.imag)]},
    bytes: lambda v: {"bytes": base64.b64encode(v).decode()},
    torch.dtype: lambda v: {"dtype": str(v)},
    torch.device: lambda v: {"device": str(v)},
    torch.layout: lambda v: {"layout": str(v)},
    torch.memory_format: lambda v: {"memory_format": str(v)},
    types.EllipsisType: lambda v: {"ellipsis": 0},
}


def to_json(value: Any, other: Callable[[Any], Json] | None = None, depth: int = 0) -> Json:
    """Return a plain value, or a tuple, list or slice of such values, as JSON.

    Args:
        value: the value.
        other: what is done with a value of another class.
        depth: how deep it is nested.

    Raises:
        NotStorable: it is of another class, and there is no ``other``.

    >>> to_json((1, 0.5, None, "x"))
    {'tuple': [1, {'float': '0x1.0000000000000p-1'}, None, 'x']}
    """
    kind = type(value)
    if _is_itself(value, NotStorable):
        return value
    tagged = _TAGGED.get(kind)
    if tagged is not None:
        return tagged(value)
    if depth > _DEEPEST:
        raise NotStorable("a value that is nested too deeply")
    if kind is list:
        return [to_json(each, other, depth + 1) for each in value]
    if kind is tuple:
        return {"tuple": [to_json(each, other, depth + 1) for each in value]}
    if kind is torch.Size:
        return {"size": [to_json(each, other, depth + 1) for each in value]}
    if kind is slice:
        return {
            "slice": [
                to_json(each, other, depth + 1) for each in (value.start, value.stop, value.step)
            ]
        }
    if other is not None:
        return other(value)
    raise NotStorable(f"a value of class {kind.__module__}.{kind.__qualname__}")


def from_json(data: Json, other: Callable[[str, Json], Any] | None = None, depth: int = 0) -> Any:
    """Return the value that :func:`to_json` wrote.

    Args:
        data: what was written.
        other: returns the value of another tag.
        depth: how deep it is nested.

    Raises:
        EntryError: it is no such thing.

    >>> from_json(to_json((1, float("-inf"), slice(None, 3), torch.int64)))
    (1, -inf, slice(None, 3, None), torch.int64)
    """
    kind = type(data)
    if _is_itself(data, EntryError):
        return data
    if depth > _DEEPEST:
        raise EntryError("a value that is nested too deeply")
    if kind is list:
        return [from_json(each, other, depth + 1) for each in data]
    if kind is not dict or len(data) != 1:
        raise EntryError(f"not a value: {str(data)[:80]}")
    ((tag, inner),) = data.items()
    try:
        if tag in ("tuple", "size", "slice"):
            items = [from_json(each, other, depth + 1) for each in list_of(inner)]
            if tag == "slice" and len(items) != 3:
                raise EntryError("a slice has three parts")
            return (
                tuple(items)
                if tag == "tuple"
                else torch.Size(items)
                if tag == "size"
                else slice(*items)
            )
        read = _READERS.get(tag)
        if read is not None:
            return read(inner)
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError, binascii.Error) as error:
        raise EntryError(f"not a {tag}: {str(inner)[:80]}") from error
    if other is not None:
        return other(tag, inner)
    raise EntryError(f"unknown kind of value: {str(tag)[:80]}")


def _is_itself(value: Any, error: type[Exception]) -> bool:
    """Return whether a value is its own JSON; raise ``error`` for an integer that is too large to
    be written.
    """
    kind = type(value)
    if kind is int and abs(value) >= LARGEST_INTEGER:
        raise error("an integer of more than 4096 bits")
    return kind is str or kind is int or kind is bool or value is None


def list_of(data: Json, most: int = 1_000_000) -> list[Json]:
    """Check that data are a list of at most so many items; return it."""
    if type(data) is not list or len(data) > most:
        raise EntryError(f"a list of at most {most} items is needed, not {str(data)[:80]}")
    return data


def exactly(data: Json, count: int) -> list[Json]:
    """Check that data are a list of exactly so many items; return it."""
    if type(data) is not list or len(data) != count:
        raise EntryError(f"a list of {count} items is needed, not {str(data)[:80]}")
    return data


def label_of(data: Json, most: int = 100_000) -> str:
    """Check that data are a text; return it in one line without control characters, for display
    only.
    """
    return printable(text_of(data, most))


def text_of(data: Json, most: int = 100_000) -> str:
    """Check that data are a text; return it."""
    if type(data) is not str or len(data) > most:
        raise EntryError(f"a text is needed, not {str(data)[:80]}")
    return data


def integer_of(data: Json, low: int = 0, high: int = 1 << 62) -> int:
    """Check that data are an integer from ``low`` up to, not including, ``high``; return it."""
    if type(data) is not int or not low <= data < high:
        raise EntryError(f"an integer from {low} up to {high} is needed, not {str(data)[:80]}")
    return data


def fields_of(data: Json, *names: str) -> list[Json]:
    """Return the values of an object with exactly these members."""
    if type(data) is not dict or data.keys() != set(names):
        found = sorted(map(str, data))[:12] if type(data) is dict else type(data).__name__
        raise EntryError(f"an object with {', '.join(names)} is needed, not {found}")
    return [data[name] for name in names]


def _float(data: Json) -> float:
    if data in ("nan", "-nan"):
        return math.copysign(math.nan, -1.0 if data == "-nan" else 1.0)
    return float.fromhex(text_of(data, 64))


_READERS: dict[str, Callable[[Json], Any]] = {
    "float": _float,
    "complex": lambda data: complex(*(_float(each["float"]) for each in list_of(data, 2))),
    "bytes": lambda data: base64.b64decode(text_of(data, 1 << 24), validate=True),
    "dtype": lambda data: _DTYPES[data],
    "device": lambda data: torch.device(text_of(data, 64)),
    "layout": lambda data: _LAYOUTS[data],
    "memory_format": lambda data: _FORMATS[data],
    "ellipsis": lambda data: ...,
}
