"""Reads of the state of a random generator, free of deadlocks with other threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

# later Pythons collect between two bytecodes, never inside a call of C's
_COLLECTS_INSIDE = sys.version_info < (3, 12)
_alone = RLock()


def state_of(generator: torch.Generator) -> torch.Tensor:
    """Return ``generator.get_state()``, with no garbage collection inside.

    >>> state = state_of(torch.default_generator)
    >>> bool((state == torch.get_rng_state()).all())
    True
    """
    with nothing_collected():
        return generator.get_state()


def default_generator(device: torch.device) -> torch.Generator | None:
    """Return torch's generator of a device; None for a type of device whose generator torch does
    not show.
    """
    if device.type == "cpu":
        return torch.default_generator
    if device.type != "cuda":
        return None
    index: int | None = device.index
    at = torch.cuda.current_device() if index is None else index
    found: torch.Generator = torch.cuda.default_generators[at]
    return found


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable garbage collection around calls that read a generator's state.

    torch holds the generator's lock while it wraps the state. A tensor that is collected there
    waits for the GIL. Another thread that asks or seeds the same generator holds the GIL while it
    waits for the lock (torch 2.11 to 2.13).
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
