"""How much work something is, counted: the same on a busy machine as on a quiet one, and after
whatever tests.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from guards.asking.caches import clear_caches
from guards.terms.boolean import release

Result = TypeVar("Result")


@contextmanager
def undisturbed(*, cold: bool = True) -> Iterator[None]:
    """What earlier tests left behind is no work of what runs within; ``cold`` also empties the
    caches of ``guards``.

    Garbage is collected before, and not within: finalisers are calls. The table of terms is swept
    before, which is a call or two for each term of all tests: it is not due again before twice as
    many terms are there.
    """
    collecting = gc.isenabled()
    gc.collect()
    if cold:
        clear_caches()
    else:
        release()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def calls(work: Callable[[], Result]) -> tuple[Result, int]:
    """What ``work`` answers, and how many Python and C functions it called with empty caches.

    Calls inside compiled modules are not seen: bounds are those of the sources, which
    test_compiled.py runs.
    """
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    with undisturbed():
        sys.setprofile(seen)
        try:
            answer = work()
        finally:
            sys.setprofile(before)
    return answer, count
