"""Calls timed two ways by turns, and which of the two is faster.

Each call is made once, one way or the other.  Of the two ways one runs the *function itself* (or a graph as it came to
us), the other what was made of it.
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
"""A trial begins at a multiple of this many calls, after as many that needed no trace."""
PAIRS = 16
"""Calls that a trial times each way."""
REST = 1024
"""Calls that the function itself serves before it is tried again, the first time; four times as many each time."""
LONGEST = 1 << 16
_CLEARLY = 0.97  # of the programs' time: below, the function itself is faster
_WINS = 11  # pairs of calls of 16 in which it has to be: by chance in one trial of ten
_Timed = tuple[int, float]  # the elements of a call's arguments, and its seconds


@attrs.frozen
class Verdict:
    """What a trial found.

    Attributes:
        plain: median µs of a call of the function itself.
        programs: median µs of a call that its programs serve.
        faster: whether the function itself is clearly faster.
    """

    plain: float
    programs: float
    faster: bool

    def __str__(self) -> str:
        return f"{self.plain:.3g} µs a call, its programs {self.programs:.3g} µs"


class Times:
    """The calls of a trial: by twos, one runs the function itself and one its programs.

    Which is first changes after half of them, so that neither gets the larger sizes of a stream where sizes take turns.
    Each call of the function itself is compared with what its programs take at that size, between what they took at
    the nearest ones: where sizes differ much, neighbours tell little.
    """

    def __init__(self) -> None:
        self.plain: list[_Timed] = []
        self.programs: list[_Timed] = []

    @property
    def _calls(self) -> int:
        return len(self.plain) + len(self.programs)

    def next(self) -> list[_Timed]:
        """Where the time of the next call goes: ``plain`` or ``programs``, which says how it is to be made."""
        call = self._calls
        return self.plain if (call + call // PAIRS) % 2 else self.programs

    @property
    def over(self) -> bool:
        """Whether enough calls were timed."""
        return self._calls == 2 * PAIRS

    def verdict(self) -> Verdict | None:
        """What they say; None where they are too few."""
        if not len(self.plain) == len(self.programs) == PAIRS:
            return None
        taken = _by_size(self.programs)
        pairs = [(own, other) for size, own in self.plain if (other := _between(taken, size)) is not None]
        wins = sum(own < other for own, other in pairs)
        mine, theirs = (statistics.median(each) * 1e6 for each in zip(*(pairs or [(1.0, 1.0)]), strict=True))
        clearly = statistics.median(own / other for own, other in pairs or [(1.0, 1.0)]) < _CLEARLY
        return Verdict(mine, theirs, clearly and wins * PAIRS >= _WINS * len(pairs) and len(pairs) >= PAIRS // 2)


def elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """How large the arguments of a call are."""
    leaves = tree_leaves((args, kwargs))
    return sum(each.numel() for each in leaves if isinstance(each, torch.Tensor))


def _by_size(calls: Sequence[_Timed]) -> list[_Timed]:
    """Sizes in order, each with the median of the seconds that calls of it took."""
    found: dict[int, list[float]] = {}
    for size, seconds in calls:
        found.setdefault(size, []).append(seconds)
    return sorted((size, statistics.median(each)) for size, each in found.items())


def _between(taken: Sequence[_Timed], size: int) -> float | None:
    """What calls of a size take, between those of the next smaller and the next larger one; None beyond all of them.

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
