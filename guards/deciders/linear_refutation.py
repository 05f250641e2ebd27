"""Refutation by linear elimination: no solution where the linear constraints that follow have none.

Where the relaxation of a formula (:mod:`guards.deciders.linear_relaxation`, and what products obey)
has a point, the search branches: on an ``or``, on ``!=``, on which operand of ``min`` or ``max`` it
is, on the condition of an ``ite``, and last on a fraction. All limits are counts, so the answer is
the same on every machine.
"""

from __future__ import annotations

from guards.deciders.linear import OutOfBudget
from guards.deciders.linear_relaxation import Budget, Relaxation, TooLarge
from guards.deciders.product_lemmas import refuted_by_products
from guards.facts.component import Component
from guards.terms import boolean
from guards.terms.case_distinction import cases
from guards.terms.term import DEEP, Term


def refuted(node: Relaxation) -> bool:
    """Return whether a branch of the search is proven to have no solution.

    Raises:
        OutOfBudget, TooLarge: before that was found out.
    """
    tableau = node.tableau
    tableau.pivots = node.budget.pivots
    node.point = {}
    try:
        if not tableau.feasible() or (node.products and refuted_by_products(node)):
            return True
    finally:
        node.budget.pivots = tableau.pivots
    return _branch(node)


def _branch(node: Relaxation) -> bool:
    choices = _choices(node)
    if choices is None:
        return False
    for formulas in choices:
        node.budget.nodes -= 1
        if node.budget.nodes < 0:
            raise OutOfBudget
        inner = node.copy()
        if all(inner.add(formula) for formula in formulas) and not refuted(inner):
            return False
    return True


def _choices(node: Relaxation) -> list[list[Term]] | None:
    """Return the alternatives that together cover all cases, to be tried in turn; None when nothing
    is open.
    """
    if node.open:
        formula = node.open.pop()
        return [[part] for part in formula.args]
    for position, term in enumerate(node.unequal):
        if abs(node.at(term)) < 1:
            del node.unequal[position]
            return [[boolean.lt(term, 0)], [boolean.gt(term, 0)]]
    for position, term in enumerate(node.extremes):
        value = node.number(term)
        for part in term.args:
            node.ensure_all(part)
        if all(abs(node.at(part) - value) > 1e-9 for part in term.args):
            del node.extremes[position]
            return [[boolean.eq(term, part)] for part in term.args]
    for position, term in enumerate(node.ites):
        del node.ites[position]
        return [[condition, boolean.eq(term, taken)] for condition, taken in cases(term)]
    if node.carries:
        carry = node.carries.pop()
        return [[boolean.eq(carry, 0)], [boolean.eq(carry, 1)]]
    for monomial, variable in node.tableau.index.items():
        numerator, denominator = node.tableau.at(variable)
        if numerator % denominator:
            below = numerator // denominator
            return [[boolean.le(monomial, below)], [boolean.ge(monomial, below + 1)]]
    return None


def refutes(component: Component, formula: Term) -> bool:
    """Return whether linear arithmetic proves that the formula has no solution in the component."""
    if formula.depth > DEEP:
        return False
    try:
        node = Relaxation(component, Budget())
        if not node.add(formula):
            return True
        if (
            component.rows or component.residue or len(component.ranges) > len(component.symbols)
        ) and not node.take_facts():
            return True
        return refuted(node)
    except (OutOfBudget, TooLarge, OverflowError, ZeroDivisionError):
        return False


def refutes_all(component: Component, formula: Term) -> bool:
    """Decide as :func:`refutes` does, with all facts of the component about the formula's
    symbols.
    """
    if formula.depth > DEEP:
        return False
    try:
        node = Relaxation(component, Budget())
        return not node.add(formula) or not node.take_facts(formula.symbols) or refuted(node)
    except (OutOfBudget, TooLarge, OverflowError, ZeroDivisionError):
        return False
