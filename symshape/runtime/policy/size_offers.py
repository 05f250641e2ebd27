"""The buckets of one program as offers: the bucket that serves a call's sizes, and the bucket to
make for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

import attrs

from symshape import events
from symshape.runtime.policy.estimates import Estimates
from symshape.runtime.policy.ledger import Ledger, Offer, Quote

__all__ = ["Answer", "Caps", "SizeOffers"]

Caps = tuple[int, ...]
"""A capacity for each symbol of a program, in the order of its symbols; for an exact symbol its
value.
"""
_WIDEST = "everything seen so far"
MOST_OPEN = 4096
"""The number of unmade buckets whose credit is remembered; the oldest are forgotten."""
MOST_SHARED = 16
"""The number of other calls' buckets that a call credits: those with the most credit."""
OUTSIDE = 0.5
"""The share of its credit that an unmade bucket keeps when a bucket is made that is not larger.

Measured on simulated streams: 0 and 1 are worse.
"""
MOST_COARSE = 64
"""The number of other calls' buckets that are looked at, for calls with the same exact sizes: those
used last.
"""


@attrs.frozen
class Answer:
    """The bucket that serves a call.

    Attributes:
        serves: the capacities of the bucket; None if the call runs eagerly.
        makes: the capacities of the bucket to make first; None if none is.
        rest: the number of similar calls that may be served the same way before the ledger is asked
            again.
        credit: the ms that the bucket to make would have saved so far.
        gain: the ms that it saves in a call like this.
    """

    serves: Caps | None
    makes: Caps | None
    rest: int
    credit: float = 0.0
    gain: float = 0.0


