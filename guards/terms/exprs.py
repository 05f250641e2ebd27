"""Hash-consed integer and boolean terms in one canonical form.

An integer term is a sum ``c0 + c1*m1 + ... + cn*mn`` of integer coefficients times monomials; a monomial is a product
of atoms; an atom is a symbol or a ``//``, ``%``, ``min``, ``max`` or ``ite`` term. On top stand the relations ``t ==
0``, ``t != 0``, ``t <= 0`` and the connectives ``and`` and ``or`` (``not`` is pushed inwards and never appears).

Equal terms are the same object, so ``is`` compares them and ``hash`` is the address. Terms are never mutated; the
intern table is swept of those that nobody else holds. Every constructor here applies only laws that hold for all
integers *for which the written expression is defined*: a term that contains ``a // b`` or ``a % b`` speaks about
values with ``b != 0``.

``//`` and ``%`` are Python's: floor division, and a remainder with the sign of the divisor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import reduce
from hashlib import blake2b
from math import gcd
from operator import attrgetter
from threading import RLock
from typing import Any, Union

from guards.terms.interning import sweep


class Op(IntEnum):
    """The kind of a term; the order is the order of printing."""

    CONST = 0  # args = (value,)
    SYMBOL = 1  # args = (name,)
    MUL = 2  # args = atoms, at least two, sorted
    ADD = 3  # args = (constant, ((monomial, coefficient), ...)), sorted
    FLOORDIV = 4  # args = (dividend, divisor)
    MOD = 5  # args = (dividend, divisor)
    MIN = 6  # args = at least two terms, sorted
    MAX = 7  # args = at least two terms, sorted
    ITE = 8  # args = (condition, then, otherwise)
    TRUE = 9
    FALSE = 10
    EQ = 11  # args = (t,): t == 0
    NE = 12  # args = (t,): t != 0
    LE = 13  # args = (t,): t <= 0
    AND = 14  # args = at least two booleans, sorted
    OR = 15  # args = at least two booleans, sorted


# The members used on hot paths, looked up once.
_CONST, _SYMBOL, _MUL, _ADD, _FLOORDIV, _MOD = Op.CONST, Op.SYMBOL, Op.MUL, Op.ADD, Op.FLOORDIV, Op.MOD
_EQ, _NE, _LE, _AND, _OR, _TRUE = Op.EQ, Op.NE, Op.LE, Op.AND, Op.OR, Op.TRUE

IntLike = Union["Term", int]
BoolLike = Union["Term", bool]
Monomials = tuple[tuple["Term", int], ...]


NONLINEAR = 1  # an atom other than a symbol, or a product
SYMBOLIC_DIVISION = 2  # a quotient or remainder by something that is not a number


class Term:
    """One node of the term graph.  Made only by the functions of this module; compare with ``is``.

    Attributes:
        op: the kind of the term.
        args: its operands; what they are depends on ``op`` (see :class:`Op`).
        order: a total order on terms that is the same on every machine.
        depth: the length of the longest path down to a symbol or constant (which has depth 0).
        kinds: which kinds of atoms occur inside, as a set of the bits ``NONLINEAR`` and ``SYMBOLIC_DIVISION``.
    """

    __slots__ = ("_digest", "_symbols", "args", "depth", "kinds", "op", "order")

    op: Op
    args: tuple[Any, ...]
    order: tuple[Any, ...]
    depth: int
    kinds: int
    _symbols: frozenset[Term] | None
    _digest: bytes | None

    @property
    def is_bool(self) -> bool:
        """Whether this is a relation or a connective (and not an integer)."""
        return self.op >= Op.TRUE

    @property
    def symbols(self) -> frozenset[Term]:
        """The symbols that occur in this term."""
        found = self._symbols
        if found is None:
            if self.op is Op.SYMBOL:
                found = frozenset((self,))
            elif self.depth > DEEP:
                return _symbols_of_deep(self)
            else:
                found = frozenset().union(*[child.symbols for child in children(self)])
            self._symbols = found
        return found

    @property
    def value(self) -> int:
        """The value of a constant."""
        assert self.op is Op.CONST
        return self.args[0]  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The name of a symbol."""
        assert self.op is Op.SYMBOL
        return self.args[0]  # type: ignore[no-any-return]

    def __add__(self, other: IntLike) -> Term:
        return add(self, other)

    def __radd__(self, other: IntLike) -> Term:
        return add(other, self)

    def __sub__(self, other: IntLike) -> Term:
        return sub(self, other)

    def __rsub__(self, other: IntLike) -> Term:
        return sub(other, self)

    def __mul__(self, other: IntLike) -> Term:
        return mul(self, other)

    def __rmul__(self, other: IntLike) -> Term:
        return mul(other, self)

    def __floordiv__(self, other: IntLike) -> Term:
        return floordiv(self, other)

    def __rfloordiv__(self, other: IntLike) -> Term:
        return floordiv(other, self)

    def __mod__(self, other: IntLike) -> Term:
        return mod(self, other)

    def __rmod__(self, other: IntLike) -> Term:
        return mod(other, self)

    def __neg__(self) -> Term:
        return mul(-1, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _intern, (self.op, self.args)

    def __str__(self) -> str:
        return _spell(self)

    def __repr__(self) -> str:
        return f"<{self}>"


_spell: Callable[[Term], str] = lambda term: term.op.name  # noqa: E731 - a variable, as spelled_by sets it


def spelled_by(spell: Callable[[Term], str]) -> None:
    """Makes ``spell`` what ``str`` of a term answers; ``fold`` calls this with its ``text``."""
    global _spell
    _spell = spell


_LEAST = 16_384  # so many terms are never too many
_table: dict[tuple[Op, tuple[Any, ...]], Term] = {}
_full = _LEAST  # with so many terms the table is swept
_lock = RLock()  # held while the table loses or gains a term


def _intern(op: Op, args: tuple[Any, ...]) -> Term:
    key = (op, args)
    found = _table.get(key)
    if found is not None:
        return found
    term = Term()
    term.op = op
    term.args = args
    term._symbols = None
    term._digest = None
    depth = kinds = 0
    if op is _ADD:
        for m, _ in args[1]:
            kinds |= m.kinds
            if m.depth > depth:
                depth = m.depth
        depth += 1
        order: tuple[Any, ...] = (op, tuple([(m.order, c) for m, c in args[1]]), args[0])
    elif op is _SYMBOL:
        match = _NUMBERED.match(args[0])
        order = (op, match[1], int(match[2]), args[0]) if match else (op, args[0], -1, args[0])
    elif op is _CONST or not args:
        order = (op, *args)
    else:
        for child in args:
            kinds |= child.kinds
            if child.depth > depth:
                depth = child.depth
        depth += 1
        order = (op, tuple([child.order for child in args]))
        if op < _TRUE:
            kinds |= NONLINEAR
            if (op is _FLOORDIV or op is _MOD) and args[1].op is not _CONST:
                kinds |= SYMBOLIC_DIVISION
    term.depth = depth
    term.kinds = kinds
    term.order = order if depth <= DEEP else (op + 100, depth, _digest(term))
    with _lock:
        kept = _table.setdefault(key, term)  # another thread may have been first
        if len(_table) >= _full:
            _sweep()
    return kept


def _sweep() -> None:
    global _full
    with _lock:
        sweep(_table)
        _full = max(_LEAST, 2 * len(_table))


def release() -> None:
    """Lets go of the terms that nobody uses, which otherwise happens when there are many."""
    _negations.clear()
    _sweep()


_NUMBERED = re.compile(r"^(.*?)(\d{1,18})$")
DEEP = 50  # terms deeper than this are walked with an explicit stack and ordered by a digest


def postorder(term: Term, done: Callable[[Term], bool] | None = None) -> Iterator[Term]:
    """The distinct terms that ``term`` is made of, operands before what uses them; safe for terms of any depth.

    Parts that are ``done`` are left out, with what only they are made of.
    """
    if done is not None and done(term):
        return
    seen = {term}
    stack = [(term, children(term))]
    while stack:
        top, rest = stack[-1]
        for child in rest:
            if child not in seen and (done is None or not done(child)):
                seen.add(child)
                stack.append((child, children(child)))
                break
        else:
            stack.pop()
            yield top


def _symbols_of_deep(term: Term) -> frozenset[Term]:
    found: frozenset[Term] = frozenset()
    for part in postorder(term, lambda part: part._symbols is not None):
        found = frozenset((part,)) if part.op is _SYMBOL else found.union(*[c.symbols for c in children(part)])
        part._symbols = found
        found = frozenset()
    assert term._symbols is not None
    return term._symbols


def _digest(term: Term) -> bytes:
    """A name for the structure of the term, the same on every machine."""
    for part in postorder(term, lambda part: part._digest is not None):
        if part.op is _ADD:
            own = repr((part.args[0], [c for _, c in part.args[1]]))
        else:
            own = repr(part.args) if part.op <= _SYMBOL else ""
        digest = blake2b(f"{int(part.op)}{own}".encode(), digest_size=16)
        for child in children(part):
            assert child._digest is not None
            digest.update(child._digest)
        part._digest = digest.digest()
    assert term._digest is not None
    return term._digest


_by_order = attrgetter("order")


def children(term: Term) -> Iterator[Term]:
    """The direct operands of a term (the monomials of a sum)."""
    if term.op is Op.ADD:
        return (m for m, _ in term.args[1])
    if term.op is Op.CONST or term.op is Op.SYMBOL:
        return iter(())
    return iter(term.args)


def interned() -> int:
    """How many terms are alive: for tests of memory growth."""
    return len(_table)


# -- integers ---------------------------------------------------------------------------------------------------------

_small = {value: _intern(Op.CONST, (value,)) for value in range(-64, 1025)}
ZERO, ONE = _small[0], _small[1]


def const(value: int) -> Term:
    """The constant ``value``."""
    return _small.get(value) or _intern(Op.CONST, (int(value),))


def symbol(name: str) -> Term:
    """The integer symbol ``name`` (an identifier): the same object for the same name.

    Raises:
        ValueError: ``name`` is not an identifier.

    >>> from guards.terms.exprs import symbol
    >>> s0 = symbol("s0")
    >>> symbol("s0") is s0, (s0 + 7) // 8 * 8 is s0, (8 * s0 + 7) // 8 is s0
    (True, False, True)
    """
    if not name.isidentifier():
        raise ValueError(f"a symbol's name must be an identifier, not {name!r}")
    return _intern(Op.SYMBOL, (name,))


def integer(value: IntLike) -> Term:
    """``value`` as an integer term."""
    if type(value) is Term:
        if value.op >= _TRUE:
            raise TypeError(f"an integer term is needed here, not the condition {value}")
        return value
    if type(value) is int:
        return const(value)
    if isinstance(value, int):  # bool and int subclasses
        return const(int(value))
    raise TypeError(f"an integer term is needed here, not {type(value).__name__}")


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
        items = tuple([(m, c) for m in sorted(monomials, key=_by_order) if (c := monomials[m])])
        if len(items) > 1:
            return _intern(_ADD, (constant, items))
    else:
        items = tuple([(m, c) for m, c in monomials.items() if c])
    if not items:
        return const(constant)
    if constant == 0 and items[0][1] == 1:
        return items[0][0]
    return _intern(_ADD, (constant, items))


def add(a: IntLike, b: IntLike) -> Term:
    """``a + b``"""
    return _plus(integer(a), integer(b), 1)


def sub(a: IntLike, b: IntLike) -> Term:
    """``a - b``"""
    return _plus(integer(a), integer(b), -1)


def _plus(a: Term, b: Term, factor: int) -> Term:
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
            items[0][0] if not constant and len(items) == 1 and items[0][1] == 1 else _intern(_ADD, (constant, items))
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
        _intern(_ADD, (constant * factor, tuple([(m, c * factor) for m, c in items])))
        if not _plain(constant, items, factor)
        else items[0][0]
    )


