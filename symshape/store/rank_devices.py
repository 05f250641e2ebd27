"""Ranks with devices of their own: ``cuda:0`` on one rank and ``cuda:1`` on another are no
difference.

Only comparisons ignore the device number. A program is for one device: its results may depend on
the number (a branch on ``x.device.index``, a ``"cuda:0"`` in its code), and no recording excludes
that.
"""

from __future__ import annotations

import re
from typing import Any

from symshape.store.constants import Json

_NUMBERED = re.compile(r'"([a-z]+:\d+)"')


def with_own_devices(structure: Json) -> Json:
    """Return a call's structure with accelerators numbered in order of appearance."""
    numbers: dict[str, str] = {}

    def numbered(device: Any) -> Any:
        kind, colon, _ = str(device).partition(":")
        return (
            numbers.setdefault(device, f"{kind} {len(numbers)}")
            if colon and kind != "cpu"
            else device
        )

    leaves = [
        [*each[:2], numbered(each[2]), *each[3:]] if each[0] == "tensor" else each
        for each in structure["leaves"]
    ]
    *modes, default = structure["modes"]
    return {**structure, "leaves": leaves, "modes": [*modes, numbered(default)]}


def moved(body: str, theirs: Json, mine: Json) -> str:
    """Return an entry's text with the devices of another rank's call replaced by this rank's.

    Args:
        body: the text.
        theirs: the structure of the other's call.
        mine: that of this rank's, equal to it but for the numbers of devices.
    """
    instead = dict(zip(_devices(theirs), _devices(mine), strict=True))
    return _NUMBERED.sub(lambda found: f'"{instead.get(found[1], found[1])}"', body)


def _devices(structure: Json) -> list[str]:
    return [
        *(str(each[2]) for each in structure["leaves"] if each[0] == "tensor"),
        str(structure["modes"][-1]),
    ]
