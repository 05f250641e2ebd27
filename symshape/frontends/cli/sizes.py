"""Sizes of calls, and which of them vary, as the command line spells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from symshape.dims import Dim
from symshape.errors import InputError

_ARGUMENT = r"(?P<argument>[^\W\d][^=]*?)"
_PLACE = r"(?:\.(?P<dim>\d+)|\.size\((?P<size>\d+)\)|\.shape\[(?P<shape>\d+)\])"
_DYNAMIC = re.compile(
    rf"\s*{_ARGUMENT}{_PLACE}\s*=\s*(?P<name>[^\W\d]\w*)(?::(?P<low>\d*):(?P<high>\d*))?\s*"
)
_SIZES = re.compile(r"\s*(?P<argument>[^\W\d][^=]*?)\s*=\s*(?P<sizes>[-\d\s,?]+?)\s*")


def read_dynamic(texts: Sequence[str]) -> dict[str, dict[int, Any]] | None:
    """Return ``ids.0=batch`` and ``ids.size(1)=length:8:512`` as ``dynamic`` of ``symshape.trace``;
    None for no texts.

    Raises:
        InputError: a text has another form, or one size is named twice.

    >>> read_dynamic(["ids.0=batch", "ids.size(1)=length:8:"])
    {'ids': {0: Dim('batch'), 1: Dim('length', min=8)}}
    """
    found: dict[str, dict[int, Any]] = {}
    for text in texts:
        match = _DYNAMIC.fullmatch(text)
        if match is None:
            raise InputError(
                f"--dynamic {text!r} should be ARG.DIM=NAME or ARG.DIM=NAME:LOW:HIGH, such as "
                "ids.1=length:8:512"
            )
        dim = int(next(each for each in match.group("dim", "size", "shape") if each is not None))
        words = (("min", "low"), ("max", "high"))
        bounds: dict[str, Any] = {key: int(match[word]) for key, word in words if match[word]}
        sizes = found.setdefault(match["argument"], {})
        if dim in sizes:
            raise InputError(f"--dynamic names {match['argument']}.{dim} twice")
        sizes[dim] = Dim(match["name"], **bounds)
    return found or None


def read_sizes(texts: Sequence[str]) -> dict[str, int | tuple[int | None, ...]]:
    """Return ``ids=4,128`` (``?``: any size; ``x=5,``: one dimension) as a tensor's sizes, ``k=3``
    as an integer.

    Raises:
        InputError: a text has another form, or one argument is named twice.

    >>> read_sizes(["ids=4,?", "k=3", "x=5,"])
    {'ids': (4, None), 'k': 3, 'x': (5,)}
    """
    found: dict[str, int | tuple[int | None, ...]] = {}
    for text in texts:
        match = _SIZES.fullmatch(text)
        if match is None:
            raise InputError(
                f"--size {text!r} should be ARG=SIZES, such as ids=4,128 (one dimension: x=5,; an "
                "integer: k=3)"
            )
        if match["argument"] in found:
            raise InputError(f"--size names {match['argument']} twice")
        parts = [part.strip() for part in match["sizes"].split(",")]
        several = len(parts) > 1
        if several and not parts[-1]:
            parts.pop()
        try:
            if several:
                found[match["argument"]] = tuple(
                    None if part == "?" else int(part) for part in parts
                )
            else:
                found[match["argument"]] = int(parts[0])
        except ValueError:
            raise InputError(f"--size {text!r}: {match['sizes']!r} are no sizes") from None
    return found
