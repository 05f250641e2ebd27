"""Rewriting: the table of laws applied bottom-up, until none fits or a node has had enough."""

from __future__ import annotations

from guards.facts.component import Component
from guards.facts.law import Rule
from guards.facts.rewrite_rules import RULES
from guards.terms import fold
from guards.terms.term import DEEP, NONLINEAR, Op, Term, children, postorder

_STEPS = 8  # rewrites of one node before it is left as it is
_BY_HEAD: dict[Op, tuple[Rule, ...]] = {
    op: tuple(rule for rule in RULES if rule.head is op) for op in Op
}


def rewritten(component: Component, term: Term) -> Term:
    """``term`` in a form that is equal wherever the component holds, and simpler where a rule
    fits.
    """
    if not term.kinds & NONLINEAR:
        return term
    known = component.memo.simplified
    found = known.get(term)
    if found is None:
        if term.depth > DEEP:
            for part in postorder(term, lambda part: part in known):
                if part not in known:
                    known[part] = _node(component, part, [known[child] for child in children(part)])
            return known[term]
        if not term.kinds & NONLINEAR:
            return term
        found = known[term] = _node(
            component, term, [rewritten(component, child) for child in children(term)]
        )
    return found


def _node(component: Component, term: Term, operands: list[Term]) -> Term:
    for child, operand in zip(children(term), operands, strict=True):
        if child is not operand:
            try:
                term = fold.rebuild(term, operands)
            except ZeroDivisionError:  # it says nothing under these facts
                return term
            break
    for _ in range(_STEPS):
        for rule in _BY_HEAD[term.op]:
            try:
                made = rule.apply(component, term, rewritten)
            except ZeroDivisionError:
                made = None
            if made is not None and made is not term:
                break
        else:
            return term
        term = _again(component, made)
    return term


def _again(component: Component, term: Term) -> Term:
    """Rewrite the new operands that a rule has made."""
    if term.op <= Op.SYMBOL or term.depth > DEEP:
        return term
    operands = [rewritten(component, child) for child in children(term)]
    for child, operand in zip(children(term), operands, strict=True):
        if child is not operand:
            try:
                return fold.rebuild(term, operands)
            except ZeroDivisionError:
                return term
    return term
