"""Integer reasoning about sizes, usable with no tensor in sight."""

from guards.codegen import Check, compile_check
from guards.congruence import Congruence
from guards.decide import Effort, Verdict, ask, decide, prove
from guards.dispatch import Miss, Near, Tree
from guards.errors import CannotSolve, Contradiction, FormatError, GuardsError, ParseError, RangeError
from guards.exprs import Term, symbol
from guards.facts import Facts
from guards.guard import Guard, GuardSet, Origin, Violation
from guards.intervals import Interval
from guards.parse import parse
from guards.sources import IntArg, Size, Source, StorageOffset, Stride

__all__ = [
    "CannotSolve",
    "Check",
    "Congruence",
    "Contradiction",
    "Effort",
    "Facts",
    "FormatError",
    "Guard",
    "GuardSet",
    "GuardsError",
    "IntArg",
    "Interval",
    "Miss",
    "Near",
    "Origin",
    "ParseError",
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
    "compile_check",
    "decide",
    "parse",
    "prove",
    "symbol",
]
