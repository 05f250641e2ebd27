"""All programs: importing this registers them."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.worlds.world import PROGRAMS

_NO_PROGRAMS = {"__init__", "__main__", "corpus", "known", "table", "ways", "world"}

for each in sorted(Path(__file__).parent.glob("*.py")):
    if each.stem not in _NO_PROGRAMS:
        importlib.import_module(f"tests.worlds.{each.stem}")

__all__ = ["PROGRAMS"]
