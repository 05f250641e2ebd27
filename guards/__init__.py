"""Integer reasoning about sizes, usable with no tensor in sight."""

from guards.congruence import Congruence
from guards.decide import Effort, ask
from guards.errors import CannotSolve, Contradiction, FormatError, GuardsError, ParseError, RangeError
from guards.exprs import Term, symbol
from guards.facts import Facts
from guards.intervals import Interval
from guards.parse import parse

__all__ = [
    "CannotSolve",
    "Congruence",
    "Contradiction",
    "Effort",
    "Facts",
    "FormatError",
    "GuardsError",
    "Interval",
    "ParseError",
    "RangeError",
    "Term",
    "ask",
    "parse",
    "symbol",
]
