"""An atom replaced everywhere in what a component knows, once an equation says what it is."""

from __future__ import annotations

from guards.domains import interval_arithmetic
from guards.facts.component import contains, replaced
from guards.facts.learning import Learning
from guards.terms import arithmetic, boolean
from guards.terms.term import Op, Term


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
