"""A component that is being made, and what it has yet to take in: the state that learning works on,
and the replacement of an atom in all of it.
"""

from __future__ import annotations

from guards.domains import interval_arithmetic
from guards.facts.component import Component, contains, replaced
from guards.terms import arithmetic, boolean
from guards.terms.term import Monomials, Op, Term

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


def replace_everywhere(learning: Learning, atom: Term, replacement: Term) -> None:
    """Replace ``atom`` everywhere."""
    component = learning.component
    one = {atom: replacement}
    if atom.op is Op.SYMBOL:
        learning.between(replacement, *component.ranges.pop(atom, interval_arithmetic.SIZES))
    known_rewrites, component.rewrites = component.rewrites, {}
    for left, right in known_rewrites.items():
        new = replaced(right, one)
        new = right if new is None else new
        if left.op is not Op.SYMBOL and (
            contains(left, atom) or (new is not right and left.op is new.op)
        ):
            learning.pending.append(boolean.eq(left, new))  # it may say more now
        else:
            component.rewrites[left] = new
    component.rewrites[atom] = replacement
    learning.moved |= replacement.symbols
    for known, pair in list(component.ranges.items()):
        if known.op is not Op.SYMBOL and contains(known, atom):
            del component.ranges[known]
            moved = replaced(known, one)
            if moved is not None:
                learning.between(moved, *pair)
    for form, pair in list(component.rows.items()):
        if any(contains(m, atom) for m, _ in form):
            del component.rows[form]
            moved = replaced(arithmetic.linear(0, dict(form)), one)
            if moved is None:
                continue
            if pair[0] is not None and pair[0] == pair[1]:
                learning.pending.append(boolean.eq(moved, pair[0]))
            else:
                learning.between(moved, *pair)
    for condition in list(component.residue):
        if contains(condition, atom):
            del component.residue[condition]
            learning.pending.append(condition)
    learning.changed()
