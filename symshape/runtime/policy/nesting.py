"""The capacities of buckets that a call may be offered: from one that holds all sizes seen to a
close fit.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LEVELS", "Widest", "fine_step_up", "octave_up", "step_up"]


def octave_up(value: int) -> int:
    """Return the smallest power of two that is not below ``value``, and at least 2.

    (A size of 1 has a padded program of its own, so a coarse bucket serves it with sizes of 2.)

    >>> [octave_up(value) for value in (0, 1, 3, 9, 100)]
    [2, 2, 4, 16, 128]
    """
    return max(2, _power_up(value))


def _power_up(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def step_up(value: int) -> int:
    """Return the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24 … (two steps for each doubling) that is
    not below ``value``.

    >>> [step_up(value) for value in (0, 1, 2, 3, 5, 7, 9, 13, 100)]
    [1, 1, 2, 3, 6, 8, 12, 16, 128]
    """
    power = _power_up(value)
    return power * 3 // 4 if power >= 4 and value <= power * 3 // 4 else power


def fine_step_up(value: int) -> int:
    """Return the smallest step that is not below ``value``, of eight for each doubling and those of
    :func:`step_up`.

    >>> [fine_step_up(value) for value in (0, 1, 5, 9, 65, 100, 130)]
    [1, 1, 6, 12, 72, 104, 144]
    """
    step = max(8, 1 << max(0, (value - 1).bit_length() - 4))
    return min(step_up(value), -(-value // step) * step or 1)


LEVELS: tuple[Callable[[int], int], ...] = (octave_up, step_up, fine_step_up)
"""The functions that round a size up, coarse ones first.  Two sizes that the finest rounds equally
are so by all.
"""


class Widest:
    """The largest sizes of a stream so far, and the step by which the widest bucket exceeds them.

    A stream that has outgrown a bucket probably goes on growing: the next bucket has room for twice
    as much.

    Attributes:
        sizes: the largest value of each symbol.
    """

    def __init__(self) -> None:
        self.sizes: tuple[int, ...] = ()
        self._outgrown = False
        self._made: tuple[int, ...] = ()

    def see(self, sizes: tuple[int, ...]) -> None:
        """Record the sizes of a call."""
        self.sizes = tuple(map(max, self.sizes, sizes)) if self.sizes else sizes
        if self._made and any(map(int.__gt__, self.sizes, self._made)):
            self._outgrown = True

    def made(self, caps: tuple[int, ...]) -> None:
        """Record the capacities of a bucket that was made."""
        if all(map(int.__ge__, caps, self.sizes)):
            self._made = caps

    @property
    def step(self) -> Callable[[int], int]:
        """Return the function that rounds the largest sizes up."""
        return octave_up if self._outgrown else step_up
