"""The C++ extension ``compiled_reading.cpp``, if it was built for the installed torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.native.loader import load


def _reading() -> Any:
    module = load("symshape.calls.compiled_reading")
    # an older checkout's takes other arguments
    return module if hasattr(module, "class_version") else None


def _unknown(kind: type) -> int:
    return 0


READING: Any = _reading()
"""The module; None if it was not built."""
class_version: Callable[[type], int] = getattr(READING, "class_version", _unknown)
"""Return a number that changes whenever a class or one of its bases changes; 0 if it is not known.
"""
