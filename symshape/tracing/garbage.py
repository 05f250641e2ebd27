"""Python's garbage collector while a function is traced: it waits longer.

A trace makes tens of thousands of objects that live until its end, and hardly a cycle.  At Python's own threshold the
collector looks at them again and again, and at everything that was loaded before.  A program is hundreds of thousands
of objects that stay: as many young ones soon have the collector look at all objects of the process, which takes .4 s
where torch and transformers are loaded.  So what is there after a large trace counts as old at once.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 100_000
"""How many more objects are made than go before the young ones are looked at."""
MANY = 10_000
"""Objects that a trace leaves young from which on they count as old: those of some hundred ops."""
MOST_AGED = 250_000
"""Objects that become old at the end of traces between two full collections: those of six traces of a GPT-2's step."""
_aged = (-1, 0)  # full collections so far, and the objects that became old since the last one


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Inside, the collector waits longer, in all threads; one that is off, or waits longer already, stays as it is."""
    before = gc.get_threshold()
    try:
        if 0 < before[0] < RARELY:
            gc.set_threshold(RARELY, *before[1:])
        yield
    finally:
        try:
            age()
            as_before(before)
        except BaseException:  # an interrupt
            as_before(before)
            raise


def age() -> None:
    """Have all objects count as old ones after a trace that made many; the garbage among the young ones goes first.

    Objects that become old in this way do not bring the next full collection nearer, so they are few, and small
    programs are left to the collector: else those that are dropped would pile up.  Nothing happens where somebody
    keeps objects frozen, or the collector is off.  The collection takes 20 ms for a GPT-2's step.
    """
    global _aged
    count = gc.get_count()[0]
    if count < MANY or not gc.isenabled() or gc.get_freeze_count():  # which counts them: 36 ms for a million
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
    """Sets the thresholds that there were, unless somebody set others meanwhile."""
    if 0 < thresholds[0] < RARELY and gc.get_threshold() == (RARELY, *thresholds[1:]):
        gc.set_threshold(*thresholds)
