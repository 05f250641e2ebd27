"""What a relaxation says at a point: every bound in its tableau, on monomials and on forms, is kept
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from guards.deciders.linear_relaxation import Relaxation
from guards.terms.fold import evaluate


def broken(node: Relaxation, point: Mapping[str, int]) -> Iterator[str]:
    """The bounds that the point violates: there must be none where formulas and facts hold."""
    tableau = node.tableau
    forms = {
        ((monomial, 1),): variable for monomial, variable in tableau.index.items()
    } | tableau.forms
    for items, variable in forms.items():
        value = sum(c * evaluate(m, point) for m, c in items)
        lo, hi = tableau.lower[variable], tableau.upper[variable]
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            yield f"{lo} <= {items} <= {hi} at {dict(point)}"
