"""How much work something is, counted: the same on a busy machine as on a quiet one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


def calls(work: Callable[[], Result]) -> tuple[Result, int]:
    """What ``work`` answers, and how many Python and C functions it called.

    Calls inside compiled modules are not seen: bounds are those of the sources, which test_compiled.py runs.
    Finalisers of what earlier tests left behind are not this work's calls: that garbage is collected before.
    """
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.collect()
    gc.disable()
    sys.setprofile(seen)
    try:
        return work(), count
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
