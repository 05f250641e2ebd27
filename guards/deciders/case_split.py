"""Refutation by cases: a formula has no solution when each case of something that it depends on has
none.

The formula is assumed, so that all that follows from it is seen; then the search splits on an
``or``, on which operand a ``min`` or ``max`` is, on the condition of an ``ite``, on the few values
of a symbol, on its sign, or on its remainder, and in each case lets the component and linear
elimination conclude. The limits are counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import gcd, lcm, prod

from guards.deciders import linear_refutation
from guards.facts.component import Component
from guards.facts.propagate import assume
from guards.facts.rewriting import rewritten
from guards.terms import arithmetic, boolean, division
from guards.terms.case_distinction import cases
from guards.terms.term import DEEP, Op, Term, among, postorder

NODES = 48  # cases of one question
_DEPTH = 5
_VALUES = 8  # a symbol with at most so many values is split into them
_PERIOD = 16  # remainders are split up to this modulus
_LARGEST = 40  # atoms of a formula worth looking at


class _Spent(Exception):
    pass


class _Search:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = NODES

    def refuted(self, component: Component, formula: Term, depth: int) -> bool:
        """Return whether the search proves that the formula has no solution in the component."""
        if formula.op is Op.OR:
            return all(self.refuted(component, part, depth) for part in formula.args)
        self.left -= 1
        if self.left < 0:
            raise _Spent
        inner = assume(component, (formula,))
        if inner.contradictory:
            return True
        try:
            live = rewritten(inner, inner.canonical(formula))
        except ZeroDivisionError:
            return False
        if (
            inner.look(live) is False
            or unsolvable(live)
            or linear_refutation.refutes_all(inner, live)
        ):
            return True
        if depth <= 0:
            return False
        choices = _choices(inner, live)
        if choices is None:
            return False
        return all(self.refuted(inner, boolean.and_(live, choice), depth - 1) for choice in choices)


_MODULI = (3, 4, 5, 7, 8, 9, 16)
_RESIDUES = 600  # combinations of remainders tried for one modulus


def unsolvable(condition: Term) -> bool:
    """Return whether an equation of polynomials has no solution modulo some small number, and so
    none at all.

    >>> from guards import parse
    >>> unsolvable(parse("x*x + y*y == 4*z + 3")), unsolvable(parse("x*x + y*y == 4*z + 2"))
    (True, False)
    """
    if condition.op is not Op.EQ:
        return False
    constant, items = arithmetic.split(condition.args[0])
    if all(m.op is not Op.MUL for m, _ in items) or len(items) > 8:
        return False
    for modulus in _MODULI:
        left = [(arithmetic.factors(m), c % modulus) for m, c in items if c % modulus]
        once = [atoms[0] for atoms, c in left if len(atoms) == 1 and gcd(c, modulus) == 1]
        if any(sum(among(atom, atoms) for atoms, _ in left) == 1 for atom in once):
            continue  # that atom alone can reach every remainder
        names = sorted({atom for atoms, _ in left for atom in atoms}, key=lambda atom: atom.order)
        if modulus ** len(names) > _RESIDUES:
            continue
        place = {atom: position for position, atom in enumerate(names)}
        parts = [([place[atom] for atom in atoms], c) for atoms, c in left]
        if not any(
            (constant + sum(c * prod([values[p] for p in places]) for places, c in parts)) % modulus
            == 0
            for values in product(range(modulus), repeat=len(names))
        ):
            return True
    return False


def _choices(component: Component, formula: Term) -> list[Term] | None:
    """Conditions of which one must hold, to look at one after the other; None when nothing suggests
    itself.
    """
    for condition in component.residue:
        if condition.op is Op.OR and not condition.symbols.isdisjoint(formula.symbols):
            return list(condition.args)
    atoms = list(_atoms(formula))
    if len(atoms) > _LARGEST:
        return None
    for atom in atoms:
        split = cases(atom)
        if split:
            return [boolean.and_(condition, boolean.eq(atom, taken)) for condition, taken in split]
    symbols = sorted(formula.symbols, key=lambda s: s.order)
    for symbol in symbols:
        lo, hi = component.bounds(symbol)
        if lo is not None and hi is not None and hi - lo < _VALUES:
            return [boolean.eq(symbol, value) for value in range(lo, hi + 1)]
    for symbol in symbols:
        period = _period(symbol, atoms)
        if 1 < period <= _PERIOD:
            return [boolean.eq(division.mod(symbol, period), rest) for rest in range(period)]
    for atom in atoms:
        if atom.op is Op.MUL:
            for part in atom.args:
                lo, hi = component.bounds(part)
                if (lo is None or lo < 0) and (hi is None or hi > 0):
                    return [boolean.gt(part, 0), boolean.eq(part, 0), boolean.lt(part, 0)]
    for condition in (formula, *component.residue):
        if condition.op is Op.NE and not condition.symbols.isdisjoint(formula.symbols):
            return [boolean.gt(condition.args[0], 0), boolean.lt(condition.args[0], 0)]
    return None


def _atoms(formula: Term) -> Iterable[Term]:
    return (
        part for part in postorder(formula) if Op.MUL <= part.op <= Op.ITE and part.op is not Op.ADD
    )


def _period(symbol: Term, atoms: list[Term]) -> int:
    """A number such that only the remainder of the symbol matters to the quotients and remainders
    by constants.
    """
    period = 1
    for atom in atoms:
        if (
            atom.op in (Op.FLOORDIV, Op.MOD)
            and atom.args[1].op is Op.CONST
            and symbol in atom.args[0].symbols
        ):
            period = lcm(period, atom.args[1].args[0])
            if period > _PERIOD:
                return 0
    return period


def refutes(component: Component, formula: Term) -> bool:
    """Return whether splitting into cases proves that the formula has no solution in the component.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import ne
    >>> from guards.facts.facts import Facts
    >>> x = symbol("x")
    >>> refutes(Facts().component(x), ne((x * x + x) % 2, 0))
    True
    """
    if formula.depth > DEEP:
        return False
    try:
        return _Search().refuted(component, formula, _DEPTH)
    except _Spent:
        return False
