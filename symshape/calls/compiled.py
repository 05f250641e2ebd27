"""What is written in C++ (``compiled_reading.cpp``), where it was built for the torch that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _reading() -> Any:
    try:
        from symshape.calls import compiled_reading
    except ImportError:  # not built, or for another torch or Python
        return None
    built_before = not hasattr(compiled_reading, "class_version")  # of an older checkout: it takes other arguments
    return None if built_before or torch.__version__ != compiled_reading.TORCH else compiled_reading


def _unknown(kind: type) -> int:
    return 0


READING: Any = _reading()
"""The module; None where there is none."""
class_version: Callable[[type], int] = getattr(READING, "class_version", _unknown)
"""A number that changes whenever something is put into a class or one of its bases, or taken out; 0: not known."""
