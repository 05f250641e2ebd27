"""Ranges as the command line spells them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RANGE = re.compile(
    r"^\s*(?P<name>[^\W\d][^=]*?)\s*=\s*(?P<low>-?\d+)?\s*(?P<colon>:)?\s*(?P<high>-?\d+)?\s*$"
)


def read_range(text: str) -> tuple[str, tuple[int | None, int | None]]:
    """Return the name and range of ``s0=2:64``, ``s0=2:``, ``s0=:64``, ``s0=:`` (any integer) or
    ``s0=8``.

    The name may be a place that a size is read from, as guards print it: ``x.size(0)=2:64``.

    Raises:
        ValueError: the text is no range.
    """
    match = _RANGE.match(text)
    if match is None or not (match["colon"] or match["low"]):
        raise ValueError(
            f"{text!r} is not a range; write NAME=LOW:HIGH, with either bound left out if there is "
            "none"
        )
    low = None if match["low"] is None else int(match["low"])
    high = None if match["high"] is None else int(match["high"])
    return match["name"], (low, high if match["colon"] else low)


def read_ranges(texts: Sequence[str]) -> dict[str, tuple[int | None, int | None]]:
    """Return several ranges, by name.

    Raises:
        ValueError: a text is no range, or a name has two ranges.
    """
    found: dict[str, tuple[int | None, int | None]] = {}
    for text in texts:
        name, pair = read_range(text)
        if name in found:
            raise ValueError(f"there are two ranges for {name}")
        found[name] = pair
    return found