class SizeOffers:
    """The buckets of one program on one stream, made or not.

    A call credits each bucket that would have served it: those of its own sizes, and the coarse
    buckets of other calls that hold it.  So a bucket in the middle of the traffic is made first,
    and not one for each corner of it.

    Args:
        ledger: the program's account.
        estimates: the program's estimates.
        work: returns the work of a call of these sizes, or of a bucket of these capacities.
        words: names a bucket, for reports.
    """

    def __init__(
        self,
        ledger: Ledger,
        estimates: Estimates,
        work: Callable[[Caps], float],
        words: Callable[[Caps], str] = str,
    ) -> None:
        self._ledger, self._estimates, self._work, self._words = ledger, estimates, work, words
        self._made: dict[Caps, Offer] = {}
        self._open: OrderedDict[Hashable, Offer] = OrderedDict()
        # by exact sizes
        self._coarse: OrderedDict[Hashable, OrderedDict[Caps, None]] = OrderedDict()

    def ask(
        self,
        sizes: Caps,
        covering: Iterable[Caps],
        wanted: Iterable[Caps],
        widest: Caps | None = None,
        times: int = 1,
        exact: Hashable = (),
        dearer: Callable[[Caps], float] = lambda caps: 0.0,
    ) -> Answer:
        """Account for calls of these sizes, and decide which bucket serves them.

        Args:
            sizes: the sizes of the call.
            covering: the existing buckets that hold the call.
            wanted: buckets that would hold the call, made or not, coarse ones first.
            widest: the bucket that holds everything seen so far; its credit carries over as it
                grows.
            times: the number of such calls since the last answer, including this one.
            exact: the exact sizes that calls must have in common to share a bucket.
            dearer: returns the ms by which a bucket probably costs more than others.
        """
        covering, wanted = [self._there(caps) for caps in covering], list(wanted)
        shared = self._shared(sizes, wanted[0], exact) if wanted else []
        estimates, price = self._estimates, self._estimates.bucket_price()
        quotes = [Quote(self._ledger.eager, estimates.eager(self._work(sizes)))]
        capacities: list[Caps | None] = [None]
        for caps in dict.fromkeys(
            (*(() if widest is None else (widest,)), *shared, *wanted, *covering)
        ):
            offer = self._made.get(caps) or self._offered(
                (_WIDEST, exact) if caps == widest else caps, caps, price + dearer(caps)
            )
            quotes.append(Quote(offer, estimates.bucket(self._work(caps))))
            capacities.append(caps)
        decision = self._ledger.call(quotes, times)
        serves = capacities[quotes.index(decision.serves)]
        made = next((at for at, each in enumerate(quotes) if each.offer is decision.makes), None)
        if made is None or decision.makes is None:
            return Answer(serves, None, decision.rest)
        gain = decision.serves.milliseconds - quotes[made].milliseconds
        return Answer(serves, capacities[made], decision.rest, decision.makes.credit, gain)

    def _shared(self, sizes: Caps, own: Caps, exact: Hashable) -> list[Caps]:
        """Return the coarse buckets of other calls that hold a call of these sizes, and remember
        this call's.
        """
        known = self._coarse.setdefault(exact, OrderedDict())
        found = [caps for caps in known if caps != own and all(map(int.__ge__, caps, sizes))]
        known[own] = None
        known.move_to_end(own)
        self._coarse.move_to_end(exact)
        if len(known) > MOST_COARSE:
            known.popitem(last=False)
        if len(self._coarse) > MOST_COARSE:
            self._coarse.popitem(last=False)
        if len(found) > MOST_SHARED:
            found.sort(key=self._credit_of, reverse=True)
        return found[:MOST_SHARED]

    def _credit_of(self, caps: Caps) -> float:
        offer = self._open.get(caps)
        return 0.0 if offer is None else offer.credit

    def _there(self, caps: Caps) -> Caps:
        """Record a bucket that was made on the user's request."""
        if caps not in self._made:
            self._made[caps] = Offer(self._words(caps), 0.0, made=True)
        return caps

    def _offered(self, key: Hashable, caps: Caps, price: float) -> Offer:
        """Return the offer of a bucket that is not made; the widest bucket has one offer for all
        its capacities.
        """
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = Offer(self._words(caps), price)
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return found
        self._open.move_to_end(key)
        if not found.failures:
            found.price = price
            if key != caps:
                found.words = self._words(caps)
        return found

    def bought(self, caps: Caps, milliseconds: float) -> None:
        """Record that a bucket was made in so many ms.

        The credit of smaller buckets starts at 0: the new one saves from now on most of what they
        would have saved. Others keep half of theirs: the new one serves some of the calls that it
        came from.
        """
        offer = Offer(self._words(caps), milliseconds)
        self._made[caps] = offer
        self._ledger.bought(offer, milliseconds)
        wanted = {key: each for key, each in self._open.items() if each.words == offer.words}
        if wanted and events.anybody():
            most = max(wanted.values(), key=lambda each: each.credit)
            why = (
                f"calls would have saved {most.credit:.3g} ms with it so far; {most.price:.3g} "
                "ms were expected"
            )
            events.emit(events.Bought(offer.words, milliseconds, why))
        for key in wanted:
            del self._open[key]
        for key, each in self._open.items():
            each.credit *= 0.0 if isinstance(key, tuple) and _within(key, caps) else OUTSIDE
        for known in self._coarse.values():
            known.pop(caps, None)

    def failed(self, caps: Caps, milliseconds: float = 0.0, *, dearer: bool = True) -> None:
        """Record that a bucket could not be made after so many ms; ``dearer`` as for
        :meth:`Ledger.failed`.
        """
        words = self._words(caps)
        for each in [each for each in self._open.values() if each.words == words]:
            self._ledger.failed(each, milliseconds, dearer=dearer)
            milliseconds = 0.0

    def left(self, caps: Caps) -> None:
        """Record that a bucket was removed."""
        self._made.pop(caps, None)

    @property
    def offers(self) -> list[Offer]:
        """Return the offers: those made, by their savings; then the others, by their credit."""
        made = sorted(self._made.values(), key=lambda each: -each.saved)
        return [
            self._ledger.eager,
            *made,
            *sorted(self._open.values(), key=lambda each: -each.credit),
        ]


def _within(key: tuple[Hashable, ...], caps: Caps) -> bool:
    """Return whether a bucket's capacities are within another one's; False for the widest
    bucket.
    """
    return key[0] is not _WIDEST and all(
        isinstance(a, int) and a <= b for a, b in zip(key, caps, strict=True)
    )
