"""Reads of the state of a random generator, free of deadlocks with other threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_COLLECTS_INSIDE = sys.version_info < (3, 12)  # later Pythons collect between two bytecodes, never inside a call of C's
_alone = RLock()


def state_of(generator: torch.Generator) -> torch.Tensor:
    """Return ``generator.get_state()``, with no garbage collection inside.

    >>> state = state_of(torch.default_generator)
    >>> bool((state == torch.get_rng_state()).all())
    True
    """
    with nothing_collected():
        return generator.get_state()


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable garbage collection around calls that read a generator's state.

    torch holds the generator's lock while it wraps the state. A tensor that is collected there waits for the GIL.
    Another thread that asks or seeds the same generator holds the GIL while it waits for the lock (torch 2.11 to 2.13).
    """
    if not _COLLECTS_INSIDE:
        yield
        return
    with _alone:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
