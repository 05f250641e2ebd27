"""The linear relaxation of formulas: linear constraints that follow from them, and what is left to
branch on.

What is not linear is described by linear facts about it: ``a // b`` lies between
``(a - b + 1) / b`` and ``a / b``, and ``min`` and ``max`` are bounded by their operands. What
products obey is added as far as a question needs it (:mod:`guards.deciders.product_lemmas`).
"""

from __future__ import annotations

from collections.abc import Iterable

from guards.deciders.linear import Tableau
from guards.domains.linear_form import bounded
from guards.facts.component import Component
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, division
from guards.terms.term import DEEP, Monomials, Op, Term, among

PIVOTS = 300  # for one question
NODES = 32  # branches of one question
LEMMAS = 400  # about products, looked at for one question
_MONOMIALS = 48  # more than this in one question: not worth it here
_FACTS = 32  # rows of a component taken in
_REACH = 6  # how many rows away from the question they may be
_QUOTIENTS = 4  # by one term that is not a number, beyond which they are not compared

Row = tuple[int, Monomials, bool]  # (constant, items, whether it is == 0 and not just >= 0)


class TooLarge(Exception):
    """A question has more monomials than are worth it."""


class Budget:
    """The budget that all branches of one question share."""

    __slots__ = ("lemmas", "nodes", "pivots")

    def __init__(self) -> None:
        self.pivots = PIVOTS
        self.nodes = NODES
        self.lemmas = LEMMAS


