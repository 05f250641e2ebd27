"""Lemmas about products: linear inequalities that a product obeys, added where the present point
violates them.

They come from multiplying bounds with bounds (McCormick's envelope, below) and, where that adds
nothing, whole constraints with bounds of atoms, as the reformulation-linearization technique
does.

*Source*: H. D. Sherali and C. H. Tuncbilek, "A global optimization algorithm for polynomial
programming problems using a reformulation-linearization technique", Journal of Global Optimization
2, 1992, 101-112.
"""

from __future__ import annotations

from collections.abc import Iterable

from guards.deciders.linear import OutOfBudget
from guards.deciders.linear_relaxation import Relaxation
from guards.domains.interval_arithmetic import Pair
from guards.terms import arithmetic
from guards.terms.term import Monomials, Op, Term

_ROUNDS = 4  # of lemmas, at each node of the search
_SAME = 1e-9  # how near two values of the present point are taken for the same


def refuted_by_products(node: Relaxation) -> bool:
    """Return whether lemmas about its products make a feasible relaxation infeasible; adds the
    lemmas to it.

    Raises:
        OutOfBudget: before that was found out.
    """
    for attempt in range(_ROUNDS):
        if _products_hold(node):
            return False
        added = _multiply_bounds(node)
        if added is False:
            added = _multiply_rows(node, attempt)
        if added is None:
            return True
        if added:
            node.point = {}
            if not node.tableau.feasible():
                return True
        elif attempt >= 2:  # before that the next attempt may name one more monomial
            return False
    return False


def _products_hold(node: Relaxation) -> bool:
    """Return whether each product is the product of its factors at the present point, which no
    lemma excludes then.
    """
    index = node.tableau.index
    for product in node.products:
        value = 1.0
        for atom in product.args:
            if atom not in index:
                node.ensure(atom)
            value *= node.number(atom)
        if abs(value - node.number(product)) > _SAME:
            return False
    return True


def _lemma(node: Relaxation, constant: int, items: Iterable[tuple[Term, int]]) -> bool | None:
    """Add ``constant + items >= 0`` if the present point violates it; return None when that is
    impossible.
    """
    node.budget.lemmas -= 1
    if node.budget.lemmas < 0:
        raise OutOfBudget
    merged: dict[Term, int] = {}
    for m, c in items:
        merged[m] = merged.get(m, 0) + c
    term = arithmetic.linear(constant, merged)
    if term.op is Op.CONST:
        return None if term.value < 0 else False
    if node.at(term) > -_SAME:
        return False
    constant, parts = arithmetic.split(term)
    return True if node.restrict(constant, parts, 0, None) else None


