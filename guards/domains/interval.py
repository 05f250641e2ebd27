"""Ranges as people see them; :mod:`guards.domains.interval_arithmetic` reckons with plain pairs."""

from __future__ import annotations

from typing import Any

import attrs

from guards.errors import ArgumentError


def _bound(_: object, __: Any, value: object) -> None:
    if value is not None and type(value) is not int:
        raise ArgumentError(f"a bound is an integer or None, not {value!r}")


@attrs.frozen
class Interval:
    """All integers from ``lo`` to ``hi``, both included; None means unbounded.

    >>> Interval(2, None), 5 in Interval(2, None), Interval(3, 1).empty
    (Interval(lo=2, hi=None), True, True)
    """

    lo: int | None = attrs.field(default=None, validator=_bound)
    hi: int | None = attrs.field(default=None, validator=_bound)

    @property
    def empty(self) -> bool:
        """Return whether the interval contains no integer."""
        return self.lo is not None and self.hi is not None and self.lo > self.hi

    @property
    def single(self) -> int | None:
        """The only integer inside, or None when there are others or none."""
        return self.lo if self.lo == self.hi else None

    def __contains__(self, value: int) -> bool:
        return (self.lo is None or self.lo <= value) and (self.hi is None or value <= self.hi)

    def __str__(self) -> str:
        low = "(-inf" if self.lo is None else f"[{self.lo}"
        return f"{low}, inf)" if self.hi is None else f"{low}, {self.hi}]"