def _plain(constant: int, items: Monomials, factor: int) -> bool:
    return constant == 0 and len(items) == 1 and items[0][1] * factor == 1


def factors(monomial: Term) -> tuple[Term, ...]:
    """The atoms of a monomial, sorted, repeated as often as they occur."""
    return monomial.args if monomial.op is Op.MUL else (monomial,)


def _times(m: Term, n: Term) -> Term:
    return _intern(_MUL, tuple(sorted(factors(m) + factors(n), key=_by_order)))


def monomial(atoms: Iterable[Term]) -> Term:
    """The product of atoms (1 for none)."""
    ordered = tuple(sorted(atoms, key=_by_order))
    return ONE if not ordered else ordered[0] if len(ordered) == 1 else _intern(Op.MUL, ordered)


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


def _common_atoms(term: Term) -> list[Term]:
    """Atoms that divide every monomial of the term (none when it has a constant part)."""
    constant, items = split(term)
    if constant or not items:
        return []
    common = list(factors(items[0][0]))
    for m, _ in items[1:]:
        rest = list(factors(m))
        kept = []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
        if not common:
            break
    return common


def _without(term: Term, atoms: list[Term], number: int) -> Term:
    """``term`` divided exactly by the product of ``atoms`` and ``number``, both known to divide it."""
    constant, items = split(term)
    merged: dict[Term, int] = {}
    constant //= number
    for m, c in items:
        rest = list(factors(m))
        for atom in atoms:
            rest.remove(atom)
        if rest:
            merged[monomial(rest)] = c // number
        else:
            constant += c // number
    return linear(constant, merged)


