"""What is written in C++ (``compiled_reading.cpp``), where it was built for the torch that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.native.loader import load


def _reading() -> Any:
    module = load("symshape.calls.compiled_reading")
    return module if hasattr(module, "class_version") else None  # an older checkout's takes other arguments


def _unknown(kind: type) -> int:
    return 0


READING: Any = _reading()
"""The module; None where there is none."""
class_version: Callable[[type], int] = getattr(READING, "class_version", _unknown)
"""A number that changes whenever something is put into a class or one of its bases, or taken out; 0: not known."""