class Relaxation:
    """Linear constraints that follow from formulas and from what a component knows, and what they
    leave open.

    Attributes:
        component: whose facts are taken in.
        budget: shared with all copies.
        tableau: the constraints.
        point: where the tableau stands, as far as it was asked: to choose by, never to conclude.
        open: disjunctions.
        unequal: terms that must not be 0.
        extremes, ites, products: monomials of that kind.
        carries: terms that are 0 or 1 each.
        inputs: the constraints as they were given, to be multiplied.
    """

    __slots__ = (
        "budget",
        "carries",
        "component",
        "extremes",
        "inputs",
        "ites",
        "open",
        "point",
        "products",
        "tableau",
        "unequal",
    )

    def __init__(self, component: Component, budget: Budget) -> None:
        self.component = component
        self.budget = budget
        self.tableau = Tableau(budget.pivots)
        self.point: dict[Term, float] = {}
        self.open: list[Term] = []
        self.unequal: list[Term] = []
        self.extremes: list[Term] = []
        self.ites: list[Term] = []
        self.products: list[Term] = []
        self.carries: list[Term] = []
        self.inputs: dict[Row, None] = {}

    def copy(self) -> Relaxation:
        """A branch: the same constraints, to be added to on its own."""
        made = Relaxation(self.component, self.budget)
        made.tableau = self.tableau.copy()
        made.open = self.open.copy()
        made.unequal = self.unequal.copy()
        made.extremes = self.extremes.copy()
        made.ites = self.ites.copy()
        made.products = self.products.copy()
        made.carries = self.carries.copy()
        made.inputs = self.inputs.copy()
        return made

    # -- building ----------------------------------------------------------------------------------

    def add(self, formula: Term) -> bool:
        """Add a formula; return False when that is at once impossible."""
        op = formula.op
        if op is Op.LE:
            return self._add_le(formula.args[0])
        if op is Op.EQ:
            return self.add_zero(formula.args[0])
        if op is Op.NE:
            self.ensure_all(formula.args[0])
            self.unequal.append(formula.args[0])
            return True
        if op is Op.AND:
            return all(self.add(part) for part in formula.args)
        if op is Op.OR:
            self.open.append(formula)
            return True
        return op is not Op.FALSE

    def _add_le(self, term: Term) -> bool:
        constant, items = arithmetic.split(term)
        self.ensure_all(term)
        self.inputs[-constant, tuple((m, -c) for m, c in items), False] = None
        return self.restrict(constant, items, None, 0)

    def add_zero(self, term: Term) -> bool:
        """Add ``term == 0``."""
        constant, items = arithmetic.split(term)
        if not items:
            return constant == 0
        self.ensure_all(term)
        self.inputs[constant, items, True] = None
        return self.restrict(constant, items, 0, 0)

    def restrict(self, constant: int, items: Monomials, lo: int | None, hi: int | None) -> bool:
        """Has ``lo <= constant + items <= hi`` hold (the monomials have variables); False when that
        is impossible.
        """
        form, (low, high) = bounded(constant, items, lo, hi)
        return self.tableau.restrict(self.tableau.form(form), low, high)

    def ensure_all(self, term: Term) -> None:
        """Give a variable to each monomial of a term."""
        index = self.tableau.index
        for monomial, _ in arithmetic.split(term)[1]:
            if monomial not in index:
                self.ensure(monomial)

    def ensure(self, monomial: Term) -> None:
        """Give a variable to a monomial, and add what is known of the monomial alone."""
        tableau = self.tableau
        if monomial in tableau.index:
            return
        if len(tableau.index) >= _MONOMIALS or monomial.depth > DEEP:
            raise TooLarge
        tableau.index[monomial] = tableau.variable(self.component.bounds(monomial))
        op = monomial.op
        if op is Op.SYMBOL:
            return
        if op is Op.MUL:
            self.products.append(monomial)
            for atom in monomial.args:
                if atom.op is not Op.SYMBOL:
                    self.ensure(atom)
        elif op is Op.FLOORDIV:
            self._describe_quotient(monomial)
        elif op is Op.MOD:
            quotient = division.floordiv(*monomial.args)
            rest = arithmetic.sub(
                arithmetic.add(monomial, arithmetic.mul(monomial.args[1], quotient)),
                monomial.args[0],
            )
            self.add_zero(rest)
        elif op is Op.MIN or op is Op.MAX:
            self.extremes.append(monomial)
            for part in monomial.args:
                self._bound_form(
                    arithmetic.sub(part, monomial)
                    if op is Op.MIN
                    else arithmetic.sub(monomial, part),
                    0,
                    None,
                )
        elif op is Op.ITE:
            self.ites.append(monomial)

    def _describe_quotient(self, quotient: Term) -> None:
        dividend, divisor = quotient.args
        if divisor.op is Op.CONST:
            number = divisor.args[0]
            constant, items = arithmetic.split(dividend)
            rest = dict(items)
            rest[quotient] = rest.get(quotient, 0) - number
            self._bound_form(arithmetic.linear(constant, rest), 0, number - 1)
            return
        self._describe_carries(quotient)
        lo, hi = self.component.bounds(divisor)
        slack = arithmetic.sub(dividend, arithmetic.mul(divisor, quotient))
        if lo is not None and lo > 0:
            self._bound_form(slack, 0, None)
            self._bound_form(arithmetic.sub(arithmetic.sub(divisor, slack), 1), 0, None)
        elif hi is not None and hi < 0:
            self._bound_form(slack, None, 0)
            self._bound_form(arithmetic.sub(arithmetic.sub(slack, divisor), 1), 0, None)

    def _describe_carries(self, quotient: Term) -> None:
        """Add that ``(a + b) // n`` is ``a // n + b // n`` or one more, for the present quotients
        by one term.
        """
        dividend, divisor = quotient.args
        index = self.tableau.index
        others = [
            m for m in index if m.op is Op.FLOORDIV and m.args[1] is divisor and m is not quotient
        ]
        if len(others) > _QUOTIENTS:
            return
        for other in others:
            a, b = dividend, other.args[0]
            for carry in (
                arithmetic.sub(
                    arithmetic.sub(self._quotient(arithmetic.add(a, b), divisor), quotient), other
                ),
                arithmetic.sub(
                    arithmetic.sub(quotient, self._quotient(arithmetic.sub(a, b), divisor)), other
                ),
                arithmetic.sub(
                    arithmetic.sub(other, self._quotient(arithmetic.sub(b, a), divisor)), quotient
                ),
            ):
                items = arithmetic.split(carry)[1]
                if items and not among(carry, self.carries) and all(m in index for m, _ in items):
                    self._bound_form(carry, 0, 1)
                    self.carries.append(carry)

    def _quotient(self, dividend: Term, divisor: Term) -> Term:
        return rewritten(self.component, division.floordiv(dividend, divisor))

    def _bound_form(self, term: Term, lo: int | None, hi: int | None) -> bool:
        """Add ``lo <= term <= hi``."""
        constant, items = arithmetic.split(term)
        if not items:
            return (lo is None or lo <= constant) and (hi is None or constant <= hi)
        self.ensure_all(term)
        if lo is not None:
            self.inputs[constant - lo, items, False] = None
        if hi is not None and len(items) < 4:
            self.inputs[hi - constant, tuple((m, -c) for m, c in items), False] = None
        return self.restrict(constant, items, lo, hi)

    def take_facts(self, about: Iterable[Term] = ()) -> bool:
        """Add what the component knows about the monomials here, the symbols ``about``, and what
        these are tied to.
        """
        component, index = self.component, self.tableau.index
        symbols: set[Term] = set(about)
        for monomial in index:
            symbols |= monomial.symbols
        for monomial in component.ranges:
            if (
                monomial.op is not Op.SYMBOL
                and monomial not in index
                and not symbols.isdisjoint(monomial.symbols)
            ):
                self.ensure(monomial)
        waiting = list(component.rows.items())
        taken = 0
        # rows about these symbols first, then rows about what those mention, and so on
        for _ in range(_REACH):
            later = []
            near = frozenset(symbols)
            for form, pair in waiting:
                about_these = [m.symbols for m, _ in form]
                if all(near.isdisjoint(those) for those in about_these) or taken >= _FACTS:
                    later.append((form, pair))
                    continue
                taken += 1
                symbols.update(*about_these)
                if not self._bound_form(arithmetic.linear(0, dict(form)), *pair):
                    return False
            if len(later) == len(waiting) or taken >= _FACTS:
                break
            waiting = later
        return all(
            self.add(part) for part in component.residue if not symbols.isdisjoint(part.symbols)
        )

    # -- the present point -------------------------------------------------------------------------

    def number(self, monomial: Term) -> float:
        """The value of a monomial that has a variable, at the present point."""
        found = self.point.get(monomial)
        if found is None:
            numerator, denominator = self.tableau.at(self.tableau.index[monomial])
            found = self.point[monomial] = numerator / denominator
        return found

    def at(self, term: Term) -> float:
        """The value of a term whose monomials all have variables; used to choose, never to
        conclude.
        """
        constant, items = arithmetic.split(term)
        total = float(constant)
        for m, c in items:
            total += c * self.number(m)
        return total
