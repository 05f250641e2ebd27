"""Bounded algebra with SymPy: the only module that imports it.

SymPy factors the polynomials that the other rungs leave open; the sign of a product follows from the ranges of its
factors.  It is imported when first needed, and only terms within small limits are handed to it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from guards.domains import interval_arithmetic
from guards.domains.interval_arithmetic import Pair
from guards.facts.component import Component
from guards.terms import arithmetic, fold
from guards.terms.term import Op, Term

MOST_MONOMIALS = 24
MOST_DEGREE = 8
MOST_SYMBOLS = 6


def _eligible(term: Term) -> bool:
    """Whether factoring may help and stays cheap: a small polynomial that is not linear."""
    _, items = arithmetic.split(term)
    if len(items) + (term.op is Op.ADD and term.args[0] != 0) < 2 or len(items) > MOST_MONOMIALS:
        return False
    degrees = [len(arithmetic.factors(m)) for m, _ in items]
    return 1 < max(degrees) <= MOST_DEGREE and len({a for m, _ in items for a in arithmetic.factors(m)}) <= MOST_SYMBOLS


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
        parts = [atom for atom, exponent in zip(atoms, exponents, strict=True) for _ in range(exponent)]
        total = arithmetic.add(total, arithmetic.scale(arithmetic.monomial(parts), int(coefficient)))
    return total


def factored_bounds(component: Component, term: Term) -> Pair:
    """A range of the term, through its factors, and those of the term with a constant taken apart."""
    constant, _ = arithmetic.split(term)
    pair = interval_arithmetic.EVERYTHING
    for apart in dict.fromkeys((0, 1, -1, constant)):  # a question about p >= 0 arrives as one about 1 + p <= 0
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
        pair = interval_arithmetic.product(pair, interval_arithmetic.power(component.bounds(part), count))
    return pair


def refutes(component: Component, formula: Term) -> bool:
    """Whether the formula has no solution because of the signs of factors."""
    op = formula.op
    if op is Op.AND:
        return any(refutes(component, part) for part in formula.args)
    if op is Op.OR:
        return all(refutes(component, part) for part in formula.args)
    if op is Op.LE or op is Op.EQ:
        lo, hi = factored_bounds(component, formula.args[0])
        return (lo is not None and lo > 0) or (op is Op.EQ and hi is not None and hi < 0)
    return op is Op.FALSE


# -- showing ----------------------------------------------------------------------------------------------------------


def _latex_name(name: str) -> str:
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    head = head.replace("_", r"\_")
    if not tail:
        return head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return f"{head}_{{{tail}}}" if len(head) == 1 else rf"\mathrm{{{head}}}_{{{tail}}}"


def _latex_node(term: Term, operands: list[tuple[str, int]]) -> tuple[str, int]:
    # strengths: 0 connective, 1 relation, 2 sum, 3 product, 4 atom
    op = term.op

    def wrapped(item: tuple[str, int], strength: int) -> str:
        return item[0] if item[1] >= strength else rf"\left({item[0]}\right)"

    if op is Op.SYMBOL:
        return _latex_name(term.args[0]), 4
    if op is Op.CONST:
        return str(term.args[0]), 4 if term.args[0] >= 0 else 2
    if op is Op.ADD:
        constant, items = term.args
        return _latex_sum(constant, [(c, v) for (_, c), v in zip(items, operands, strict=True)])
    if op is Op.MUL:
        return r" \cdot ".join(wrapped(item, 4) for item in operands), 3
    if op is Op.FLOORDIV:
        return rf"\left\lfloor \frac{{{operands[0][0]}}}{{{operands[1][0]}}} \right\rfloor", 4
    if op is Op.MOD:
        return rf"{wrapped(operands[0], 4)} \bmod {wrapped(operands[1], 4)}", 3
    if op is Op.MIN or op is Op.MAX:
        word = r"\min" if op is Op.MIN else r"\max"
        return rf"{word}\left({', '.join(item[0] for item in operands)}\right)", 4
    if op is Op.ITE:
        condition, then, otherwise = (item[0] for item in operands)
        cases = rf"{then} & \text{{if }} {condition} \\ {otherwise} & \text{{otherwise}}"
        return rf"\begin{{cases}} {cases} \end{{cases}}", 4
    if op is Op.AND or op is Op.OR:
        return (r" \land " if op is Op.AND else r" \lor ").join(wrapped(item, 1) for item in operands), 0
    return (r"\mathrm{true}" if op is Op.TRUE else r"\mathrm{false}"), 4


def _latex_sum(constant: int, parts: list[tuple[int, tuple[str, int]]]) -> tuple[str, int]:
    pieces: list[str] = []
    for c, (shown, strength) in [part for part in parts if part[0] > 0] + [part for part in parts if part[0] < 0]:
        body = shown if strength > 2 else rf"\left({shown}\right)"
        body = body if abs(c) == 1 else rf"{abs(c)} {body}"
        pieces.append(body if not pieces and c > 0 else f"-{body}" if not pieces else f"{'+' if c > 0 else '-'} {body}")
    if constant or not pieces:
        pieces.append(str(constant) if not pieces else f"{'+' if constant > 0 else '-'} {abs(constant)}")
    return " ".join(pieces), 2


def latex(term: Term) -> str:
    r"""``term`` as LaTeX.

    >>> from guards.text.reader import parse
    >>> print(latex(parse("s0 // 8 + 1 <= min(s1, 4)")))
    \left\lfloor \frac{s_{0}}{8} \right\rfloor < \min\left(4, s_{1}\right)
    """
    relations: dict[Term, list[tuple[str, int]]] = {}

    def node(part: Term, operands: list[tuple[str, int]]) -> tuple[str, int]:
        if part.op is Op.ADD:
            relations[part] = operands
        if part.op in (Op.EQ, Op.NE, Op.LE):
            parts = relations.get(part.args[0], operands)
            return _latex_relation(part, parts), 1
        return _latex_node(part, operands)

    return fold.fold(term, node)[0]


def _latex_relation(term: Term, operands: list[tuple[str, int]]) -> str:
    signs = {"==": "=", "!=": r"\neq", "<=": r"\leq", ">=": r"\geq", "<": "<", ">": ">"}
    return fold.balanced(
        term, operands, lambda c, items: _latex_sum(c, items)[0], lambda a, s, b: f"{a} {signs[s]} {b}"
    )
