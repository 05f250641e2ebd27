"""Integer terms: constants, symbols, sums and products, in the canonical form of a sum of
monomials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from math import gcd
from typing import Any

from guards.errors import ArgumentError, ParseError
from guards.terms.term import IntLike, Monomials, Op, Term, by_order, drop, intern

# The members used on hot paths, looked up once.
_ADD, _CONST, _MUL, _TRUE = Op.ADD, Op.CONST, Op.MUL, Op.TRUE


_small = {value: intern(Op.CONST, (value,)) for value in range(-64, 1025)}


ZERO, ONE = _small[0], _small[1]


def const(value: int) -> Term:
    """The constant ``value``."""
    found = _small.get(value)
    return intern(Op.CONST, (int(value),)) if found is None else found


_KEY = r"""(?:-?\d+|'[^'\\]*'|"[^"\\]*")"""
_PLACE = re.compile(
    rf"[^\W\d]\w*(?:\.[^\W\d]\w*|\[{_KEY}\])*(?:\.(?:size|stride)\(\d+\)|\.storage_offset\(\))?"
)


def symbol(name: Any) -> Term:
    """The integer symbol ``name``: the same object for the same name.

    A name is an identifier, or a place that a size is read from, as guards print it: ``x.size(0)``,
    ``batch['ids'].k``.

    Raises:
        ParseError: ``name`` is neither.
        ArgumentError: ``name`` is no text.

    >>> from guards.terms.arithmetic import symbol
    >>> s0 = symbol("s0")
    >>> symbol("s0") is s0, (s0 + 7) // 8 * 8 is s0, (8 * s0 + 7) // 8 is s0
    (True, False, True)
    """
    if not isinstance(name, str):
        raise ArgumentError(f"a symbol's name is a text, not {type(name).__name__}")
    if not name.isidentifier() and _PLACE.fullmatch(name) is None:
        raise ParseError(
            f"a symbol's name must be an identifier or a place like x.size(0), not {name!r}"
        )
    return intern(Op.SYMBOL, (name,))


def integer(value: IntLike) -> Term:
    """``value`` as an integer term."""
    if type(value) is Term:
        if value.op >= _TRUE:
            raise ArgumentError(f"an integer term is needed here, not the condition {value}")
        return value
    if type(value) is int:
        return const(value)
    if isinstance(value, int):  # bool and int subclasses
        return const(int(value))
    raise ArgumentError(f"an integer term is needed here, not {type(value).__name__}")


def split(term: Term) -> tuple[int, Monomials]:
    """A term as ``(constant, ((monomial, coefficient), ...))``."""
    op = term.op
    if op is _ADD:
        return term.args
    if op is _CONST:
        return term.args[0], ()
    return 0, ((term, 1),)


def linear(constant: int, monomials: dict[Term, int]) -> Term:
    """The sum ``constant + sum(coefficient * monomial)``; zero coefficients are dropped."""
    count = len(monomials)
    if count > 1:
        items = tuple([(m, c) for m in sorted(monomials, key=by_order) if (c := monomials[m])])
        if len(items) > 1:
            return intern(_ADD, (constant, items))
    else:
        items = tuple([(m, c) for m, c in monomials.items() if c])
    if not items:
        return const(constant)
    if constant == 0 and items[0][1] == 1:
        return items[0][0]
    return intern(_ADD, (constant, items))


def add(a: IntLike, b: IntLike) -> Term:
    """``a + b``"""
    return plus(integer(a), integer(b), 1)


def sub(a: IntLike, b: IntLike) -> Term:
    """``a - b``"""
    return plus(integer(a), integer(b), -1)


def plus(a: Term, b: Term, factor: int) -> Term:
    """``a + factor * b`` for a factor 1 or -1."""
    if a is b and factor < 0:
        return ZERO
    op = a.op
    constant, items = a.args if op is _ADD else (a.args[0], ()) if op is _CONST else (0, ((a, 1),))
    op = b.op
    if op is _CONST:
        shift = b.args[0]
        if not shift:
            return a
        if not items:
            return const(constant + factor * shift)
        constant += factor * shift
        return (
            items[0][0]
            if not constant and len(items) == 1 and items[0][1] == 1
            else intern(_ADD, (constant, items))
        )
    merged = dict(items)
    if op is _ADD:
        shift, others = b.args
        constant += factor * shift
        for m, c in others:
            merged[m] = merged.get(m, 0) + factor * c
    else:
        merged[b] = merged.get(b, 0) + factor
    return linear(constant, merged)


