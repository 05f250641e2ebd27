"""Rent or buy: calls credit the offers that would have served them faster; one is made once that pays its price.

Whoever waits until the credit reaches the price never loses more than twice what knowing the future would have saved,
whatever the stream; and what is spent keeps within the promise at every moment.  Offers are nested: a call credits a
wide bucket, an octave and a fine step.  The wide one collects the credit of all calls and is made first; a finer one is
then credited with what it saves beyond the wide one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

import attrs

from symshape.runtime.policy.promise import Promise

__all__ = ["Decision", "Ledger", "Offer", "Quote"]

HALF_LIFE = 2000
"""Calls after which credit counts half: traffic that has gone is not bought for."""
LEAST_GAIN = 0.02
"""Part of the served call's time that an offer has to save to be credited: less is within the error of estimates."""
LONGEST_REST = 64
"""Calls alike that may be served before they are accounted for, at most: others credit the same offers meanwhile.

It is one call first, and doubles each time, so that calls that seldom repeat are accounted for one by one."""
EARLY = 0.5
"""Part of its price at which an offer is made: streams mostly go on for as long as they have, and the promise holds."""
DEARER = 4.0
"""Factor on the price of an offer that could not be made: memory was short, or a capture failed for these sizes."""


@attrs.define(eq=False)
class Offer:
    """A way to serve calls.

    Attributes:
        words: what it is, for reports.
        price: ms that making it is expected to take; once it is made, what it took.
        made: whether it is there.
        credit: ms that it would have saved so far, fading; not counted once it is made.
        calls: calls that it served.
        saved: ms that it saved in these, against eager.
        failures: how often making it failed.
        least: ms of credit below which it is not made, whatever its price: there was no room for it.
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
        """Add ms to the credit, after it has faded since the last time."""
        if clock > self._credited:
            self.credit *= 0.5 ** ((clock - self._credited) / HALF_LIFE)
        self.credit += gain
        self._credited = clock

    @property
    def due(self) -> float:
        """Return the ms of credit at which it is made."""
        return max(EARLY * self.price, self.least)

    def __str__(self) -> str:
        if self.made:
            return f"{self.words}: made in {self.price:.3g} ms, {self.calls} calls, {self.saved:.3g} ms saved"
        return f"{self.words}: not made, {max(0.0, self.credit):.3g} of {self.price:.3g} ms of credit"


class Quote(NamedTuple):
    """The ms that one call would take by an offer."""

    offer: Offer
    milliseconds: float


@attrs.frozen
class Decision:
    """An answer of the ledger to a call.

    Attributes:
        serves: the cheapest offer that is made.
        makes: the offer to make before the call is served; None where nothing is worth its price yet.
        rest: calls alike that may be served the same way before the ledger is asked again.
    """

    serves: Quote
    makes: Offer | None
    rest: int


class Ledger:
    """The account of one program.

    Args:
        promise: the totals of the compiled function.

    Attributes:
        clock: calls so far.
        eager: the offer that is always made: the program runs op by op.
    """

    def __init__(self, promise: Promise | None = None) -> None:
        self.promise = promise or Promise()
        self.clock = 0
        self.eager = Offer("eager", 0.0, made=True)

    def call(self, quotes: Sequence[Quote], times: int = 1) -> Decision:
        """Account for calls alike, and decide how they and the next ones are served.

        Args:
            quotes: what each offer would take; the first one is eager's.
            times: how many calls alike there were since the last answer, this one among them.
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
        """Record that an offer was made, and what that took."""
        offer.made, offer.price = True, milliseconds
        self.promise.spend(milliseconds)

    def failed(self, offer: Offer, milliseconds: float = 0.0, *, dearer: bool = True) -> None:
        """Record that making an offer failed after so many ms.

        ``dearer``: it fails again, most likely, so that its price rises and its credit starts anew; else there was no
        room for it, until it has twice its credit.
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