def _cancel(a: Term, b: Term) -> tuple[Term, Term, list[Term], int]:
    """``a`` and ``b`` without their common atoms and number, and those."""
    number = gcd(content(a), content(b)) or 1
    atoms: list[Term] = []
    rest = _common_atoms(a)
    for atom in _common_atoms(b):
        if atom in rest:
            rest.remove(atom)
            atoms.append(atom)
    if number == 1 and not atoms:
        return a, b, atoms, 1
    return _without(a, atoms, number), _without(b, atoms, number), atoms, number


def floordiv(a: IntLike, b: IntLike) -> Term:
    """``a // b``, rounded down.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    a, b = integer(a), integer(b)
    if b.op is _CONST:
        return _divided(a, b.args[0])
    if a is ZERO:
        return a
    if a is b:
        return ONE
    a, b, _, _ = _cancel(a, b)
    if b.op is _CONST:
        return _divided(a, b.args[0])
    return ZERO if a is ZERO else ONE if a is b else _intern(_FLOORDIV, (a, b))


def _reduced(a: Term, divisor: int) -> tuple[int, Monomials, bool]:
    """Constant and items of ``a`` without whole multiples of a positive divisor, and whether there were any.

    The constant becomes one of 0 to divisor - 1; coefficients keep their sign, as ``(x - y) // 8`` is easier to read
    than ``(x + 7*y) // 8 - y``.
    """
    constant, items = split(a)
    if 0 <= constant < divisor:
        for _, c in items:
            if not -divisor < c < divisor:
                break
        else:
            return constant, items, False
    rest = [(m, c % divisor if c >= 0 else -(-c % divisor)) for m, c in items]
    return constant % divisor, tuple([item for item in rest if item[1]]), True


def _divided(a: Term, divisor: int) -> Term:
    """``a // divisor``: whole parts come out, common factors cancel, nested divisions merge, the first sign is plus."""
    if divisor == 1:
        return a
    if divisor <= 0:
        if not divisor:
            raise ZeroDivisionError(f"{a} // 0")
        return _divided(scale(a, -1), -divisor)
    constant, items, changed = _reduced(a, divisor)
    if not items:
        rest = const(constant // divisor)
    elif items[0][1] < 0:  # a // d == -((-a + d - 1) // d)
        rest = scale(_divided(_sum(divisor - 1 - constant, tuple([(m, -c) for m, c in items])), divisor), -1)
    else:
        shared = gcd(divisor, *[c for _, c in items])
        if shared > 1:  # the constant's remainder cannot carry: (g*x + c) // (g*d) == (x + c//g) // d
            rest = _divided(linear(constant // shared, {m: c // shared for m, c in items}), divisor // shared)
        else:
            rest = _merged(constant, items, divisor) or _intern(
                _FLOORDIV, (_sum(constant, items) if changed else a, const(divisor))
            )
    if not changed:
        return rest
    whole, parts = split(a)
    return _plus(linear(whole // divisor, {m: _quotient(c, divisor) for m, c in parts}), rest, 1)


def _quotient(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)


def _merged(constant: int, items: Monomials, divisor: int) -> Term | None:
    """``(x//b + c) // d`` as ``(x + b*c) // (b*d)``, where the dividend is of that form."""
    if len(items) == 1 and items[0][1] == 1 and items[0][0].op is _FLOORDIV:
        inner, by = items[0][0].args
        if by.op is _CONST:
            return _divided(_plus(inner, const(by.args[0] * constant), 1), by.args[0] * divisor)
    return None


def _sum(constant: int, items: Monomials) -> Term:
    """A sum from items that are in canonical form already (at least one)."""
    return items[0][0] if not constant and len(items) == 1 and items[0][1] == 1 else _intern(_ADD, (constant, items))


def mod(a: IntLike, b: IntLike) -> Term:
    """``a % b``, with the sign of ``b``.

    Raises:
        ZeroDivisionError: ``b`` is the constant 0.
    """
    a, b = integer(a), integer(b)
    if b.op is _CONST:
        return _remainder(a, b.args[0])
    if a is ZERO or a is b:
        return ZERO
    a, b, atoms, number = _cancel(a, b)
    if b.op is _CONST:
        rest = _remainder(a, b.args[0])
    else:
        rest = ZERO if a is b or a is ZERO else _intern(_MOD, (a, b))
    return scale(mul(rest, monomial(atoms)), number) if atoms or number != 1 else rest


def _remainder(a: Term, divisor: int) -> Term:
    """``a % divisor``: multiples vanish, common factors come out, nested remainders merge."""
    if divisor <= 1:
        if divisor == 1:
            return ZERO
        if not divisor:
            raise ZeroDivisionError(f"{a} % 0")
        return scale(_remainder(scale(a, -1), -divisor), -1)
    constant, items, changed = _reduced(a, divisor)
    if not items:
        return const(constant)
    shared = gcd(divisor, *[c for _, c in items])
    if shared > 1:  # (g*x + c) % (g*d) == g*((x + c//g) % d) + c % g
        inner = linear(constant // shared, {m: c // shared for m, c in items})
        return _plus(scale(_remainder(inner, divisor // shared), shared), const(constant % shared), 1)
    if changed:
        a = _sum(constant, items)
    if len(items) == 1 and not constant and items[0][1] == 1 and items[0][0].op is _MOD:
        inner, by = items[0][0].args
        if by.op is _CONST and by.args[0] % divisor == 0:
            return _remainder(inner, divisor)
    return _intern(_MOD, (a, const(divisor)))


def _extreme(op: Op, terms: Iterable[IntLike]) -> Term:
    pick = min if op is Op.MIN else max
    parts: dict[Term, None] = {}
    known: int | None = None
    for item in terms:
        term = integer(item)
        for part in term.args if term.op is op else (term,):
            if part.op is _CONST:
                known = part.args[0] if known is None else pick(known, part.args[0])
            else:
                parts[part] = None
    best: dict[Monomials, int] = {}  # terms that differ by a constant: one of them suffices
    for part in parts:
        constant, items = split(part)
        best[items] = pick(best[items], constant) if items in best else constant
    if known is not None:
        best[()] = known
    if not best:
        raise ValueError("min and max need at least one operand")
    if len(best) == 1:
        ((items, constant),) = best.items()
        return linear(constant, dict(items))
    return _shifted(op, best)


def _shifted(op: Op, operands: dict[Monomials, int]) -> Term:
    """``min`` or ``max`` of sums (items to constant), what all of them share taken out: terms, factor and sign."""
    common = dict(next(iter(operands)))
    for items in operands:
        found = dict(items)
        common = {m: c for m, c in common.items() if found.get(m) == c}
        if not common:
            break
    reduced = {tuple([item for item in items if item[0] not in common]): c for items, c in operands.items()}
    weight = sum([c for items in reduced for _, c in items])
    sign = 1
    if weight < 0 or (weight == 0 and op is Op.MIN):  # min(-x, -y) is -max(x, y)
        sign = -1
        op = Op.MAX if op is Op.MIN else Op.MIN
    first = min((items for items in reduced if items), key=lambda items: [(m.order, sign * c) for m, c in items])
    shift = reduced[first]
    factor = sign * gcd(*[c for items in reduced for _, c in items], *[c - shift for c in reduced.values()])
    if factor == 1 and not common and not shift:
        chosen = [linear(c, dict(items)) for items, c in reduced.items()]
    else:
        chosen = [linear((c - shift) // factor, {m: d // factor for m, d in items}) for items, c in reduced.items()]
    if any(term.op is op for term in chosen):  # what is left of an operand may be a min (max) itself
        result = _extreme(op, chosen)
    else:
        chosen.sort(key=_by_order)
        result = _intern(op, tuple(chosen))
    if factor == 1 and not common and not shift:
        return result
    return _plus(scale(result, factor), linear(shift, common), 1)


def minimum(*terms: IntLike) -> Term:
    """The least of the terms."""
    return _extreme(Op.MIN, terms)


def maximum(*terms: IntLike) -> Term:
    """The greatest of the terms."""
    return _extreme(Op.MAX, terms)


def ite(condition: BoolLike, then: IntLike, otherwise: IntLike) -> Term:
    """``then if condition else otherwise``"""
    condition, then, otherwise = boolean(condition), integer(then), integer(otherwise)
    if condition is TRUE or then is otherwise:
        return then
    return otherwise if condition is FALSE else _intern(Op.ITE, (condition, then, otherwise))


# -- booleans ---------------------------------------------------------------------------------------------------------

TRUE = _intern(Op.TRUE, ())
FALSE = _intern(Op.FALSE, ())


def boolean(value: BoolLike) -> Term:
    """``value`` as a boolean term."""
    if type(value) is Term:
        if value.op < Op.TRUE:
            raise TypeError(f"a condition is needed here, not the integer {value}")
        return value
    if isinstance(value, bool):
        return TRUE if value else FALSE
    raise TypeError(f"a condition is needed here, not {type(value).__name__}")


def is_zero(term: Term) -> Term:
    """The relation ``term == 0``."""
    constant, items = split(term)
    if not items:
        return TRUE if constant == 0 else FALSE
    shared = gcd(*[c for _, c in items])
    if constant % shared:
        return FALSE
    if items[0][1] < 0:
        shared = -shared
    if shared != 1:
        term = linear(constant // shared, {m: c // shared for m, c in items})
    return _intern(Op.EQ, (term,))


def not_positive(term: Term) -> Term:
    """The relation ``term <= 0``."""
    constant, items = split(term)
    if not items:
        return TRUE if constant <= 0 else FALSE
    shared = gcd(*[c for _, c in items])
    if shared != 1:  # the constant is rounded towards the integers that can occur
        term = linear(-(-constant // shared), {m: c // shared for m, c in items})
    return _intern(Op.LE, (term,))


def eq(a: IntLike, b: IntLike) -> Term:
    """``a == b``"""
    return is_zero(sub(a, b))


def ne(a: IntLike, b: IntLike) -> Term:
    """``a != b``"""
    return not_(is_zero(sub(a, b)))


def le(a: IntLike, b: IntLike) -> Term:
    """``a <= b``"""
    return _at_most(integer(a), integer(b), 0)


def lt(a: IntLike, b: IntLike) -> Term:
    """``a < b``"""
    return _at_most(integer(a), integer(b), 1)


def ge(a: IntLike, b: IntLike) -> Term:
    """``a >= b``"""
    return _at_most(integer(b), integer(a), 0)


def gt(a: IntLike, b: IntLike) -> Term:
    """``a > b``"""
    return _at_most(integer(b), integer(a), 1)


def _at_most(a: Term, b: Term, margin: int) -> Term:
    """``a + margin <= b``"""
    shift, others = split(b)
    constant, items = split(a)
    constant += margin - shift
    merged = dict(items)
    for m, c in others:
        merged[m] = merged.get(m, 0) - c
    parts = [(m, c) for m, c in merged.items() if c]
    if not parts:
        return TRUE if constant <= 0 else FALSE
    shared = gcd(*[c for _, c in parts])
    if shared != 1:  # the constant is rounded towards the integers that can occur
        constant = -(-constant // shared)
        parts = [(m, c // shared) for m, c in parts]
    return _intern(_LE, (linear(constant, dict(parts)),))


_NEGATIONS = 16384
_negations: dict[Term, Term] = {}


def not_(condition: BoolLike) -> Term:
    """The negation of a condition, pushed inwards."""
    condition = boolean(condition)
    found = _negations.get(condition)
    if found is not None:
        return found
    if condition.depth > DEEP:
        for part in postorder(condition, lambda part: part.op < _TRUE or part in _negations):
            _negate(part)
    return _negate(condition)


def _negate(condition: Term) -> Term:
    op = condition.op
    if op is _LE:
        result = not_positive(_plus(ONE, condition.args[0], -1))
    elif op is _EQ:
        result = _intern(_NE, condition.args)
    elif op is _NE:
        result = _intern(_EQ, condition.args)
    elif op is _AND or op is _OR:
        result = (or_ if op is _AND else and_)(*[not_(part) for part in condition.args])
    else:
        result = FALSE if op is _TRUE else TRUE
    if len(_negations) >= _NEGATIONS:
        _negations.clear()
    _negations[condition] = result
    return result


def _connect(op: Op, unit: Term, zero: Term, conditions: Iterable[BoolLike]) -> Term:
    parts: dict[Term, None] = {}
    for item in conditions:
        condition = boolean(item)
        within: tuple[Term, ...] = condition.args if condition.op is op else (condition,)
        for part in within:
            if part is zero:
                return zero
            if part is not unit:
                parts[part] = None
    if not parts:
        return unit
    if len(parts) == 1:
        return next(iter(parts))
    if any(not_(part) in parts for part in parts if part.op < Op.AND):
        return zero
    return _intern(op, tuple(sorted(parts, key=_by_order)))


def and_(*conditions: BoolLike) -> Term:
    """The conjunction of the conditions."""
    return _connect(Op.AND, TRUE, FALSE, conditions)


def or_(*conditions: BoolLike) -> Term:
    """The disjunction of the conditions."""
    return _connect(Op.OR, FALSE, TRUE, conditions)
