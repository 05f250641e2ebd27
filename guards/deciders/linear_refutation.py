"""Refutation by linear elimination: no solution where the linear constraints that follow have none.

What is not linear is described by linear facts about it: ``a // b`` lies between ``(a - b + 1) / b`` and ``a / b``,
``min`` and ``max`` are bounded by their operands, and a product obeys what multiplying the bounds of its factors
says. Where that does not suffice the search branches: on an ``or``, on ``!=``, on which operand of ``min`` or ``max``
it is, on the condition of an ``ite``, and last on a fraction. All limits are counts, so the answer is the same on
every machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from guards.deciders.linear import OutOfBudget, Tableau
from guards.facts.component import Component, normal_form
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, division
from guards.terms.term import DEEP, Op, Term

PIVOTS = 300  # for one question
NODES = 32  # branches of one question
LEMMAS = 400  # about products, looked at for one question
_MONOMIALS = 48  # more than this in one question: not worth it here
_FACTS = 32  # rows of a component taken in
_REACH = 6  # how many rows away from the question they may be
_QUOTIENTS = 4  # by one term that is not a number, beyond which they are not compared
_ROUNDS = 4  # of lemmas about products, at each node

Row = tuple[int, tuple[tuple[Term, int], ...], bool]  # (constant, items, whether it is == 0 and not just >= 0)


class _TooLarge(Exception):
    pass


class _Budget:
    __slots__ = ("lemmas", "nodes", "pivots")

    def __init__(self) -> None:
        self.pivots = PIVOTS
        self.nodes = NODES
        self.lemmas = LEMMAS


class _Node:
    """One branch of the search: constraints, and what is still open in it."""

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
        "rows_taken",
        "tableau",
        "unequal",
    )

    def __init__(self, component: Component, budget: _Budget) -> None:
        self.component = component
        self.budget = budget
        self.tableau = Tableau(budget.pivots)
        self.point: dict[Term, float] = {}  # where the tableau stands: to choose by, never to conclude
        self.open: list[Term] = []  # disjunctions
        self.unequal: list[Term] = []  # terms that must not be 0
        self.extremes: list[Term] = []
        self.ites: list[Term] = []
        self.products: list[Term] = []
        self.carries: list[Term] = []  # 0 or 1 each
        self.inputs: dict[Row, None] = {}
        self.rows_taken = 0

    def copy(self) -> _Node:
        made = _Node(self.component, self.budget)
        made.tableau = self.tableau.copy()
        made.open = self.open.copy()
        made.unequal = self.unequal.copy()
        made.extremes = self.extremes.copy()
        made.ites = self.ites.copy()
        made.products = self.products.copy()
        made.carries = self.carries.copy()
        made.inputs = self.inputs.copy()
        made.rows_taken = self.rows_taken
        return made

    # -- building -----------------------------------------------------------------------------------------------------

    def add(self, formula: Term) -> bool:
        """Adds a formula; False when that is at once impossible."""
        op = formula.op
        if op is Op.LE:
            return self._add_le(formula.args[0])
        if op is Op.EQ:
            return self.add_zero(formula.args[0])
        if op is Op.NE:
            self._ensure_all(formula.args[0])
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
        self._ensure_all(term)
        form, factor = normal_form(items)
        variable = self.tableau.form(form)
        if factor > 0:
            ok = self.tableau.restrict(variable, None, (-constant) // factor)
        else:
            ok = self.tableau.restrict(variable, -(constant // factor), None)
        self.inputs[-constant, tuple((m, -c) for m, c in items), False] = None
        return ok

    def add_zero(self, term: Term) -> bool:
        """Adds ``term == 0``."""
        constant, items = arithmetic.split(term)
        if not items:
            return constant == 0
        self._ensure_all(term)
        form, factor = normal_form(items)
        if constant % factor:
            return False
        value = -constant // factor
        self.inputs[constant, items, True] = None
        return self.tableau.restrict(self.tableau.form(form), value, value)

    def _ensure_all(self, term: Term) -> None:
        index = self.tableau.index
        for monomial, _ in arithmetic.split(term)[1]:
            if monomial not in index:
                self.ensure(monomial)

    def ensure(self, monomial: Term) -> None:
        """Gives a monomial a variable, and adds what is known of it by itself."""
        tableau = self.tableau
        if monomial in tableau.index:
            return
        if len(tableau.index) >= _MONOMIALS or monomial.depth > DEEP:
            raise _TooLarge
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
                arithmetic.add(monomial, arithmetic.mul(monomial.args[1], quotient)), monomial.args[0]
            )
            self.add_zero(rest)
        elif op is Op.MIN or op is Op.MAX:
            self.extremes.append(monomial)
            for part in monomial.args:
                self._bound_form(
                    arithmetic.sub(part, monomial) if op is Op.MIN else arithmetic.sub(monomial, part), 0, None
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
        """Adds that ``(a + b) // n`` is ``a // n + b // n`` or one more, for quotients by one term that are here."""
        dividend, divisor = quotient.args
        index = self.tableau.index
        others = [m for m in index if m.op is Op.FLOORDIV and m.args[1] is divisor and m is not quotient]
        if len(others) > _QUOTIENTS:
            return
        for other in others:
            a, b = dividend, other.args[0]
            for carry in (
                arithmetic.sub(arithmetic.sub(self._quotient(arithmetic.add(a, b), divisor), quotient), other),
                arithmetic.sub(arithmetic.sub(quotient, self._quotient(arithmetic.sub(a, b), divisor)), other),
                arithmetic.sub(arithmetic.sub(other, self._quotient(arithmetic.sub(b, a), divisor)), quotient),
            ):
                items = arithmetic.split(carry)[1]
                if items and carry not in self.carries and all(m in index for m, _ in items):
                    self._bound_form(carry, 0, 1)
                    self.carries.append(carry)

    def _quotient(self, dividend: Term, divisor: Term) -> Term:
        return rewritten(self.component, division.floordiv(dividend, divisor))

    def _bound_form(self, term: Term, lo: int | None, hi: int | None) -> bool:
        """Adds ``lo <= term <= hi``."""
        constant, items = arithmetic.split(term)
        if not items:
            return (lo is None or lo <= constant) and (hi is None or constant <= hi)
        self._ensure_all(term)
        form, factor = normal_form(items)
        low = None if lo is None else lo - constant
        high = None if hi is None else hi - constant
        if factor < 0:
            low, high = None if high is None else -high, None if low is None else -low
            factor = -factor
        low = None if low is None else -(-low // factor)
        high = None if high is None else high // factor
        if lo is not None:
            self.inputs[constant - lo, items, False] = None
        if hi is not None and len(items) < 4:
            self.inputs[hi - constant, tuple((m, -c) for m, c in items), False] = None
        return self.tableau.restrict(self.tableau.form(form), low, high)

    def take_facts(self, about: Iterable[Term] = ()) -> bool:
        """Adds what the component knows about the monomials here, the symbols ``about``, and what these are tied to."""
        component, index = self.component, self.tableau.index
        symbols: set[Term] = set(about)
        for monomial in index:
            symbols |= monomial.symbols
        for monomial in component.ranges:
            if monomial.op is not Op.SYMBOL and monomial not in index and not symbols.isdisjoint(monomial.symbols):
                self.ensure(monomial)
        waiting = list(component.rows.items())
        taken = 0
        for _ in range(_REACH):  # rows about these symbols first, then rows about what those mention, and so on
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
        return all(self.add(part) for part in component.residue if not symbols.isdisjoint(part.symbols))

    # -- searching ----------------------------------------------------------------------------------------------------

    def refuted(self) -> bool:
        """Whether this branch has no solution."""
        tableau = self.tableau
        tableau.pivots = self.budget.pivots
        self.point = {}
        try:
            if not tableau.feasible():
                return True
            if self.products:
                for attempt in range(_ROUNDS):
                    if self._products_hold():
                        break
                    added = self._multiply_bounds()
                    if added is False:
                        added = self._multiply_rows(attempt)
                    if added is None:
                        return True
                    if not added:
                        if attempt < 2:
                            continue  # the next attempt may name one more monomial
                        break
                    self.point = {}
                    if not tableau.feasible():
                        return True
        finally:
            self.budget.pivots = tableau.pivots
        return self._branch()

    def _products_hold(self) -> bool:
        """Whether at the present point each product is the product of its factors: then no lemma can exclude it."""
        index = self.tableau.index
        for product in self.products:
            value = 1.0
            for atom in product.args:
                if atom not in index:
                    self.ensure(atom)
                value *= self._number(atom)
            if abs(value - self._number(product)) > 1e-9:
                return False
        return True

    def _branch(self) -> bool:
        choices = self._choices()
        if choices is None:
            return False
        for formulas in choices:
            self.budget.nodes -= 1
            if self.budget.nodes < 0:
                raise OutOfBudget
            node = self.copy()
            if all(node.add(formula) for formula in formulas) and not node.refuted():
                return False
        return True

    def _number(self, monomial: Term) -> float:
        found = self.point.get(monomial)
        if found is None:
            numerator, denominator = self.tableau.at(self.tableau.index[monomial])
            found = self.point[monomial] = numerator / denominator
        return found

    def _at(self, term: Term) -> float:
        """The value of a term whose monomials all have variables; used to choose, never to conclude."""
        constant, items = arithmetic.split(term)
        total = float(constant)
        for m, c in items:
            total += c * self._number(m)
        return total

    def _choices(self) -> list[list[Term]] | None:
        """What to try, one after the other, to cover all cases; None when nothing is open."""
        if self.open:
            formula = self.open.pop()
            return [[part] for part in formula.args]
        for position, term in enumerate(self.unequal):
            if abs(self._at(term)) < 1:
                del self.unequal[position]
                return [[boolean.lt(term, 0)], [boolean.gt(term, 0)]]
        for position, term in enumerate(self.extremes):
            value = self._number(term)
            for part in term.args:
                self._ensure_all(part)
            if all(abs(self._at(part) - value) > 1e-9 for part in term.args):
                del self.extremes[position]
                return [[boolean.eq(term, part)] for part in term.args]
        for position, term in enumerate(self.ites):
            del self.ites[position]
            condition, then, otherwise = term.args
            return [[condition, boolean.eq(term, then)], [boolean.not_(condition), boolean.eq(term, otherwise)]]
        if self.carries:
            carry = self.carries.pop()
            return [[boolean.eq(carry, 0)], [boolean.eq(carry, 1)]]
        for monomial, variable in self.tableau.index.items():
            numerator, denominator = self.tableau.at(variable)
            if numerator % denominator:
                below = numerator // denominator
                return [[boolean.le(monomial, below)], [boolean.ge(monomial, below + 1)]]
        return None

    # -- products -----------------------------------------------------------------------------------------------------

    def _lemma(self, constant: int, items: Iterable[tuple[Term, int]]) -> bool | None:
        """Adds ``constant + items >= 0`` if the present point violates it; None when that is impossible."""
        self.budget.lemmas -= 1
        if self.budget.lemmas < 0:
            raise OutOfBudget
        merged: dict[Term, int] = {}
        for m, c in items:
            merged[m] = merged.get(m, 0) + c
        term = arithmetic.linear(constant, merged)
        if term.op is Op.CONST:
            return None if term.value < 0 else False
        if self._at(term) > -1e-9:
            return False
        constant, parts = arithmetic.split(term)
        form, factor = normal_form(parts)
        variable = self.tableau.form(form)
        if factor > 0:
            ok = self.tableau.restrict(variable, -(constant // factor), None)
        else:
            ok = self.tableau.restrict(variable, None, constant // -factor)
        return True if ok else None

    def _multiply_bounds(self) -> bool | None:
        """Adds products of the bounds of factors that the present point violates."""
        added = False
        for product in list(self.products):
            atoms = arithmetic.factors(product)
            if len(atoms) == 2 and atoms[0] is not atoms[1]:
                found = self._multiply_squares(product, *atoms)
                if found is None:
                    return None
                added = added or found
            seen: set[Term] = set()
            for position, atom in enumerate(atoms):
                if atom in seen:
                    continue
                seen.add(atom)
                rest = arithmetic.monomial(atoms[:position] + atoms[position + 1 :])
                self.ensure(atom)
                self.ensure(rest)
                if abs(self._number(product) - self._number(atom) * self._number(rest)) < 1e-9:
                    continue
                for lemma in self._envelope(product, atom, rest):
                    found = self._lemma(*lemma)
                    if found is None:
                        return None
                    added = added or found
        return added

    def _multiply_squares(self, product: Term, u: Term, v: Term) -> bool | None:
        """``(u - v)**2 >= 0`` and ``(u + v)**2 >= 0``, where both squares are at hand."""
        squares = [(arithmetic.mul(u, u), 1), (arithmetic.mul(v, v), 1)]
        if any(square not in self.tableau.index for square, _ in squares):
            return False
        less = self._lemma(0, [*squares, (product, -2)])
        if less is None:
            return None
        more = self._lemma(0, [*squares, (product, 2)])
        return None if more is None else less or more

    def _envelope(self, product: Term, u: Term, v: Term) -> Iterable[tuple[int, list[tuple[Term, int]]]]:
        u_lo, u_hi = self.component.bounds(u)
        v_lo, v_hi = self.component.bounds(v)
        if u is v:
            k = int(self._number(u) // 1)
            yield k * (k + 1), [(product, 1), (u, -2 * k - 1)]
        if u_lo is not None and v_lo is not None:
            yield u_lo * v_lo, [(product, 1), (u, -v_lo), (v, -u_lo)]
        if u_hi is not None and v_hi is not None:
            yield u_hi * v_hi, [(product, 1), (u, -v_hi), (v, -u_hi)]
        if u_lo is not None and v_hi is not None:
            yield -u_lo * v_hi, [(product, -1), (u, v_hi), (v, u_lo)]
        if u_hi is not None and v_lo is not None:
            yield -u_hi * v_lo, [(product, -1), (u, v_lo), (v, u_hi)]

    def _multiply_rows(self, attempt: int) -> bool | None:
        """Multiplies constraints with bounds of atoms where the result names at most ``attempt`` new monomials."""
        atoms: dict[Term, None] = {}
        for product in self.products:
            atoms.update(dict.fromkeys(arithmetic.factors(product)))
        multipliers: list[tuple[int, tuple[tuple[Term, int], ...]]] = []
        for atom in atoms:
            lo, hi = self.component.bounds(atom)
            if lo is not None:
                multipliers.append((-lo, ((atom, 1),)))
            elif hi is not None:
                multipliers.append((hi, ((atom, -1),)))
        added = False
        for product in list(self.products):  # u < v gives u*rest < v*rest for each product v*rest
            for position, atom in enumerate(product.args):
                rest = arithmetic.monomial(product.args[:position] + product.args[position + 1 :])
                least, _ = self.component.bounds(rest)
                if least is None or least < 0 or len(product.args) < 3:
                    continue
                for constant, items, equal in list(self.inputs):
                    if equal or len(items) > 3 or all(m is not atom for m, _ in items):
                        continue
                    found = self._add_multiple(constant, items, 0, ((rest, 1),), False, attempt)
                    if found is None:
                        return None
                    added = added or found
        if added:
            return True
        work = 0
        for constant, items, equal in reversed(list(self.inputs)):  # what a branch has added comes first
            if len(items) > 6:
                continue
            for number, factor in multipliers:
                work += 1
                if work > 60:
                    return added
                found = self._add_multiple(constant, items, number, factor, equal, attempt)
                if found is None:
                    return None
                added = added or found
        return added

    def _add_multiple(
        self,
        constant: int,
        items: tuple[tuple[Term, int], ...],
        number: int,
        factor: tuple[tuple[Term, int], ...],
        equal: bool,
        most: int,
    ) -> bool | None:
        """Adds ``(constant + items) * (number + factor) >= 0`` where that names at most ``most`` new monomials."""
        index = self.tableau.index
        merged = _multiplied(constant, items, number, factor)
        unknown = [m for m in merged if m is not arithmetic.ONE and m not in index]
        if len(unknown) > most:
            return False
        for m in unknown:
            self.ensure(m)
        base = merged.pop(arithmetic.ONE, 0)
        added = False
        for sign in (1, -1) if equal else (1,):
            found = self._lemma(sign * base, [(m, sign * c) for m, c in merged.items()])
            if found is None:
                return None
            added = added or found
        return added


def _multiplied(
    constant: int, items: tuple[tuple[Term, int], ...], number: int, factor: tuple[tuple[Term, int], ...]
) -> dict[Term, int]:
    """``(constant + items) * (number + factor)`` as monomials, ``ONE`` for the constant part."""
    merged: dict[Term, int] = {arithmetic.ONE: constant * number}
    for m, c in items:
        merged[m] = merged.get(m, 0) + c * number
        for n, d in factor:
            both = arithmetic.monomial(arithmetic.factors(m) + arithmetic.factors(n))
            merged[both] = merged.get(both, 0) + c * d
    for n, d in factor:
        merged[n] = merged.get(n, 0) + constant * d
    return {m: c for m, c in merged.items() if c}


def refutes(component: Component, formula: Term) -> bool:
    """Whether the formula certainly has no solution in the component."""
    if formula.depth > DEEP:
        return False
    try:
        node = _Node(component, _Budget())
        if not node.add(formula):
            return True
        if (
            component.rows or component.residue or len(component.ranges) > len(component.symbols)
        ) and not node.take_facts():
            return True
        return node.refuted()
    except (OutOfBudget, _TooLarge, OverflowError, ZeroDivisionError):
        return False


def refutes_all(component: Component, formula: Term) -> bool:
    """As :func:`refutes`, with all that the component knows about the symbols of the formula taken in."""
    if formula.depth > DEEP:
        return False
    try:
        node = _Node(component, _Budget())
        return not node.add(formula) or not node.take_facts(formula.symbols) or node.refuted()
    except (OutOfBudget, _TooLarge, OverflowError, ZeroDivisionError):
        return False


__all__ = ["NODES", "PIVOTS", "refutes", "refutes_all"]
