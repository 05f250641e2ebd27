"""The estimated times of calls and purchases of one program, in ms, corrected by each
measurement.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, insort
from collections import deque
from math import inf

__all__ = ["Estimates", "Slack", "Typical"]

REPLAYED = 0.05
"""The assumed host time of a bucket call, as a share of an eager call's, until one was timed."""
TRUSTED = 3
"""The number of bucket calls that are timed: the host's time does not depend on the sizes.

Before the last of them, a time that is longer than assumed does not count: a first call may load a
kernel, and if it counted alone, no second one would correct it.
"""
HOPE = 0.5
"""The share of a guess that counts until a replay was measured: one bucket shows whether the guess
was wrong.
"""
SLOWER = 4.0
"""The largest factor by which a measured replay corrects other estimates: small sizes say little of
large ones.
"""

BOUND = 1.25
"""The factor by which the device's time exceeds the host's where the device, and not the host,
decides how long a step takes.
"""
TOLD = 0.1
"""The least share of a step's time that must depend on the overlap of host and device: a step that
hardly does tells nothing of it.
"""
HIDDEN = 0.9
"""The share of what could run meanwhile from which on all of it did."""
FEW = 5
"""The number of measurements from which on their median counts, and before it their least.

The first calls load kernels, or prepare libraries for their sizes.
"""


class Typical:
    """The median of the last few measurements; the least of fewer than ``FEW``.

    >>> typical = Typical()
    >>> [typical(), *map(typical.saw, (900.0, 700.0, 1.0, 2.0, 3.0))]
    [None, 900.0, 700.0, 1.0, 1.0, 3.0]
    """

    def __init__(self, last: int = 9) -> None:
        self._seen: deque[float] = deque(maxlen=last)
        self._value: float | None = None

    def saw(self, milliseconds: float) -> float:
        """Record a measurement; return the new median."""
        self._seen.append(milliseconds)
        self._value = (
            min(self._seen) if len(self._seen) < FEW else statistics.median_low(self._seen)
        )
        return self._value

    def __call__(self) -> float | None:
        """Return the median; None before there is a measurement."""
        return self._value

    def __len__(self) -> int:
        return len(self._seen)


class Slack:
    """The time that the caller's loop takes for each step besides a program, while the device may
    still work on the program.

    A step whose program takes the host as long as the device shows what the rest of the loop takes.
    A step whose program takes the device longer shows how much of that rest runs meanwhile: none
    does where the loop waits for the device first, or has other work for it.
    """

    def __init__(self) -> None:
        self._rest = Typical()
        self._most = Typical()

    def saw(self, step: float, host: float, device: float | None) -> float:
        """Record a step; return the ms of slack.

        Args:
            step: the ms from the program's begin to its next begin, for the host.
            host: the ms of the program for the host.
            device: the ms of the program for the device; None if it was at work still at the next
                begin.
        """
        rest = self._rest()
        if device is None:
            self._most.saw(0.0)
        elif device <= BOUND * host:
            self._rest.saw(max(0.0, step - max(host, device)))
        elif rest is not None and (could := min(rest, device - host)) >= TOLD * step:
            overlap = min(max(device + rest - step, 0.0), could)
            # where all that could did, more might
            self._most.saw(overlap if overlap < HIDDEN * could else max(overlap, self()))
        return self()

    def __call__(self) -> float:
        """Return the ms of slack: all of the rest until a step has shown how much runs
        meanwhile.
        """
        rest, most = self._rest() or 0.0, self._most()
        return rest if most is None else min(rest, most)


class Estimates:
    """The estimated times of calls and buckets of one program.

    Sizes enter as *work*: a number that grows with the sizes as the device's time does, such as
    bytes moved.  The device's time is a floor and a rate for each unit of work, which are guessed
    first; a measured replay corrects the guess for sizes near it.

    Args:
        floor: the guessed ms that the device needs for any sizes: its launches.
        rate: the guessed ms for each unit of work.
        price: the guessed ms of making a bucket.

    Attributes:
        eager_host: the host time of an eager call.
        bucket_host: the host time of a bucket call.
        price: the time of making a bucket.
        beside: the ms that the caller's loop takes for each call besides, while the device may
            still work.
        times: the time of a call with what follows it, as a multiple of the call's own.
    """

    beside = 0.0
    times = 1.0

    def __init__(self, floor: float, rate: float, price: float) -> None:
        self.eager_host = Typical()
        self.bucket_host = Typical()
        self.price = Typical(last=3)
        self._floor, self._rate, self._price = floor, rate, price
        self._replays: list[tuple[float, float]] = []  # (work, ms) of measured replays, by work
        self._scale = HOPE  # factor on the guess, from timed eager calls
        self._least = inf  # the least ratio of an eager call's device time to the guess

    @property
    def ready(self) -> bool:
        """Return whether an eager call was timed: nothing can be decided before."""
        return len(self.eager_host) > 0

    def replayed(self, work: float, milliseconds: float) -> None:
        """Record the device time of a replay at this work."""
        self._replays = [each for each in self._replays if each[0] != work]
        insort(self._replays, (work, milliseconds))

    def ran(self, work: float, milliseconds: float) -> None:
        """Record the device's time between the first and the last kernel of an eager call at this
        work.

        If that time is well above the host's, it is the device's own; else the device waited for
        the host, and needs less.
        """
        part = milliseconds / max(self._guess(work), 1e-9)
        if part < self._least:  # slower calls loaded kernels, or prepared libraries for new sizes
            self._least = part
            busy = milliseconds > 1.5 * (self.eager_host() or 0.0)
            self._scale = part if busy else min(HOPE, part)

    def _guess(self, work: float) -> float:
        return self._floor + self._rate * work

    def device(self, work: float) -> float:
        """Return the device time at this work: interpolated between measured replays, or a
        corrected guess.
        """
        known = self._replays
        if not known:
            return self._scale * self._guess(work)
        at = bisect_left(known, (work, 0.0))
        if at < len(known) and known[at][0] == work:
            return known[at][1]
        if 0 < at < len(known):
            (low, least), (high, most) = known[at - 1], known[at]
            return least + (most - least) * (work - low) / (high - low)
        near, taken = known[min(at, len(known) - 1)]
        off = taken / max(self._guess(near), 1e-9)
        return self._guess(work) * max(1 / SLOWER, min(off, SLOWER))

    def eager(self, work: float) -> float:
        """Return the ms of an eager call: the host's time or the device's, whichever is more.

        The device may need less than for a replay: a padded program may run other kernels than
        eager.
        """
        host = (self.eager_host() or 0.0) * self.times + self.beside
        device = min(self.device(work), self._least * self._guess(work))
        return max(host, device * self.times)

    def bucket(self, work: float) -> float:
        """Return the ms of a call served by a bucket with capacities of this work."""
        host, guess = self.bucket_host(), REPLAYED * (self.eager_host() or 0.0)
        if host is None or len(self.bucket_host) < TRUSTED:
            host = guess if host is None else min(host, guess)
        return max(host * self.times + self.beside, self.device(work) * self.times)

    def bucket_price(self) -> float:
        """Return the expected ms of making a bucket."""
        known = self.price()
        return self._price if known is None else known

    def __str__(self) -> str:
        host, bucket = self.eager_host(), self.bucket_host()
        if host is None:
            return "nothing is timed yet"
        padded = "not timed yet" if bucket is None else f"{bucket:.3g} ms"
        return (
            f"host time a call: eager {host:.3g} ms, padded {padded}; a bucket costs "
            f"{self.bucket_price():.3g} ms"
        )
