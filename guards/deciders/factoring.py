"""SymPy: bounded algebra with it, and its expressions as terms; the only module that imports it.

SymPy factors the polynomials that the other rungs leave open; the sign of a product follows from
the ranges of its factors.  It is imported when first needed, and only terms within small limits are
handed to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from guards.deciders.sympy_translation import FromSympy, ToSympy
from guards.domains import interval_arithmetic
from guards.domains.interval_arithmetic import Pair
from guards.errors import ArgumentError
from guards.facts.component import Component
from guards.terms import arithmetic
from guards.terms.term import Op, Term

MOST_MONOMIALS = 24
MOST_DEGREE = 8
MOST_SYMBOLS = 6


def _eligible(term: Term) -> bool:
    """Return whether factoring may help and stays cheap: a small polynomial that is not linear."""
    _, items = arithmetic.split(term)
    if len(items) + (term.op is Op.ADD and term.args[0] != 0) < 2 or len(items) > MOST_MONOMIALS:
        return False
    degrees = [len(arithmetic.factors(m)) for m, _ in items]
    return (
        1 < max(degrees) <= MOST_DEGREE
        and len({a for m, _ in items for a in arithmetic.factors(m)}) <= MOST_SYMBOLS
    )


@lru_cache(maxsize=512)
def factors(term: Term) -> tuple[int, tuple[tuple[Term, int], ...]] | None:
    """``(c, ((f, k), ...))`` with ``term == c * f**k * ...``; None when it is not worth trying.

    >>> from guards.terms.arithmetic import symbol
    >>> x, y = symbol("x"), symbol("y")
    >>> factors(x * x - 2 * x * y + y * y)
    (1, ((<x - y>, 2),))
    """
    if not _eligible(term):
        return None
    import sympy

    constant, items = arithmetic.split(term)
    atoms = sorted({a for m, _ in items for a in arithmetic.factors(m)}, key=lambda a: a.order)
    position = {atom: index for index, atom in enumerate(atoms)}
    data: dict[tuple[int, ...], int] = {(0,) * len(atoms): constant} if constant else {}
    for m, c in items:
        exponents = [0] * len(atoms)
        for atom in arithmetic.factors(m):
            exponents[position[atom]] += 1
        data[tuple(exponents)] = c
    generators = sympy.symbols(f"v0:{len(atoms)}")
    unit, parts = sympy.Poly.from_dict(data, *generators, domain="ZZ").factor_list()
    return int(unit), tuple((_from_poly(part, atoms), int(count)) for part, count in parts)


def _from_poly(poly: Any, atoms: list[Term]) -> Term:
    total = arithmetic.ZERO
    for exponents, coefficient in poly.terms():
        parts = [
            atom for atom, exponent in zip(atoms, exponents, strict=True) for _ in range(exponent)
        ]
        total = arithmetic.add(
            total, arithmetic.scale(arithmetic.monomial(parts), int(coefficient))
        )
    return total


def factored_bounds(component: Component, term: Term) -> Pair:
    """Return a range of the term from the ranges of its factors, also after a constant is split
    off.
    """
    constant, _ = arithmetic.split(term)
    pair = interval_arithmetic.EVERYTHING
    # a question about p >= 0 arrives as one about 1 + p <= 0
    for apart in dict.fromkeys((0, 1, -1, constant)):
        rest = _by_factors(component, arithmetic.sub(term, apart))
        pair = interval_arithmetic.meet(pair, interval_arithmetic.add(rest, (apart, apart)))
    return pair


def _by_factors(component: Component, term: Term) -> Pair:
    found = factors(term)
    if found is None:
        return interval_arithmetic.EVERYTHING
    unit, parts = found
    pair: Pair = (unit, unit)
    for part, count in parts:
        pair = interval_arithmetic.product(
            pair, interval_arithmetic.power(component.bounds(part), count)
        )
    return pair


def refutes(component: Component, formula: Term) -> bool:
    """Return whether the signs of factors prove that the formula has no solution."""
    op = formula.op
    if op is Op.AND:
        return any(refutes(component, part) for part in formula.args)
    if op is Op.OR:
        return all(refutes(component, part) for part in formula.args)
    if op is Op.LE or op is Op.EQ:
        lo, hi = factored_bounds(component, formula.args[0])
        return (lo is not None and lo > 0) or (op is Op.EQ and hi is not None and hi < 0)
    return op is Op.FALSE


def to_sympy(term: Term, symbols: Mapping[str, Any] | None = None) -> Any:
    """A term as a SymPy expression: ``a // b`` is ``floor(a/b)``, ``a % b`` is ``Mod(a, b)``.

    ``symbols`` are SymPy's symbols to use, by name; others become ``Symbol(name, integer=True)``.

    >>> from guards import from_sympy, parse, to_sympy
    >>> to_sympy(parse("s0 // 8 + 1 <= max(s1, 2)"))
    floor(s0/8) - Max(2, s1) + 1 <= 0
    >>> from_sympy(to_sympy(parse("s0 // 8 + 1"))) is parse("s0 // 8 + 1")
    True
    """
    if type(term) is not Term:
        raise ArgumentError(
            f"to_sympy takes a term, not {type(term).__name__}: read a text by guards.parse"
        )
    import sympy

    return ToSympy(sympy, symbols or {}).made(term)


def from_sympy(expression: Any) -> Term:
    """A SymPy expression as a term: every symbol is taken for an integer; functions of torch's are
    understood too.

    Raises:
        ParseError: it is no integer and no condition, or holds a function that has no counterpart
            among terms.

    >>> import sympy
    >>> from guards import from_sympy
    >>> s, t = sympy.symbols("s t", integer=True)
    >>> from_sympy(sympy.floor((s + 7) / 8) * 8 >= s), from_sympy(sympy.Mod(s, t) + s * t / t)
    (<s <= 8*((s + 7)//8)>, <s + s % t>)
    """
    return FromSympy().made(expression)
