"""Python's garbage collector while a function is traced: it waits longer.

A trace makes tens of thousands of objects that live until its end, and hardly a cycle.  At Python's own threshold the
collector looks at them again and again, and at everything that was loaded before.  A program is hundreds of thousands
of objects that stay: as many young ones soon have the collector look at all objects of the process, which takes .4 s
where torch and transformers are loaded.  So what is there after a trace counts as old at once.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 100_000
"""How many more objects are made than go before the young ones are looked at."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Inside, the collector waits longer, in all threads; one that is off, or waits longer already, stays as it is."""
    before = gc.get_threshold()
    try:
        if 0 < before[0] < RARELY:
            gc.set_threshold(RARELY, *before[1:])
            gc.collect(1)  # what is garbage by now is not to become old
        yield
    finally:
        try:
            age()
            as_before(before)
        except BaseException:  # an interrupt
            as_before(before)
            raise


def age() -> None:
    """Have all objects count as old ones; nothing where somebody keeps objects frozen, or the collector is off."""
    if gc.isenabled() and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


def as_before(thresholds: tuple[int, int, int]) -> None:
    """Sets the thresholds that there were, unless somebody set others meanwhile."""
    if 0 < thresholds[0] < RARELY and gc.get_threshold() == (RARELY, *thresholds[1:]):
        gc.set_threshold(*thresholds)
