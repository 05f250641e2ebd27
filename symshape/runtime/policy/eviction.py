"""The eviction rule: the graphs and buckets with the least credit for each byte make room for a new
one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import attrs

from symshape.runtime.policy.ledger import HALF_LIFE

__all__ = ["ASKED", "FADES", "REPLACES", "Credit", "leaving"]

ASKED = 8
"""The number of (faded) calls that must want an item before others are evicted for it, if its
savings are unknown.
"""
FADES: float = 0.5 ** (1 / HALF_LIFE)
"""The factor by which credit fades with each call."""
REPLACES = 1.5
"""The factor by which a new item's credit must exceed that of evicted items: making those again
takes time.
"""


@attrs.define(eq=False)
class Credit:
    """The ms that an item has saved, fading with the calls; or its faded calls, if their savings
    are unknown.

    Attributes:
        gain: the ms that each use saves.
        last_used: the number of the call that used it last.
        amount: the credit at that call.
    """

    gain: float = 1.0
    last_used: int = 0
    amount: float = 0.0

    def use(self, clock: int, times: int = 1) -> None:
        """Record uses, the last one by the call with this number.

        A launch does the same inline: ``credit.amount = credit.amount * FADES ** (now -
        credit.last_used) + credit.gain; credit.last_used = now``.
        """
        self.amount = self.now(clock) + self.gain * times
        self.last_used = clock

    def begin(self, amount: float, gain: float, clock: int) -> None:
        """Set the credit with which an item is made, and the ms that each use will save."""
        self.amount, self.gain, self.last_used = amount, gain, clock

    def now(self, clock: int) -> float:
        """Return the faded credit at the call with this number."""
        return self.amount * FADES ** max(0, clock - self.last_used)


def leaving(
    there: Mapping[Hashable, tuple[float, int]],
    credit: float,
    fits: Callable[[frozenset[Hashable]], bool],
) -> list[Hashable] | None:
    """Return the items to evict for a new item with this credit; None if they are worth more.

    Args:
        there: the credit and the bytes of each stored item.
        credit: the new item's credit.
        fits: returns whether there is room without the given items.

    >>> leaving({"a": (5.0, 1), "b": (2.0, 1)}, 4.0, lambda gone: len(gone) >= 1)
    ['b']
    >>> leaving({"a": (5.0, 1), "b": (2.0, 1)}, 4.0, lambda gone: len(gone) >= 2)
    """
    gone: list[Hashable] = []
    lost = 0.0
    for key in sorted(there, key=lambda each: there[each][0] / max(1, there[each][1])):
        gone.append(key)
        lost += there[key][0]
        if REPLACES * lost >= credit:
            return None
        if fits(frozenset(gone)):
            return gone
    return None
