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
from collections.abc import Callable, Iterator
from enum import IntEnum
from hashlib import blake2b
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
    """One node of the term graph. Made only by the functions of this module; compare with ``is``.

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
        return _add(self, other)

    def __radd__(self, other: IntLike) -> Term:
        return _add(other, self)

    def __sub__(self, other: IntLike) -> Term:
        return _sub(self, other)

    def __rsub__(self, other: IntLike) -> Term:
        return _sub(other, self)

    def __mul__(self, other: IntLike) -> Term:
        return _mul(self, other)

    def __rmul__(self, other: IntLike) -> Term:
        return _mul(other, self)

    def __floordiv__(self, other: IntLike) -> Term:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: IntLike) -> Term:
        return _floordiv(other, self)

    def __mod__(self, other: IntLike) -> Term:
        return _mod(self, other)

    def __rmod__(self, other: IntLike) -> Term:
        return _mod(other, self)

    def __neg__(self) -> Term:
        return _mul(-1, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (self.op, self.args)

    def __str__(self) -> str:
        return _spell(self)

    def __repr__(self) -> str:
        return f"<{self}>"


_spell: Callable[[Term], str] = lambda term: term.op.name  # noqa: E731 - a variable, as spelled_by sets it


def _not_there(a: IntLike, b: IntLike) -> Term:
    raise NotImplementedError("guards.terms.division brings the operators")


# The operators of Term: canonical forms are made a file above, which says here how.
_add: Callable[[IntLike, IntLike], Term] = _not_there
_sub: Callable[[IntLike, IntLike], Term] = _not_there
_mul: Callable[[IntLike, IntLike], Term] = _not_there
_floordiv: Callable[[IntLike, IntLike], Term] = _not_there
_mod: Callable[[IntLike, IntLike], Term] = _not_there


def computed_by(
    add: Callable[[IntLike, IntLike], Term],
    sub: Callable[[IntLike, IntLike], Term],
    mul: Callable[[IntLike, IntLike], Term],
    floordiv: Callable[[IntLike, IntLike], Term],
    mod: Callable[[IntLike, IntLike], Term],
) -> None:
    """Makes these the operators of terms."""
    global _add, _sub, _mul, _floordiv, _mod
    _add, _sub, _mul, _floordiv, _mod = add, sub, mul, floordiv, mod


def spelled_by(spell: Callable[[Term], str]) -> None:
    """Makes ``spell`` what ``str`` of a term answers; ``fold`` calls this with its ``text``."""
    global _spell
    _spell = spell


_LEAST = 16_384  # so many terms are never too many
_table: dict[tuple[Op, tuple[Any, ...]], Term] = {}
_full = _LEAST  # with so many terms the table is swept
_lock = RLock()  # held while the table loses or gains a term


def intern(op: Op, args: tuple[Any, ...]) -> Term:
    """The one term of this kind with these operands, which are in canonical form already."""
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
            sweep_terms()
    return kept


def sweep_terms() -> None:
    """Lets go of the terms that nobody but the table holds."""
    global _full
    with _lock:
        sweep(_table)
        _full = max(_LEAST, 2 * len(_table))


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


by_order = attrgetter("order")


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
