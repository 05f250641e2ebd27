"""All programs, with the modules imported that register them."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.symshape.everyday.whole.program import PROGRAMS

__all__ = ["PROGRAMS"]

_NO_PROGRAMS = ("__init__", "__main__", "known", "loaded", "program", "table", "ways")

for _each in sorted(Path(__file__).parent.glob("*.py")):
    if _each.stem not in _NO_PROGRAMS:
        importlib.import_module(f"{__package__}.{_each.stem}")
