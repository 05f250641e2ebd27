"""Python's garbage collector while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collections_put_off"]


@contextmanager
def collections_put_off() -> Iterator[None]:
    """Nothing is collected inside.

    What is made for a moment then dies before a collection counts it among what has lived long: a quarter more of that
    and Python looks at every object of the process, which takes longer than planning a bucket.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
