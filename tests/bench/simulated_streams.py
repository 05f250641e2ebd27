"""Streams of calls played against a ledger on a simulated clock: what would have been saved and
lost, without a device.

A *machine* says what calls and purchases really take; the ledger knows that only by estimates,
corrected when something was made.  The hindsight of a stream is the best of: eager, one bucket wide
enough for all its calls, a bucket for each octave or step that occurs, a graph for each size that
occurs.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import attrs

from symshape.runtime.policy.estimates import Estimates
from symshape.runtime.policy.ledger import Ledger
from symshape.runtime.policy.nesting import LEVELS, Widest, octave_up, step_up
from symshape.runtime.policy.promise import Promise
from symshape.runtime.policy.size_offers import Answer, SizeOffers

Sizes = tuple[int, ...]

__all__ = ["MACHINES", "TRAFFIC", "Machine", "Outcome", "play"]


@attrs.frozen
class Machine:
    """A program on a device, as recorded or made up. Units: ms; work is a product of sizes and a
    constant.

    Attributes:
        eager: host time of an eager call.
        bucket: host time of a call that a bucket serves.
        price: what making a bucket takes.
        floor: device time that does not depend on the sizes.
        rate: device time for each unit of the product of the sizes.
        first: what the first trace takes.
        noise: relative error of measurements.
    """

    eager: float
    bucket: float
    price: float
    floor: float
    rate: float
    first: float = 500.0
    noise: float = 0.1

    def device(self, sizes: Sizes) -> float:
        """Return the device time of a call of these sizes."""
        return self.floor + self.rate * math.prod(sizes)

    def eagerly(self, sizes: Sizes) -> float:
        """Return what an eager call takes."""
        return max(self.eager, self.device(sizes))

    def padded(self, caps: Sizes) -> float:
        """Return what a call takes in a bucket of these capacities."""
        return max(self.bucket, self.device(caps))


MACHINES: dict[str, Machine] = {
    "llama": Machine(eager=8.0, bucket=0.25, price=130.0, floor=0.5, rate=4e-4),
    "bert": Machine(eager=5.5, bucket=0.2, price=90.0, floor=0.4, rate=5e-4),
    "gpt2 step": Machine(eager=19.0, bucket=1.5, price=290.0, floor=4.0, rate=4e-3, first=1500.0),
    "graphs": Machine(eager=0.7, bucket=0.1, price=16.0, floor=0.1, rate=6e-11),
    "large": Machine(eager=6.0, bucket=0.3, price=200.0, floor=1.0, rate=0.02),
    "small": Machine(eager=0.1, bucket=0.05, price=20.0, floor=0.02, rate=1e-5, first=100.0),
}
"""Recorded on an H100 (torch 2.11) and rounded; and two beyond: a device that is always busy, a
small function.
"""


def _language(rng: random.Random) -> Iterator[Sizes]:
    while True:
        yield (
            rng.choice((1, 2, 3, 4, 5, 6, 8)),
            min(max(round(math.exp(rng.gauss(4.6, 0.9))), 2), 1024),
        )


def _bimodal(rng: random.Random) -> Iterator[Sizes]:
    while True:
        middle = 40 if rng.random() < 0.7 else 800
        yield rng.randint(1, 8), max(2, round(rng.gauss(middle, middle / 8)))


def _drift(rng: random.Random) -> Iterator[Sizes]:
    middle = 20.0
    while True:
        middle = min(2000.0, middle * 1.01)
        yield rng.randint(1, 8), max(2, round(rng.gauss(middle, middle / 6)))


def _once(rng: random.Random) -> Iterator[Sizes]:
    """Sizes that come once each, spread over all octaves."""
    while True:
        yield rng.randint(1, 64), round(2 ** rng.uniform(1, 12))


def _few(rng: random.Random) -> Iterator[Sizes]:
    known = [(rng.randint(1, 8), rng.randint(2, 1024)) for _ in range(rng.randint(1, 4))]
    while True:
        yield rng.choice(known)


def _growing(rng: random.Random) -> Iterator[Sizes]:
    length = rng.randint(2, 40)
    while True:
        length += 1
        yield rng.randint(1, 2), length


def _four(rng: random.Random) -> Iterator[Sizes]:
    """Four independent sizes: graphs, nodes, edges, features."""
    while True:
        yield rng.randint(1, 40), rng.randint(100, 2000), rng.randint(500, 9000), rng.choice((1, 2))


TRAFFIC: dict[str, Callable[[random.Random], Iterator[Sizes]]] = {
    "log-normal": _language,
    "bimodal": _bimodal,
    "drift": _drift,
    "once": _once,
    "few": _few,
    "growing": _growing,
    "four sizes": _four,
}
ADVERSARY = "stops when bought"
"""Traffic that goes to another octave whenever a bucket was made for the last one."""


@attrs.frozen
class Outcome:
    """What came of one stream. Units: ms.

    Attributes:
        total: what its calls and purchases took.
        eager: what eager would have taken.
        hindsight: what the best fixed choice would have taken, its purchases included.
        best: the name of that choice.
        behind: the most by which the total so far was above 1.25 times eager's so far, over all
            prefixes.
        buckets: how many were made.
    """

    total: float
    eager: float
    hindsight: float
    best: str
    behind: float
    buckets: int


def play(
    machine: Machine,
    traffic: str,
    calls: int,
    seed: int,
    ledger: Callable[[Promise], Ledger] = Ledger,
) -> Outcome:
    """Play a stream of calls against a ledger."""
    rng = random.Random(seed)
    player = _Player(machine, ledger(Promise()), rng)
    adversary = _Adversary(rng) if traffic == ADVERSARY else None
    sizes_of = None if adversary is not None else TRAFFIC[traffic](rng)
    seen: list[Sizes] = []
    total = behind = machine.first
    eager = 0.0
    for _ in range(calls):
        sizes = adversary.next(player.made) if adversary is not None else next(sizes_of)  # type: ignore[arg-type]
        seen.append(sizes)
        total += player.call(sizes)
        eager += machine.eagerly(sizes)
        behind = max(behind, total - 1.25 * eager)
    best, hindsight = _hindsight(machine, seen)
    return Outcome(total, eager, hindsight, best, behind, player.made)


class _Player:
    """A runner of buckets, as the ledger sees one."""

    def __init__(self, machine: Machine, ledger: Ledger, rng: random.Random) -> None:
        self._machine, self._rng = machine, rng
        self._estimates = Estimates(
            *(self._guessed(each) for each in (machine.floor, machine.rate, machine.price))
        )
        self._offers = SizeOffers(ledger, self._estimates, work=math.prod)
        self._buckets: list[Sizes] = []
        self._widest = Widest()
        self._resting: dict[Sizes, _Resting] = {}
        ledger.promise.spend(machine.first)

    @property
    def made(self) -> int:
        """Return how many buckets were made so far."""
        return len(self._buckets)

    def _guessed(self, value: float) -> float:
        """Return a guess of a figure: off by a factor of two, mostly."""
        return value * math.exp(self._rng.gauss(0, 0.7))

    def _measured(self, milliseconds: float) -> float:
        return milliseconds * math.exp(self._rng.gauss(0, self._machine.noise))

    def call(self, sizes: Sizes) -> float:
        """Serve one call; return what it took, purchases included."""
        if not self._estimates.ready:
            return self._serve(sizes, None)
        self._widest.see(sizes)
        cell = tuple(map(LEVELS[-1], sizes))
        resting, times, spent = self._resting.get(cell), 1, 0.0
        if resting is not None and resting.left > 0:
            resting.left -= 1
            return self._serve(sizes, resting.caps)
        if resting is not None:
            times = resting.calls
        answer = self._ask(sizes, times)
        if answer.makes is not None:
            spent = self._make(answer.makes)
            answer = self._ask(sizes, 0)
        self._resting[cell] = _Resting(answer.serves, answer.rest - 1, answer.rest)
        return spent + self._serve(sizes, answer.serves)

    def _ask(self, sizes: Sizes, times: int) -> Answer:
        wanted = [tuple(map(level, sizes)) for level in LEVELS]
        covering = [caps for caps in self._buckets if all(map(int.__ge__, caps, sizes))]
        return self._offers.ask(
            sizes, covering, wanted, tuple(map(self._widest.step, self._widest.sizes)), times
        )

    def _make(self, caps: Sizes) -> float:
        machine, estimates = self._machine, self._estimates
        spent = machine.price * math.exp(self._rng.gauss(0, 2 * machine.noise))
        estimates.price.saw(spent)
        estimates.replayed(math.prod(caps), self._measured(machine.device(caps)))
        estimates.bucket_host.saw(self._measured(machine.bucket))
        self._offers.bought(caps, spent)
        self._widest.made(caps)
        self._buckets.append(caps)
        self._resting.clear()
        return spent

    def _serve(self, sizes: Sizes, caps: Sizes | None) -> float:
        if caps is not None:
            return self._machine.padded(caps)
        taken = self._machine.eagerly(sizes)
        self._estimates.eager_host.saw(self._measured(self._machine.eager))
        self._estimates.ran(math.prod(sizes), self._measured(taken))
        return taken


@attrs.define
class _Resting:
    """Calls alike that are served without asking: by these capacities, so many more, of so many in
    all.
    """

    caps: Sizes | None
    left: int
    calls: int


class _Adversary:
    """Sizes that leave an octave the moment that something was bought."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._made, self._octave = rng, 0, 3

    def next(self, made: int) -> Sizes:
        """Return the next sizes, given how many buckets were made so far."""
        if made > self._made:
            self._made, self._octave = made, 3 + (self._octave - 2) % 8
        return self._rng.randint(1, 8), self._rng.randint(
            1 + 2 ** (self._octave - 1), 2**self._octave
        )


def _hindsight(machine: Machine, seen: Sequence[Sizes]) -> tuple[str, float]:
    """Return the best fixed choice for these calls, and what it takes."""
    wide = tuple(map(max, *seen)) if len(seen) > 1 else seen[0]
    choices = {
        "eager": sum(map(machine.eagerly, seen)),
        "wide": machine.price + len(seen) * machine.padded(wide),
        "exact": machine.price * len(set(seen)) + sum(map(machine.padded, seen)),
    }
    for name, level in (("octaves", octave_up), ("steps", step_up)):
        found = Counter(tuple(map(level, sizes)) for sizes in seen)
        choices[name] = machine.price * len(found) + sum(
            n * machine.padded(caps) for caps, n in found.items()
        )
    best = min(choices, key=lambda name: choices[name])
    return best, machine.first + choices[best] if best != "eager" else choices[best]
