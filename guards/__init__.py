"""Integer reasoning about sizes, without tensors: a package of floors, each built on the floors
below it.

- ``terms``: integer and boolean formulas; equal formulas are one object.
- ``domains``: abstract domains of the values of an integer.
- ``text``: the reader of formulas.
- ``facts``: frozen facts about symbols.
- ``deciders``: decision procedures, one method a file; ``asking`` is the ladder that tries them in
  turn.
- ``regions``: conjunctions of conditions as sets of points.
- ``sets``: guards with the user's lines: checked, explained, stored.
- ``dispatch``: the search for the one of many guard sets that holds.

``prove("...")`` passes them in this order. ``text.reader`` makes a term, which the functions of
``terms`` bring into canonical form. ``asking`` makes ``Facts`` from the ranges and assumptions, and
takes the component of the term's symbols. It then tries the rungs of its ``ladder`` (ranges,
rewriting, simplex, enumeration, cases, factors, at last Z3) until one of the ``deciders`` has an
answer. The answer is cached with the component. An undecided question is None, never a guess.

>>> import guards
>>> (
...     guards.prove("(s0 + 7) // 8 * 8 >= s0"),
...     guards.prove("s0 >= 5"),
...     guards.prove("s0 < 5", assume=["s0 > 9"]),
... )
(True, None, False)
>>> guards.decide("s0 + s1 > 2", ranges={"s0": (2, None), "s1": (1, None)}).rung
'interval'
>>> print(guards.GuardSet("s0 + s1 > 2", "s0 > 2", "s0 % 8 == 0").minimise())
s0 >= 3
s0 % 8 == 0
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

# to step through modules that were compiled
if os.environ.get("SYMSHAPE_INTERPRETED", "") not in ("", "0"):
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

    for _path, _, _ in (found for _top in __path__ for found in os.walk(_top)):
        sys.path_importer_cache[_path] = FileFinder(_path, (SourceFileLoader, SOURCE_SUFFIXES))

from guards.asking.assuming import Assumptions, assuming
from guards.asking.ladder import Effort
from guards.asking.queries import decide, prove
from guards.asking.questions import ask
from guards.asking.reading import parse
from guards.asking.verdict import Verdict
from guards.domains.congruence import Congruence
from guards.domains.interval import Interval
from guards.errors import (
    ArgumentError,
    CannotSolve,
    Contradiction,
    FormatError,
    GuardsError,
    Missing,
    ParseError,
    RangeError,
    Undecided,
)
from guards.facts.facts import Facts
from guards.terms.arithmetic import symbol
from guards.terms.term import Term

_LATER = {
    "deciders.factoring": ("from_sympy", "to_sympy"),
    "deciders.z3_solver": ("from_z3", "to_z3"),
    "dispatch.explanation": (
        *(
            "Conflict",
            "Distinction",
            "Explanation",
            "distinguish",
            "explain",
            "explain_conflict",
            "explain_miss",
        ),
    ),
    "dispatch.tree": ("Miss", "Near", "Tree"),
    "regions.nearest": ("Nearest",),
    "regions.raster": ("Grid",),
    "regions.solving": ("solve",),
    "sets.codegen": ("Check", "compile_check"),
    "sets.coverage": ("Certificate", "certify"),
    "sets.guard": ("Guard", "Violation"),
    "sets.guard_set": ("GuardSet", "Projection"),
    "sets.origin": ("Origin",),
    "sets.public": ("bounds", "holds", "implies", "latex", "simplify", "smtlib"),
    "sets.serialize": ("from_json", "to_json"),
    "sets.sources": ("IntArg", "Size", "Source", "StorageOffset", "Stride"),
}
"""The names of the floors above ``asking``, by module: loaded when one is first asked for (PEP
562).
"""

if TYPE_CHECKING:
    from guards.deciders.factoring import from_sympy, to_sympy
    from guards.deciders.z3_solver import from_z3, to_z3
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
    from guards.regions.nearest import Nearest
    from guards.regions.raster import Grid
    from guards.regions.solving import solve
    from guards.sets.codegen import Check, compile_check
    from guards.sets.coverage import Certificate, certify
    from guards.sets.guard import Guard, Violation
    from guards.sets.guard_set import GuardSet, Projection
    from guards.sets.origin import Origin
    from guards.sets.public import bounds, holds, implies, latex, simplify, smtlib
    from guards.sets.serialize import from_json, to_json
    from guards.sets.sources import IntArg, Size, Source, StorageOffset, Stride
else:
    _HOME = {name: module for module, names in _LATER.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "ArgumentError",
    "Assumptions",
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
    "Missing",
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
    "Undecided",
    "Verdict",
    "Violation",
    "ask",
    "assuming",
    "bounds",
    "certify",
    "compile_check",
    "decide",
    "distinguish",
    "explain",
    "explain_conflict",
    "explain_miss",
    "from_json",
    "from_sympy",
    "from_z3",
    "holds",
    "implies",
    "latex",
    "parse",
    "prove",
    "simplify",
    "smtlib",
    "solve",
    "symbol",
    "to_json",
    "to_sympy",
    "to_z3",
]

if PathFinder.find_spec(
    "guards.docstrings", __path__
):  # mypyc leaves them out of what it compiles: guards/docstrings.c puts them back
    import_module("guards.docstrings")
