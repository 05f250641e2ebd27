"""A component that is being made, and what it has yet to take in: the state that learning works
on.
"""

from __future__ import annotations

from guards.facts.component import Component
from guards.terms import boolean
from guards.terms.term import Monomials, Term

_STEPS = 400  # conditions that one call may work off, those that it derives included


class Learning:
    """A component being made and the conditions that it has yet to take in.

    Attributes:
        component: the component; nobody else knows it yet.
        pending: conditions not taken in yet; those derived on the way are put here too.
        steps: how many more conditions are worked off before the rest is kept as it stands.
        fresh: rows that were not propagated yet.
        moved: symbols of which a range changed since ranges were last propagated.
    """

    __slots__ = ("component", "fresh", "moved", "pending", "steps")

    def __init__(self, component: Component) -> None:
        self.component = component
        self.pending: list[Term] = []
        self.steps = _STEPS
        self.fresh: set[Monomials] = set()
        self.moved: set[Term] = set()

    def changed(self) -> None:
        """Forget the bounds that the component has worked out."""
        self.component._bounds.clear()
        self.component._classes.clear()

    def between(self, term: Term, lo: int | None, hi: int | None) -> None:
        """Has ``lo <= term <= hi`` taken in."""
        if lo is not None:
            self.pending.append(boolean.ge(term, lo))
        if hi is not None:
            self.pending.append(boolean.le(term, hi))
