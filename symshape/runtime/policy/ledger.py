"""The cost ledger (rent or buy): calls credit the offers that would have served them faster, until
one pays its price.

Waiting until the credit reaches the price never loses more than twice what knowing the future would
have saved, for any stream; and the time spent keeps within the promise at every moment.  Offers are
nested: a call credits a wide bucket, an octave and a fine step.  The wide one collects the credit
of all calls and is made first; a finer one is then credited with what it saves beyond the wide one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

import attrs

from symshape.runtime.policy.promise import Promise

__all__ = ["Decision", "Ledger", "Offer", "Quote"]

HALF_LIFE = 2000
"""The number of calls after which credit counts half: nothing is bought for past traffic."""
LEAST_GAIN = 0.02
"""The share of the served call's time that an offer must save to be credited: less is within the
estimates' error.
"""
LONGEST_REST = 64
"""The most similar calls that are served before they are accounted for; others credit the same
offers meanwhile.

The number is one first, and doubles each time, so that seldom repeated calls are accounted for one
by one.
"""
EARLY = 0.5
"""The share of its price at which an offer is made: streams usually last as long again, and the
promise holds.
"""
DEARER = 4.0
"""The factor on the price of an offer that could not be made: memory was short, or a capture failed
for these sizes.
"""


@attrs.define(eq=False)
class Offer:
    """A way to serve calls, made or not.

    Attributes:
        words: its name, for reports.
        price: the expected ms of making it; once it is made, the ms that it took.
        made: whether it exists.
        credit: the ms that it would have saved so far, fading; not counted once it is made.
        calls: the number of calls that it served.
        saved: the ms that it saved in these calls, against eager.
        failures: the number of failed attempts to make it.
        least: the ms of credit below which it is not made, for any price: there was no room for it.
    """

    words: str
    price: float
    made: bool = False
    credit: float = 0.0
    calls: int = 0
    saved: float = 0.0
    failures: int = 0
    least: float = 0.0
    _credited: int = 0

    def add(self, gain: float, clock: int) -> None:
        """Add ms to the credit, after fading it since the last time."""
        if clock > self._credited:
            self.credit *= 0.5 ** ((clock - self._credited) / HALF_LIFE)
        self.credit += gain
        self._credited = clock

    @property
    def due(self) -> float:
        """Return the ms of credit at which the offer is made."""
        return max(EARLY * self.price, self.least)

    def __str__(self) -> str:
        if self.made:
            return (
                f"{self.words}: made in {self.price:.3g} ms, {self.calls} calls, "
                f"{self.saved:.3g} ms saved"
            )
        return (
            f"{self.words}: not made, {max(0.0, self.credit):.3g} of {self.price:.3g} ms of credit"
        )


class Quote(NamedTuple):
    """The ms that one call would take with an offer."""

    offer: Offer
    milliseconds: float


@attrs.frozen
class Decision:
    """The ledger's answer for a call.

    Attributes:
        serves: the cheapest existing offer.
        makes: the offer to make before the call is served; None if none is worth its price yet.
        rest: the number of similar calls that may be served the same way before the ledger is asked
            again.
    """

    serves: Quote
    makes: Offer | None
    rest: int


class Ledger:
    """The account of one program.

    Args:
        promise: the totals of the compiled function.

    Attributes:
        clock: the number of calls so far.
        eager: the offer that always exists: the program runs op by op.
    """

    def __init__(self, promise: Promise | None = None) -> None:
        self.promise = promise or Promise()
        self.clock = 0
        self.eager = Offer("eager", 0.0, made=True)

    def call(self, quotes: Sequence[Quote], times: int = 1) -> Decision:
        """Account for similar calls, and decide how they and the next ones are served.

        Args:
            quotes: the ms that a call would take with each offer; the first one is eager's.
            times: the number of similar calls since the last answer, including this one.
        """
        self.clock += times
        serves = min((each for each in quotes if each.offer.made), key=_milliseconds)
        eager = quotes[0].milliseconds
        serves.offer.calls += times
        serves.offer.saved += (eager - serves.milliseconds) * times
        self.promise.call(eager, serves.milliseconds, times)
        makes, rest, least = None, inf, LEAST_GAIN * serves.milliseconds
        for offer, milliseconds in quotes:
            gain = serves.milliseconds - milliseconds
            if offer.made or gain <= least:
                continue
            offer.add(gain * times, self.clock)
            rest = min(rest, (offer.due - offer.credit) / gain)
            if offer.credit >= offer.due and (makes is None or _worth(offer) > _worth(makes)):
                makes = offer
        if makes is not None and makes.price > self.promise.room:
            makes, rest = None, LONGEST_REST / 4
        return Decision(serves, makes, int(max(1, min(ceil(min(rest, LONGEST_REST)), 2 * times))))

    def bought(self, offer: Offer, milliseconds: float) -> None:
        """Record that an offer was made, and the ms that it took."""
        offer.made, offer.price = True, milliseconds
        self.promise.spend(milliseconds)

    def failed(self, offer: Offer, milliseconds: float = 0.0, *, dearer: bool = True) -> None:
        """Record that making an offer failed after so many ms.

        ``dearer``: it would probably fail again, so its price rises and its credit starts at 0;
        else there was no room for it, and it is not tried until its credit has doubled.
        """
        self.promise.spend(milliseconds)
        if dearer:
            offer.credit = 0.0
            offer.failures += 1
            offer.price *= DEARER
        else:
            offer.least = 2 * offer.credit


def _milliseconds(quote: Quote) -> float:
    return quote.milliseconds


def _worth(offer: Offer) -> float:
    return offer.credit / max(offer.price, 1e-6)
