"""Knowledge about the elements of a region: none, that they are finite, or that each is one known
number.

>>> constant(0).join(constant(0)), constant(0).join(constant(1)), constant(0).join(GARBAGE)
(Fill(kind='constant', value=0), Fill(kind='finite', value=None), Fill(kind='garbage', value=None))
>>> constant(float("-inf")).join(ZERO)
Fill(kind='garbage', value=None)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import attrs
import torch

__all__ = [
    "FALSE",
    "FINITE",
    "GARBAGE",
    "MINUS_INF",
    "ONE",
    "PLUS_INF",
    "ZERO",
    "Fill",
    "constant",
    "holds",
    "of_dtype",
]

Number = bool | int | float


@attrs.frozen
class Fill:
    """The elements of a region: ``garbage`` (anything, NaN too), ``finite``, or a ``constant``
    (``value``).
    """

    kind: Literal["garbage", "finite", "constant"]
    value: Number | None = None

    def join(self, other: Fill) -> Fill:
        """Return the fill of a region whose elements have either this fill or the other."""
        if self.kind == other.kind == "constant" and self.is_constant(other.value):
            return self
        return FINITE if self.finite and other.finite else GARBAGE

    @property
    def finite(self) -> bool:
        """Return whether no element is infinite or NaN."""
        return self.kind == "finite" or (self.kind == "constant" and math.isfinite(self.value or 0))

    def is_constant(self, value: Number | None) -> bool:
        """Return whether every element is this number; zeros of either sign are two numbers."""
        if self.kind != "constant" or value is None or self.value is None or self.value != value:
            return False
        return math.copysign(1.0, float(self.value)) == math.copysign(1.0, float(value))

    def __str__(self) -> str:
        return self.kind if self.value is None else str(self.value)


def constant(value: Number) -> Fill:
    """Every element is ``value``; garbage for NaN."""
    return GARBAGE if value != value else Fill("constant", value)


@lru_cache(maxsize=1024, typed=True)
def holds(dtype: torch.dtype, value: Number) -> bool:
    """Return whether a tensor of this dtype holds exactly this number.

    >>> holds(torch.float32, 2**24), holds(torch.float32, 2**24 + 1), holds(torch.uint8, -100)
    (True, False, False)
    """
    if value != value:
        return dtype.is_floating_point or dtype.is_complex
    try:
        return bool(torch.scalar_tensor(value, dtype=dtype).item() == value)
    except (RuntimeError, OverflowError):
        return False


def of_dtype(fill: Fill, dtype: torch.dtype) -> Fill:
    """The same with what the dtype tells: integers and truth values are always finite, and a
    constant that the dtype does not hold is another number.
    """
    integral = not (dtype.is_floating_point or dtype.is_complex)
    if fill.kind == "constant" and type(fill.value) in (bool, int, float):
        assert fill.value is not None
        if holds(dtype, fill.value):
            return fill
        inside = not integral and abs(fill.value) <= torch.finfo(dtype).max
        return FINITE if integral or inside else GARBAGE
    return FINITE if fill.kind == "garbage" and integral else fill


GARBAGE = Fill("garbage")
FINITE = Fill("finite")
ZERO = constant(0)
ONE = constant(1)
FALSE = constant(False)
MINUS_INF = constant(-math.inf)
PLUS_INF = constant(math.inf)
