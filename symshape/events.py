"""Typed events of tracing, caching and running: the logic emits them; displays and tests subscribe.

>>> import symshape.events as events
>>> seen = []
>>> unsubscribe = events.subscribe(seen.append)
>>> events.emit(events.Fallback(op="aten.foo.default", how="decomposition"))
>>> seen[0].op
'aten.foo.default'
>>> unsubscribe()
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from symshape.errors import InputError


@attrs.frozen
class Event:
    """Root of all events."""


@attrs.frozen
class GuardAdded(Event):
    """A guard was recorded while tracing: its text and origin."""

    text: str
    origin: str


@attrs.frozen
class Specialized(Event):
    """A symbol was fixed to one value, and why."""

    symbol: str
    value: int
    reason: str


@attrs.frozen
class Fallback(Event):
    """An op without a rule of our own was inferred another way (``how``)."""

    op: str
    how: str


@attrs.frozen
class Traced(Event):
    """A trace finished: the function's name, its ops, its guards, and how long it took in ms."""

    function: str
    ops: int
    guards: int
    milliseconds: float


@attrs.frozen
class Stored(Event):
    """A program was kept in a store: the function's name, the entry's, and its bytes."""

    function: str
    digest: str
    bytes: int


@attrs.frozen
class NotStored(Event):
    """A program cannot be kept for another process, and what of it cannot."""

    function: str
    reason: str


@attrs.frozen
class Loaded(Event):
    """A program came from a store and was not traced: the function's name, the entry's, and its
    ops.
    """

    function: str
    digest: str
    ops: int


@attrs.frozen
class NotServed(Event):
    """A store had programs for a call's arguments, but what the last of them read has changed, and
    what.
    """

    function: str
    reason: str


@attrs.frozen
class StoreFailed(Event):
    """A store could not be read or written, or has something that is no entry; calls go on without
    it.
    """

    store: str
    reason: str


@attrs.frozen
class Certified(Event):
    """A store's certificate was proven again: of which function and declared sizes, by how many
    entries and parts.
    """

    function: str
    contract: str
    entries: int
    parts: int


@attrs.frozen
class CacheMiss(Event):
    """A call found no entry, and the one-sentence reason."""

    function: str
    reason: str


@attrs.frozen
class Evicted(Event):
    """An entry left the cache because the cache was full."""

    function: str
    entry: int


@attrs.frozen
class Defect(Event):
    """Our own code failed while it traced a function: what it raised, and where."""

    function: str
    error: str
    place: str


@attrs.frozen
class RanEagerly(Event):
    """A call ran eagerly, as its trace is impossible or would not pay: why, the user's line, and
    the error's code.
    """

    function: str
    reason: str
    place: str
    code: str = ""


@attrs.frozen
class TracingPaused(Event):
    """New sizes run the function itself from now on, since their traces serve no other calls: why,
    the user's line.
    """

    function: str
    reason: str
    place: str


@attrs.frozen
class Bought(Event):
    """The ledger decided to make something: what, how long that took in ms, and why."""

    what: str
    milliseconds: float
    reason: str


@attrs.frozen
class RunnerFallback(Event):
    """An entry could not use the asked-for runner; which one serves instead, and why."""

    wanted: str
    used: str
    reason: str


@attrs.frozen
class Mismatch(Event):
    """A verified call differed from eager: the entry (which has left the cache), the first
    difference, its cause.
    """

    function: str
    entry: int
    difference: str
    cause: str


@attrs.frozen
class NotVerified(Event):
    """A call of the sample that ``Options.verify`` asks for cannot be run twice, and why."""

    function: str
    reason: str


@attrs.frozen
class GraphCaptured(Event):
    """A CUDA graph was captured for one set of sizes."""

    sizes: tuple[int, ...]
    milliseconds: float


@attrs.frozen
class BucketMade(Event):
    """A padded program was made: capacities of its padded symbols, values of the others, and how
    long it took in ms.
    """

    capacities: dict[str, int]
    exact: dict[str, int]
    milliseconds: float


@attrs.frozen
class VariantChosen(Event):
    """Ways to run a bucket's program were timed: its capacities, whose kernels serve, and the ms of
    each.
    """

    capacities: dict[str, int]
    kernels: str
    milliseconds: dict[str, float]


@attrs.frozen
class CompiledBeside(Event):
    """The result of a background compiler was taken over; seconds since it was asked for."""

    seconds: float


@attrs.frozen
class PaddingRefused(Event):
    """A symbol keeps its exact value in padded programs, and why."""

    symbol: str
    reason: str


Subscriber = Callable[[Event], object]
_subscribers: tuple[Subscriber, ...] = ()


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call ``subscriber`` with every event from now on; return a function that ends that.

    Raises:
        InputError: it cannot be called.
    """
    global _subscribers
    if not callable(subscriber):
        raise InputError(
            f"a subscriber is called with each event, such as print; {subscriber!r} cannot be "
            "called"
        )
    _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        _subscribers = tuple(each for each in _subscribers if each is not subscriber)

    return unsubscribe


def anybody() -> bool:
    """Return whether there is a subscriber: for events that take time to make."""
    return bool(_subscribers)


def emit(event: Event) -> None:
    """Pass ``event`` to every subscriber."""
    for subscriber in _subscribers:
        subscriber(event)
