"""Amounts with units: ``"80 GB"``, ``1.5 TFLOP``.

>>> (
...     amount("80 GB", "bytes"),
...     amount("16 GiB", "bytes"),
...     amount("2.5 T", "flops"),
...     amount(4096, "bytes"),
... )
(80000000000, 17179869184, 2500000000000, 4096)
>>> shown(1_234_567, "B"), shown(999), shown(2**33, "B", binary=True)
('1.23 MB', '999', '8.00 GiB')
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import inf

from symshape.errors import InputError

_AMOUNT = re.compile(
    r"^\s*(?P<number>\d+(?:\.\d+)?(?:[eE]\d+)?)\s*(?P<prefix>[kKMGTPE]?)(?P<binary>i?)(?P<unit>"
    r"\w*)\s*$"
)
_LARGEST = 1e300
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_UNITS = {
    "bytes": ("", "b", "byte", "bytes"),
    "flops": ("", "flop", "flops"),
    "seconds": ("", "s", "seconds"),
}


def amount(value: object, what: str, name: str = "") -> int:
    """Read an amount of ``bytes`` or ``flops``: a number, or a text with a prefix (k, M, G, …; Ki,
    Mi, Gi, …).

    Args:
        value: the amount.
        what: of what it is.
        name: of the argument, for the error; ``what`` by default.

    Raises:
        InputError: it is neither, or negative.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < inf:
            raise InputError(f"{name or what}={value!r} must be 0 or more, and finite")
        return int(value)
    match = _AMOUNT.match(value) if isinstance(value, str) else None
    if match is None or match["unit"].lower() not in _UNITS[what]:
        raise InputError(
            f"{name or what}={value!r} is no amount; write a number, or one like '80 GB' or '16 "
            "GiB'"
        )
    base = 1024 if match["binary"] else 1000
    power = _PREFIXES.index("k" if match["prefix"] in ("k", "K") else match["prefix"])
    try:
        found = Decimal(match["number"]) * base**power
    except ArithmeticError:
        found = Decimal(inf)
    if found > _LARGEST:
        raise InputError(f"{name or what}={value!r} is too much to count")
    return int(found)


def shown(value: float, unit: str = "", *, binary: bool = False) -> str:
    """Return an amount as text, with three digits and a prefix."""
    base = 1024 if binary else 1000
    power = 0
    while abs(value) >= base and power < len(_PREFIXES) - 1:
        value /= base
        power += 1
    if power == 0:
        return f"{value:g} {unit}".rstrip()
    prefix = _PREFIXES[power].upper() + "i" if binary else _PREFIXES[power]
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {prefix}{unit}".rstrip()
