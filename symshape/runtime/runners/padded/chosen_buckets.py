"""The buckets of a program under ``auto``, made and used as the cost ledger decides, call by
call.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import attrs
import torch

from symshape.graph.codegen import compiled
from symshape.graph.program import Program, size_names
from symshape.runtime.padding.results import Lend
from symshape.runtime.policy.estimates import TRUSTED
from symshape.runtime.policy.ledger import LONGEST_REST, Ledger
from symshape.runtime.policy.nesting import LEVELS, Widest
from symshape.runtime.policy.size_offers import Answer, Caps, SizeOffers
from symshape.runtime.runners.device_time import DeviceTime
from symshape.runtime.runners.padded.bucket import Bucket
from symshape.runtime.runners.padded.bucket_finder import BucketFinder, Found
from symshape.runtime.runners.padded.tied_buckets import TiedBuckets
from symshape.runtime.runners.work import Work, estimates_of

__all__ = ["ChosenBuckets"]

_REMEMBERED = 4096  # calls, by their sizes; ranges of sizes
_ASKING, _FREE = 0.02, 15.0
"""The share of the calls' time that asking the ledger may take, and the ms of asking that are free:
a dozen questions, since the first ones decide about most of the buckets.
"""
_TIMED_EAGERLY = 64
"""The number of first eager calls that are timed; after them, every sixteenth is."""
_WAITING = 4
"""The most eager calls whose time on the device is waited for."""


@attrs.define(eq=False)
class _Standing:
    """An answer of the ledger that holds for a number of calls, for all sizes with the same finest
    rounding.

    Attributes:
        bucket: the bucket that serves these sizes; None if they run eagerly.
        left: the number of calls until the ledger is asked again.
        calls: the number of calls that this answer serves, which the next question accounts for.
    """

    bucket: Bucket | None
    left: int
    calls: int


class ChosenBuckets:
    """The choice of a bucket for each call of one program by the ledger.  Callers hold the store's
    lock.

    Args:
        program: the program.
        finder: makes the buckets.
        ledger: the program's account of costs and savings.
        device: the device that the program computes on.
        lend: lends results instead of copying them.
        twin: returns what makes a bucket of the same capacities, of another program, for each
            bucket; None if nothing does.

    Attributes:
        estimates: the estimated times of calls and buckets.
        changed: whether the last look-up made a bucket, or tried to.
    """

    def __init__(
        self,
        program: Program,
        finder: BucketFinder,
        ledger: Ledger,
        device: torch.device,
        lend: Lend | None = None,
        twin: Callable[[], TiedBuckets | None] = lambda: None,
    ) -> None:
        self._finder, self._ledger, self._lend = finder, ledger, lend
        self._symbols = list(program.positions.items())
        self._sources = size_names(program)
        self._work = Work(program.graph, tuple(name for name, _ in self._symbols))
        self._device, self._on_cuda = device, device.type == "cuda"
        self.estimates = estimates_of(program.graph)
        self.changed = False
        self._twin = twin
        self._offers: dict[int, SizeOffers] = {}
        self._widest = Widest()
        self._calls: OrderedDict[Any, tuple[_Standing, Found | None]] = OrderedDict()
        self._cells: OrderedDict[Any, _Standing] = OrderedDict()
        self._pads: list[bool] | None = None  # whether each symbol is padded; None until computed
        self._buying: tuple[Bucket, Caps, float, int, float] | None = None
        # eager calls; calls answered without the ledger since its last answer
        self._ran = self._unasked_calls = 0
        # ms of asking the ledger, and of calls answered without it
        self._asking = self._unasked_ms = 0.0
        self._times: list[tuple[float, DeviceTime]] = []  # of eager calls, with their work
        self._untimed: list[Bucket] = []  # buckets whose replays are being timed
        finder.on_forget = self._forget

    def find(self, values: tuple[int, ...]) -> Found | None:
        """Return the bucket for a call and its placement in it; None if the call runs eagerly."""
        self.changed = False
        stream = self._finder.stream()
        known = self._calls.get((values, stream))
        if known is not None and known[0].left > 0:
            known[0].left -= 1
            return known[1]
        ready = self.estimates.ready or self._finder.has_plan
        return self._ask(values, stream) if ready and self._finder.may_pad(values) else None

    def _ask(self, values: tuple[int, ...], stream: int) -> Found | None:
        sizes = tuple([values[place] for _, place in self._symbols])
        cell = stream, self._cell(sizes)
        standing = self._cells.get(cell)
        named = dict(zip((name for name, _ in self._symbols), sizes, strict=True))
        if (
            standing is None
            or standing.left <= 0
            or not (standing.bucket is None or standing.bucket.covers(named))
        ):
            times = 1 if standing is None or standing.left > 0 else standing.calls
            if self._asking > _FREE + _ASKING * (self._ledger.promise.served + self._unasked_ms):
                standing = self._unasked(named, stream, times)
            else:
                self._work(sizes)  # the formula is made once, and is no part of a question's price
                start = time.perf_counter()
                standing = self._decide(sizes, named, stream, times + self._unasked_calls)
                if self._buying is None:
                    self._asking += (time.perf_counter() - start) * 1e3
                self._unasked_calls, self._unasked_ms = 0, 0.0
            _remember(self._cells, cell, standing)
        standing.left -= 1
        bucket = standing.bucket
        found = None if bucket is None else (bucket, bucket.place(named, self._lend))
        if self._buying is None:
            _remember(self._calls, (values, stream), (standing, found))
        return found

    def _unasked(self, named: dict[str, int], stream: int, times: int) -> _Standing:
        """Answer without the ledger, whose share of time is used up: the smallest bucket, if faster
        than eager.
        """
        there = [
            (self._work(self._caps(each)), each)
            for each in self._finder.buckets(stream)
            if each.covers(named)
        ]
        work, bucket = min(there, key=itemgetter(0), default=(0.0, None))
        eager, padded = (
            self.estimates.eager(self._work(tuple(named.values()))),
            self.estimates.bucket(work),
        )
        if bucket is None or padded > eager:
            bucket = None
        self._unasked_calls += times
        self._unasked_ms += (eager if bucket is None else padded) * times
        rest = min(2 * times, LONGEST_REST)
        return _Standing(bucket, rest, rest)

    def _cell(self, sizes: Caps) -> Caps:
        """Return the key of all sizes with the same finest rounding; the sizes themselves if the
        user has a plan.
        """
        if self._finder.has_plan:
            return sizes
        if self._pads is None:
            padded = self._finder.padded
            self._pads = [name in padded for name, _ in self._symbols]
        fine = LEVELS[-1]
        return tuple(
            [fine(size) if pads else size for size, pads in zip(sizes, self._pads, strict=True)]
        )

    def _decide(self, sizes: Caps, named: dict[str, int], stream: int, times: int) -> _Standing:
        """Ask the ledger for an answer, and begin to make the bucket that it wants, if any."""
        self._read_times()
        finder, offers = self._finder, self._offers_on(stream)
        planned = finder.planned(named, stream)
        if planned is not None:
            return _Standing(planned, LONGEST_REST, LONGEST_REST)
        self._widest.see(sizes)
        widest = finder.chosen(self._named(self._widest.sizes, named), self._widest.step)
        wanted = [finder.chosen(named, level) for level in LEVELS]
        buckets = {self._caps(each): each for each in finder.buckets(stream) if each.covers(named)}
        answer = offers.ask(
            sizes,
            buckets,
            [self._in_order(each) for each in wanted if each is not None],
            None if widest is None else self._in_order(widest),
            times,
            exact=tuple([value for name, value in named.items() if name not in finder.padded]),
            dearer=self._derivation,
        )
        if answer.makes is not None:
            bucket = self._make(named, stream, answer, offers)
            if bucket is not None:
                return _Standing(bucket, 1, 1)
        return _Standing(
            None if answer.serves is None else buckets[answer.serves], answer.rest, answer.rest
        )

    def _derivation(self, caps: Caps) -> float:
        """Return the ms that it probably takes to derive the program of a bucket, and its
        twin's.
        """
        named = dict(zip((name for name, _ in self._symbols), caps, strict=True))
        return sum(
            each.blueprints.expected_ms(
                {name: cap for name, cap in named.items() if name in each.padded}
            )
            for each in self._finders
        )

    @property
    def _finders(self) -> tuple[BucketFinder, ...]:
        twin = self._twin()
        return (self._finder,) if twin is None else (self._finder, twin.finder)

    def _derived_ms(self) -> float:
        """Return the ms that deriving programs took so far."""
        return sum(each.blueprints.derived_ms for each in self._finders)

    def _make(
        self, named: dict[str, int], stream: int, answer: Answer, offers: SizeOffers
    ) -> Bucket | None:
        """Begin to make a bucket; its first call captures it and completes the purchase."""
        start, failures, caps = time.perf_counter(), self._finder.failures, answer.makes or ()
        derived = self._derived_ms()
        padded = {name: cap for (name, _), cap in zip(self._symbols, caps, strict=True)}
        bucket = self._finder.make(named, stream, padded, answer.credit)
        self.changed = True
        self.clear()
        if bucket is None:
            taken = (time.perf_counter() - start) * 1e3
            offers.failed(caps, taken, dearer=self._finder.failures > failures)
            return None
        bucket.lease.credit.begin(answer.credit, answer.gain, bucket.lease.credit.last_used)
        self._buying = bucket, caps, start, stream, derived
        return bucket

    def bought(self, bucket: Bucket, loading: float = 0.0) -> None:
        """Record that a bucket has served a call; if it was made for that call, its purchase is
        complete.

        ``loading``: the ms of loading kernels for its twin.
        """
        buying, self._buying = self._buying, None
        if buying is None:
            return
        bought, caps, start, stream, derived = buying
        offers = self._offers_on(stream)
        if bought is not bucket:
            offers.failed(caps)
            return
        taken = (time.perf_counter() - start) * 1e3
        # the next bucket has the same program, and kernels that are loaded
        once = self._derived_ms() - derived + bucket.loading + loading
        self.estimates.price.saw(taken - once)
        self._untimed.append(bucket)
        if self._caps(bucket) != caps:
            offers.failed(caps)
        offers.bought(self._caps(bucket), taken)
        self._widest.made(self._caps(bucket))

    def timed(self, start: float) -> None:
        """Record the host's time of a bucket call that began at ``start``
        (``time.perf_counter``).
        """
        self.estimates.bucket_host.saw((time.perf_counter() - start) * 1e3)

    def broke_off(self) -> None:
        """Record that the present call raised: a bucket that was made for it is not bought."""
        buying, self._buying = self._buying, None
        if buying is not None:
            self._offers_on(buying[3]).failed(buying[1], (time.perf_counter() - buying[2]) * 1e3)
            self.clear()

    def served(self) -> dict[tuple[int, ...], Bucket]:
        """Return the bucket of each tuple of integers that a bucket serves."""
        return {
            values: found[0] for (values, _), (_, found) in self._calls.items() if found is not None
        }

    @property
    def settled(self) -> bool:
        """Return whether enough calls of buckets were timed."""
        return self._buying is None and len(self.estimates.bucket_host) >= TRUSTED

    def run_eagerly(self, run: Any, leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        """Run a call eagerly and return its results; the first calls, and a few later ones, are
        timed.
        """
        self._ran += 1
        run = compiled(run)  # no part of an eager call's time
        if self._ran > _TIMED_EAGERLY and self._ran % 16:
            results: list[Any] = run(leaves, values)
            return results
        start = time.perf_counter()
        if not self._on_cuda or len(self._times) >= _WAITING:
            results = run(leaves, values)
        else:
            sizes = tuple([values[place] for _, place in self._symbols])
            with DeviceTime(self._device) as timed:
                results = run(leaves, values)
            self._times.append((self._work(sizes), timed))
        self.estimates.eager_host.saw((time.perf_counter() - start) * 1e3)
        return results

    def _read_times(self) -> None:
        """Record the device's times of eager calls and of buckets' first replays that have
        ended.
        """
        waiting = []
        for work, timed in self._times:
            milliseconds = timed.milliseconds()
            if milliseconds is None:
                waiting.append((work, timed))
            else:
                self.estimates.ran(work, milliseconds)
        self._times = waiting
        untimed, self._untimed = self._untimed, []
        for bucket in untimed:
            if not bucket.read_times():
                self._untimed.append(bucket)
            milliseconds = bucket.variants[0].milliseconds if bucket.variants else None
            if milliseconds is not None:
                self.estimates.replayed(self._work(self._caps(bucket)), milliseconds)

    def _offers_on(self, stream: int) -> SizeOffers:
        found = self._offers.get(stream)
        if found is None:
            found = self._offers[stream] = SizeOffers(
                self._ledger, self.estimates, self._work, self._words
            )
        return found

    def _words(self, caps: Caps) -> str:
        names = dict(zip((name for name, _ in self._symbols), caps, strict=True))
        return (
            "a bucket up to "
            f"{', '.join(f'{self._sources[name]} {cap}' for name, cap in names.items())}"
        )

    def _caps(self, bucket: Bucket) -> Caps:
        sizes = {**bucket.made.exact, **bucket.made.caps}
        return self._in_order(sizes)

    def _in_order(self, sizes: dict[str, int]) -> Caps:
        return tuple([sizes[name] for name, _ in self._symbols])

    def _named(self, largest: Caps, named: dict[str, int]) -> dict[str, int]:
        """Return the largest sizes seen of padded symbols, and the call's own sizes of the
        others.
        """
        padded = self._finder.padded
        return {
            name: most if name in padded else named[name]
            for (name, _), most in zip(self._symbols, largest, strict=True)
        }

    def _forget(self, bucket: Bucket) -> None:
        """Handle the removal of a bucket from the store."""
        self._untimed = [each for each in self._untimed if each is not bucket]
        for offers in self._offers.values():
            offers.left(self._caps(bucket))
        self.clear()

    def clear(self) -> None:
        """Forget all answers, so that the ledger is asked again."""
        self._calls.clear()
        self._cells.clear()
        self._buying = self._pads = None

    def lines(self, most: int = 6) -> list[str]:
        """Return the ledger's contents for a report: estimates, purchases, and the offers with the
        most credit.
        """
        if not self.estimates.ready:
            return [str(self.estimates)]
        found = [str(self.estimates)]
        for offers in self._offers.values():
            found += [f"offer {each}" for each in offers.offers[:most]]
        return found


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    if key not in known and len(known) >= _REMEMBERED:
        known.popitem(last=False)
    known[key] = value
