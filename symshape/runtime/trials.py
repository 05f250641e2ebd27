"""Trials: calls timed alternately by two ways, and the verdict which way is faster.

Each call is made once, one way or the other.  One way runs the function itself eagerly (or the
user's graph unchanged), the other runs the compiled programs.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs
import torch

from symshape.torch_internals.pytree import tree_leaves

__all__ = ["EVERY", "LONGEST", "PAIRS", "REST", "Times", "Verdict", "elements"]

EVERY = 32
"""The number of calls between two chances for a trial to begin; all calls before it must need no
trace.
"""
PAIRS = 16
"""The number of calls that a trial times each way."""
REST = 1024
"""The number of calls that run eagerly after the first verdict, before the next trial; four times
as many each time.
"""
LONGEST = 1 << 16
_CLEARLY = 0.97  # ratio of eager to program time below which eager counts as faster
_WINS = 11  # pairs of 16 in which eager must be faster: by chance so in one trial of ten
_Timed = tuple[int, float]  # the elements of a call's arguments, and its seconds


@attrs.frozen
class Verdict:
    """The result of a trial.

    Attributes:
        plain: median µs of an eager call.
        programs: median µs of a call served by programs.
        faster: whether eager is clearly faster.
    """

    plain: float
    programs: float
    faster: bool

    def __str__(self) -> str:
        return f"{self.plain:.3g} µs a call, its programs {self.programs:.3g} µs"


class Times:
    """The timed calls of a trial, in pairs: one runs the function itself and one its programs.

    The order within a pair changes after half of the trial, so that alternating sizes do not favour
    one way.  Each call of the function itself is compared with the programs' time for its size,
    interpolated between the nearest timed sizes: neighbouring calls of very different sizes are not
    comparable.
    """

    def __init__(self) -> None:
        self.plain: list[_Timed] = []
        self.programs: list[_Timed] = []

    @property
    def _calls(self) -> int:
        return len(self.plain) + len(self.programs)

    def next(self) -> list[_Timed]:
        """Return the list for the next call's time, ``plain`` or ``programs``, which also says how
        to make the call.
        """
        call = self._calls
        return self.plain if (call + call // PAIRS) % 2 else self.programs

    @property
    def over(self) -> bool:
        """Return whether the trial has timed all its calls."""
        return self._calls == 2 * PAIRS

    def verdict(self) -> Verdict | None:
        """Return the verdict of the timed calls; None if the trial is incomplete."""
        if not len(self.plain) == len(self.programs) == PAIRS:
            return None
        taken = _by_size(self.programs)
        pairs = [
            (own, other) for size, own in self.plain if (other := _between(taken, size)) is not None
        ]
        wins = sum(own < other for own, other in pairs)
        mine, theirs = (
            statistics.median(each) * 1e6 for each in zip(*(pairs or [(1.0, 1.0)]), strict=True)
        )
        clearly = statistics.median(own / other for own, other in pairs or [(1.0, 1.0)]) < _CLEARLY
        return Verdict(
            mine,
            theirs,
            clearly and wins * PAIRS >= _WINS * len(pairs) and len(pairs) >= PAIRS // 2,
        )


def elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the total number of elements of the tensors among a call's arguments."""
    leaves = tree_leaves((args, kwargs))
    return sum(each.numel() for each in leaves if isinstance(each, torch.Tensor))


def _by_size(calls: Sequence[_Timed]) -> list[_Timed]:
    """Return the sizes in order, each with the median seconds of its calls."""
    found: dict[int, list[float]] = {}
    for size, seconds in calls:
        found.setdefault(size, []).append(seconds)
    return sorted((size, statistics.median(each)) for size, each in found.items())


def _between(taken: Sequence[_Timed], size: int) -> float | None:
    """Return the seconds of calls of a size, interpolated between the nearest timed sizes; None
    outside their range.

    >>> _between([(10, 1.0), (20, 3.0)], 15), _between([(10, 1.0)], 10), _between([(10, 1.0)], 11)
    (2.0, 1.0, None)
    """
    at = bisect_left(taken, size, key=itemgetter(0))
    if at < len(taken) and taken[at][0] == size:
        return taken[at][1]
    if at in (0, len(taken)):
        return None
    (low, least), (high, most) = taken[at - 1], taken[at]
    return least + (most - least) * (size - low) / (high - low)
