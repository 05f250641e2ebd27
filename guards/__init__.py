"""Integer reasoning about sizes, usable with no tensor in sight."""

import os
import sys

if os.environ.get("SYMSHAPE_INTERPRETED", "") not in ("", "0"):  # to step through modules that were compiled
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    for _path, _, _ in (found for _top in __path__ for found in os.walk(_top)):
        sys.path_importer_cache[_path] = FileFinder(_path, (SourceFileLoader, SOURCE_SUFFIXES))

from guards.ask.ladder import Effort, ask, decide, prove
from guards.ask.reading import parse
from guards.ask.simplification import bounds, simplify
from guards.ask.verdict import Verdict
from guards.dispatch.explanation import (
    Conflict,
    Distinction,
    Explanation,
    distinguish,
    explain,
    explain_conflict,
    explain_miss,
)
from guards.dispatch.tree import Miss, Near, Tree
from guards.domains.congruence import Congruence
from guards.domains.interval import Interval
from guards.errors import CannotSolve, Contradiction, FormatError, GuardsError, ParseError, RangeError
from guards.facts.facts import Facts
from guards.regions.nearest import Nearest
from guards.regions.raster import Grid
from guards.regions.solving import solve
from guards.sets.codegen import Check, compile_check
from guards.sets.coverage import Certificate, certify
from guards.sets.guard import Guard, GuardSet, Origin, Projection, Violation
from guards.sets.serialize import from_json, to_json
from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
from guards.terms.arithmetic import symbol
from guards.terms.latex_printing import latex
from guards.terms.smtlib_printing import smtlib
from guards.terms.term import Term

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
