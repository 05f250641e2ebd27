"""Integer reasoning about sizes, usable with no tensor in sight."""

import os
import sys

if os.environ.get("SYMSHAPE_INTERPRETED", "") not in ("", "0"):  # to step through modules that were compiled
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    for _path in __path__:
        sys.path_importer_cache[_path] = FileFinder(_path, (SourceFileLoader, SOURCE_SUFFIXES))

from guards.certify import Certificate, certify
from guards.codegen import Check, compile_check
from guards.congruence import Congruence
from guards.decide import Effort, ask, decide, prove
from guards.dispatch import Miss, Near, Tree
from guards.errors import CannotSolve, Contradiction, FormatError, GuardsError, ParseError, RangeError
from guards.exchange import from_json, to_json
from guards.explain import Conflict, Distinction, Explanation, distinguish, explain, explain_conflict, explain_miss
from guards.exprs import Term, symbol
from guards.facts import Facts
from guards.grid import Grid
from guards.guard import Guard, GuardSet, Origin, Projection, Violation
from guards.interval import Interval
from guards.nearest import Nearest
from guards.parse import parse
from guards.prove import smtlib
from guards.shorten import bounds, simplify
from guards.simplify import latex
from guards.solve import solve
from guards.sources import IntArg, Size, Source, StorageOffset, Stride
from guards.verdict import Verdict

__all__ = [
    "CannotSolve",
    "Certificate",
    "Check",
    "Conflict",
    "Congruence",
    "Contradiction",
    "Distinction",
    "Effort",
    "Explanation",
    "Facts",
    "FormatError",
    "Grid",
    "Guard",
    "GuardSet",
    "GuardsError",
    "IntArg",
    "Interval",
    "Miss",
    "Near",
    "Nearest",
    "Origin",
    "ParseError",
    "Projection",
    "RangeError",
    "Size",
    "Source",
    "StorageOffset",
    "Stride",
    "Term",
    "Tree",
    "Verdict",
    "Violation",
    "ask",
    "bounds",
    "certify",
    "compile_check",
    "decide",
    "distinguish",
    "explain",
    "explain_conflict",
    "explain_miss",
    "from_json",
    "latex",
    "parse",
    "prove",
    "simplify",
    "smtlib",
    "solve",
    "symbol",
    "to_json",
]