def total(terms: Iterable[IntLike]) -> Term:
    """The sum of the terms."""
    constant = 0
    merged: dict[Term, int] = {}
    for item in terms:
        shift, items = split(integer(item))
        constant += shift
        for m, c in items:
            merged[m] = merged.get(m, 0) + c
    return linear(constant, merged)


def scale(a: Term, factor: int) -> Term:
    """``a * factor`` for an integer factor."""
    if factor == 1:
        return a
    constant, items = split(a)
    if not factor or not items:
        return const(constant * factor)
    return (
        intern(_ADD, (constant * factor, tuple([(m, c * factor) for m, c in items])))
        if not _plain(constant, items, factor)
        else items[0][0]
    )


def _plain(constant: int, items: Monomials, factor: int) -> bool:
    return constant == 0 and len(items) == 1 and items[0][1] * factor == 1


def factors(monomial: Term) -> tuple[Term, ...]:
    """The atoms of a monomial, sorted, repeated as often as they occur."""
    return monomial.args if monomial.op is Op.MUL else (monomial,)


def _times(m: Term, n: Term) -> Term:
    return intern(_MUL, tuple(sorted(factors(m) + factors(n), key=by_order)))


def monomial(atoms: Iterable[Term]) -> Term:
    """The product of atoms (1 for none)."""
    ordered = tuple(sorted(atoms, key=by_order))
    return ONE if not ordered else ordered[0] if len(ordered) == 1 else intern(Op.MUL, ordered)


def mul(a: IntLike, b: IntLike) -> Term:
    """``a * b``, multiplied out."""
    a, b = integer(a), integer(b)
    if a.op is Op.CONST:
        return scale(b, a.args[0])
    if b.op is Op.CONST:
        return scale(a, b.args[0])
    if a.op is not Op.ADD and b.op is not Op.ADD:
        return _times(a, b)
    constant_a, items_a = split(a)
    constant_b, items_b = split(b)
    merged: dict[Term, int] = {}
    for m, c in items_a:
        if constant_b:
            merged[m] = merged.get(m, 0) + c * constant_b
        for n, d in items_b:
            product = _times(m, n)
            merged[product] = merged.get(product, 0) + c * d
    if constant_a:
        for n, d in items_b:
            merged[n] = merged.get(n, 0) + d * constant_a
    return linear(constant_a * constant_b, merged)


def prod(terms: Iterable[IntLike]) -> Term:
    """The product of the terms."""
    return reduce(mul, terms, ONE)


def content(term: Term) -> int:
    """The greatest common divisor of all coefficients, the constant included (0 for the term 0)."""
    constant, items = split(term)
    return gcd(constant, *[c for _, c in items])


def common_atoms(term: Term) -> list[Term]:
    """Atoms that divide every monomial of the term (none when it has a constant part)."""
    constant, items = split(term)
    if constant or not items:
        return []
    common = list(factors(items[0][0]))
    for m, _ in items[1:]:
        rest = list(factors(m))
        common = [atom for atom in common if drop(rest, atom)]
        if not common:
            break
    return common


def without(term: Term, atoms: list[Term], number: int) -> Term:
    """``term`` divided exactly by the product of ``atoms`` and ``number``, both known to divide
    it.
    """
    constant, items = split(term)
    merged: dict[Term, int] = {}
    constant //= number
    for m, c in items:
        rest = list(factors(m))
        for atom in atoms:
            drop(rest, atom)
        if rest:
            merged[monomial(rest)] = c // number
        else:
            constant += c // number
    return linear(constant, merged)


def cancel(a: Term, b: Term) -> tuple[Term, Term, list[Term], int]:
    """``a`` and ``b`` without their common atoms and number, and those."""
    number = gcd(content(a), content(b)) or 1
    rest = common_atoms(a)
    atoms = [atom for atom in common_atoms(b) if drop(rest, atom)]
    if number == 1 and not atoms:
        return a, b, atoms, 1
    return without(a, atoms, number), without(b, atoms, number), atoms, number


def summed(constant: int, items: Monomials) -> Term:
    """A sum from items that are in canonical form already (at least one)."""
    return (
        items[0][0]
        if not constant and len(items) == 1 and items[0][1] == 1
        else intern(_ADD, (constant, items))
    )