def _multiply_bounds(node: Relaxation) -> bool | None:
    """Add products of the bounds of factors that the present point violates."""
    added = False
    for product in list(node.products):
        atoms = arithmetic.factors(product)
        if len(atoms) == 2 and atoms[0] is not atoms[1]:
            found = _multiply_squares(node, product, *atoms)
            if found is None:
                return None
            added = added or found
        seen: set[Term] = set()
        for position, atom in enumerate(atoms):
            if atom in seen:
                continue
            seen.add(atom)
            rest = arithmetic.monomial(atoms[:position] + atoms[position + 1 :])
            node.ensure(atom)
            node.ensure(rest)
            if abs(node.number(product) - node.number(atom) * node.number(rest)) < _SAME:
                continue
            lemmas = [chord(product, atom, int(node.number(atom) // 1))] if atom is rest else []
            lemmas += envelope(
                product, atom, rest, node.component.bounds(atom), node.component.bounds(rest)
            )
            for constant, items in lemmas:
                found = _lemma(node, constant, items)
                if found is None:
                    return None
                added = added or found
    return added


def _multiply_squares(node: Relaxation, product: Term, u: Term, v: Term) -> bool | None:
    """``(u - v)**2 >= 0`` and ``(u + v)**2 >= 0``, where both squares are at hand."""
    squares = [(arithmetic.mul(u, u), 1), (arithmetic.mul(v, v), 1)]
    if any(square not in node.tableau.index for square, _ in squares):
        return False
    less = _lemma(node, 0, [*squares, (product, -2)])
    if less is None:
        return None
    more = _lemma(node, 0, [*squares, (product, 2)])
    return None if more is None else less or more


def _multiply_rows(node: Relaxation, attempt: int) -> bool | None:
    """Multiply constraints with bounds of atoms where the result names at most ``attempt`` new
    monomials.
    """
    atoms: dict[Term, None] = {}
    for product in node.products:
        atoms.update(dict.fromkeys(arithmetic.factors(product)))
    multipliers: list[tuple[int, Monomials]] = []
    for atom in atoms:
        lo, hi = node.component.bounds(atom)
        if lo is not None:
            multipliers.append((-lo, ((atom, 1),)))
        elif hi is not None:
            multipliers.append((hi, ((atom, -1),)))
    added = False
    for product in list(node.products):  # u < v gives u*rest < v*rest for each product v*rest
        for position, atom in enumerate(product.args):
            rest = arithmetic.monomial(product.args[:position] + product.args[position + 1 :])
            least, _ = node.component.bounds(rest)
            if least is None or least < 0 or len(product.args) < 3:
                continue
            for constant, items, equal in list(node.inputs):
                if equal or len(items) > 3 or all(m is not atom for m, _ in items):
                    continue
                found = _add_multiple(node, constant, items, 0, ((rest, 1),), False, attempt)
                if found is None:
                    return None
                added = added or found
    if added:
        return True
    work = 0
    # what a branch has added comes first
    for constant, items, equal in reversed(list(node.inputs)):
        if len(items) > 6:
            continue
        for number, factor in multipliers:
            work += 1
            if work > 60:
                return added
            found = _add_multiple(node, constant, items, number, factor, equal, attempt)
            if found is None:
                return None
            added = added or found
    return added


def _add_multiple(
    node: Relaxation,
    constant: int,
    items: Monomials,
    number: int,
    factor: Monomials,
    equal: bool,
    most: int,
) -> bool | None:
    """Add ``(constant + items) * (number + factor) >= 0`` where that names at most ``most`` new
    monomials.
    """
    index = node.tableau.index
    merged = _multiplied(constant, items, number, factor)
    unknown = [m for m in merged if m is not arithmetic.ONE and m not in index]
    if len(unknown) > most:
        return False
    for m in unknown:
        node.ensure(m)
    base = merged.pop(arithmetic.ONE, 0)
    added = False
    for sign in (1, -1) if equal else (1,):
        found = _lemma(node, sign * base, [(m, sign * c) for m, c in merged.items()])
        if found is None:
            return None
        added = added or found
    return added


def _multiplied(constant: int, items: Monomials, number: int, factor: Monomials) -> dict[Term, int]:
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


# -- McCormick's envelope --------------------------------------------------------------------------
#
# Each inequality says that the product of two distances from a bound is not negative:
# ``(u - u_lo) * (v - v_lo) >= 0``, multiplied out, is linear in ``u``, ``v`` and ``u * v``. Over
# the reals these four are the convex hull of the product on a box.
#
# Source: G. P. McCormick, "Computability of global solutions to factorable nonconvex programs: Part
# I - convex underestimating problems", Mathematical Programming 10, 1976, 147-175.

Inequality = tuple[int, list[tuple[Term, int]]]  # (constant, items): constant + items >= 0


def envelope(product: Term, u: Term, v: Term, u_pair: Pair, v_pair: Pair) -> list[Inequality]:
    """Return the McCormick inequalities of ``product = u * v`` for the ranges of its factors.

    >>> from guards.terms.arithmetic import symbol
    >>> u, v = symbol("u"), symbol("v")
    >>> envelope(u * v, u, v, (2, None), (3, 5))  # (u - 2)*(v - 3) >= 0 and (u - 2)*(5 - v) >= 0
    [(6, [(<u*v>, 1), (<u>, -3), (<v>, -2)]), (-10, [(<u*v>, -1), (<u>, 5), (<v>, 2)])]
    """
    u_lo, u_hi = u_pair
    v_lo, v_hi = v_pair
    found: list[Inequality] = []
    if u_lo is not None and v_lo is not None:
        found.append((u_lo * v_lo, [(product, 1), (u, -v_lo), (v, -u_lo)]))
    if u_hi is not None and v_hi is not None:
        found.append((u_hi * v_hi, [(product, 1), (u, -v_hi), (v, -u_hi)]))
    if u_lo is not None and v_hi is not None:
        found.append((-u_lo * v_hi, [(product, -1), (u, v_hi), (v, u_lo)]))
    if u_hi is not None and v_lo is not None:
        found.append((-u_hi * v_lo, [(product, -1), (u, v_lo), (v, u_hi)]))
    return found


def chord(square: Term, u: Term, below: int) -> Inequality:
    """Return ``(u - below) * (u - below - 1) >= 0``, which ``square = u * u`` obeys for every
    integer ``u``.

    No integer lies between ``below`` and ``below + 1``, so this cuts off more than a tangent does.

    >>> from guards.terms.arithmetic import symbol
    >>> u = symbol("u")
    >>> chord(u * u, u, 3)
    (12, [(<u*u>, 1), (<u>, -7)])
    """
    return below * (below + 1), [(square, 1), (u, -2 * below - 1)]
