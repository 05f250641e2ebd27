"""Fewer runs of Python's garbage collector during a trace.

A trace makes tens of thousands of objects that live until its end, and hardly a cycle. At Python's
own threshold the collector scans them again and again, and everything that was loaded before. A
program is hundreds of thousands of objects that stay. So many young objects soon make the collector
scan all objects of the process, which takes .4 s where torch and transformers are loaded. So the
objects that exist after a large trace are made old at once.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 100_000
"""The collector's threshold during a trace: allocations minus deallocations before the young
generation is scanned.
"""
MANY = 10_000
"""The number of young objects after a trace from which on they are made old: those of some hundred
ops.
"""
MOST_FULL = 100
"""The number of middle collections since the last full one up to which a small trace puts off the
next full one: ten times Python's own threshold, so that dropped programs do go.
"""
MOST_AGED = 250_000
"""The number of objects that may become old after traces between two full collections: six traces
of a GPT-2's step.
"""
_aged = (-1, 0)  # full collections so far, and the objects that became old since the last one
_raised: tuple[int, int, int] | None = None  # the thresholds from before, while they are raised


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Raise the collector's threshold inside, in all threads; a collector that is off or slower is
    unchanged.

    A child that is forked meanwhile has the threshold from before.
    """
    global _raised
    before = gc.get_threshold()
    try:
        if 0 < before[0] < RARELY:
            _raised = before
            gc.set_threshold(RARELY, *before[1:])
        yield
    finally:
        try:
            age(before)
            as_before(before)
        except BaseException:  # an interrupt
            as_before(before)
            raise


def age(before: tuple[int, int, int] | None = None) -> None:
    """Make all objects old after a trace that made many; garbage among the young ones is collected
    first.

    Objects that become old in this way do not bring the next full collection nearer, so their
    number is limited. After a small trace the young ones are collected, by the thresholds from
    before it: else the next allocation would do so, and often scan all objects of the process with
    them. Nothing is made old if objects are frozen, and nothing happens if the collector is off.
    The collection takes 20 ms for a GPT-2's step.
    """
    global _aged
    count, middle, old = gc.get_count()
    if not gc.isenabled():
        return
    if count < MANY:
        if before is not None and 0 < before[0] < count and old <= MOST_FULL:
            gc.collect(int(middle > before[1]))
        return
    if gc.get_freeze_count():  # which counts them: 36 ms for a million
        return
    full = gc.get_stats()[2]["collections"]
    since, aged = _aged
    aged = count if since != full else aged + count
    if aged <= MOST_AGED:
        _aged = full, aged
        gc.collect(0)
        gc.freeze()
        gc.unfreeze()


def as_before(thresholds: tuple[int, int, int]) -> None:
    """Restore the thresholds from before the trace, unless other code changed them meanwhile."""
    global _raised
    if 0 < thresholds[0] < RARELY and gc.get_threshold() == (RARELY, *thresholds[1:]):
        gc.set_threshold(*thresholds)
        _raised = None


def _in_child() -> None:
    if _raised is not None:
        as_before(_raised)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
