"""Hash-consed integer and boolean terms in one canonical form.

An integer term is a sum ``c0 + c1*m1 + ... + cn*mn`` of integer coefficients times monomials; a
monomial is a product of atoms; an atom is a symbol or a ``//``, ``%``, ``min``, ``max`` or ``ite``
term. On top stand the relations ``t == 0``, ``t != 0``, ``t <= 0`` and the connectives ``and`` and
``or`` (``not`` is pushed inwards and never appears).

Equal terms are the same object, so ``is`` tells whether two are the same, and ``hash`` is the
address. Comparisons, ``==`` among them, build relations instead, and a relation that depends on its
symbols has no truth value: ``if`` and ``in`` a list raise rather than answer False. Dictionaries
and sets find terms by hash and ``is`` alone.

Terms are never mutated; the intern table is swept of those that nobody else holds. Every
constructor here applies only laws that hold for all integers *for which the written expression is
defined*: a term that contains ``a // b`` or ``a % b`` speaks about values with ``b != 0``.

``//`` and ``%`` are Python's: floor division, and a remainder with the sign of the divisor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from operator import attrgetter
from threading import RLock
from typing import Any, NoReturn, Union

from guards.terms.interning import sweep
from guards.terms.overloading import Operators


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
_CONST, _SYMBOL, _ADD, _TRUE = Op.CONST, Op.SYMBOL, Op.ADD, Op.TRUE
_FLOORDIV, _MOD = Op.FLOORDIV, Op.MOD

IntLike = Union["Term", int]
BoolLike = Union["Term", bool]
Monomials = tuple[tuple["Term", int], ...]


NONLINEAR = 1  # an atom other than a symbol, or a product
SYMBOLIC_DIVISION = 2  # a quotient or remainder by something that is not a number


class Term(Operators):
    """An integer or a condition, as a formula of symbols, made by ``guards.symbol``,
        ``guards.parse`` and operators.

        Equal terms are one object: ``is`` says whether two are the same. ``+ - * // %`` make
        integers; ``< <= > >= == !=`` make conditions, and ``& | ~`` combine them. A condition whose
        value depends on its symbols cannot be tested by ``if``, ``and``, ``or`` or ``in`` a list:
        that raises a TypeError; :func:`guards.prove` and :func:`guards.decide` ask. (Dictionaries
        and sets never compare terms that are not the same, so terms are keys like any other.)

        >>> from guards import symbol
        >>> s, b = symbol("s"), symbol("b")
        >>> s <= b, s == 8 * b, (s > 1) & ~(s == b)
        (<b >= s>, <8*b == s>, <b != s and s >= 2>)
        >>> s + 1 == 1 + s, bool(s == s + 1), {s: "key"}[s]
        (<True>, False, 'key')
        >>> bool(s == b)
        Traceback (most recent call last):
            ...
        TypeError: whether b == s depends on its symbols: ask guards.prove or guards.decide, or
        `is` for the same term

    Attributes:
        op: the kind of the term.
        args: its operands; what they are depends on ``op`` (see :class:`Op`).
        order: a total order on terms that is the same on every machine.
        depth: the length of the longest path down to a symbol or constant (which has depth 0).
        kinds: which kinds of atoms occur inside, as a set of the bits ``NONLINEAR`` and
            ``SYMBOLIC_DIVISION``.
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
        """Return whether this is a relation or a connective (and not an integer)."""
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

    def __bool__(self) -> bool:
        if self.op is Op.CONST:
            return bool(self.args[0])
        return self.op is Op.TRUE or (self.op is not Op.FALSE and _truth(self))

    # -- as a size of `meta_fns.infer`: see guards/asking/assuming.py

    @property
    def hint(self) -> None:
        """The value in an example call: a term has none."""
        return None

    def known(self) -> bool:
        """Return whether the condition is certain under the current assumptions (see
        :func:`guards.assuming`).
        """
        return _known(self)

    def guard_or_false(self) -> bool:
        """Return whether the condition is certain; a condition that depends on the values counts as
        false.
        """
        return _known(self)

    def check(self, message: object = "") -> bool:
        """Require the condition from now on; return False if it never holds
        (``guards.assuming``).
        """
        return _required(self)

    def maybe_as_int(self) -> int | None:
        """The integer that a constant is; None for what depends on symbols."""
        return self.args[0] if self.op is Op.CONST else None

    def at_least_one(self) -> Term:
        """``max(self, 1)``, or the term itself where it is known to be positive."""
        return self if _known(self >= 1) else self.sym_max(1)

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (self.op, self.args)

    def __str__(self) -> str:
        return _spell(self)

    def __repr__(self) -> str:
        return f"<{self}>"


Term.__hash__ = object.__hash__  # type: ignore[method-assign] # the address, without a call of Python's or of mypyc's
_spell: Callable[[Term], str] = lambda term: term.op.name  # noqa: E731


def undecided(term: Term) -> NoReturn:
    """Raise TypeError: ``if`` asks about a condition that depends on the symbols."""
    if term.op < _TRUE:
        raise TypeError(f"the integer {term} has no truth value: compare it with a number")
    raise TypeError(
        f"whether {term} depends on its symbols: ask guards.prove or guards.decide, or `is` for "
        "the same term"
    )


def _not_known(term: Term) -> bool:
    return term.op is _TRUE


def _not_required(term: Term) -> bool:
    return term.op is not Op.FALSE


_truth: Callable[[Term], bool] = undecided
_known: Callable[[Term], bool] = _not_known
_required: Callable[[Term], bool] = _not_required


def judged_by(
    truth: Callable[[Term], bool], known: Callable[[Term], bool], required: Callable[[Term], bool]
) -> None:
    """Set the functions that ``if``, ``known`` and ``check`` call for a condition that is no
    constant.
    """
    global _truth, _known, _required
    _truth, _known, _required = truth, known, required


def spelled_by(spell: Callable[[Term], str]) -> None:
    """Set the function behind ``str`` of a term; ``fold`` passes its ``text``."""
    global _spell
    _spell = spell


_LEAST = 16_384  # so many terms are never too many
_table: dict[tuple[Op, tuple[Any, ...]], Term] = {}
_full = _LEAST  # with so many terms the table is swept
# held while the table loses or gains a term; by a fork too, whose child has no other thread
_lock = RLock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


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
    """Release the terms that nobody but the table holds."""
    global _full
    with _lock:
        sweep(_table)
        _full = max(_LEAST, 2 * len(_table))


_NUMBERED = re.compile(r"^(.*?)(\d{1,18})$")
DEEP = 50  # terms deeper than this are walked with an explicit stack and ordered by a digest


def postorder(term: Term, done: Callable[[Term], bool] | None = None) -> Iterator[Term]:
    """The distinct terms that ``term`` is made of, operands before what uses them; safe for terms
    of any depth.

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
        found = (
            frozenset((part,))
            if part.op is _SYMBOL
            else found.union(*[c.symbols for c in children(part)])
        )
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


def among(term: Term, terms: Iterable[Term]) -> bool:
    """Return whether a term is one of several; compares by ``is`` where ``in`` would compare by
    ``==``.
    """
    for each in terms:  # noqa: SIM110 - a generator is slower
        if each is term:
            return True
    return False


def same_form(a: Monomials, b: Monomials) -> bool:
    """Return whether two sums are the same, constants aside; ``==`` of the tuples would compare
    deeply.
    """
    return len(a) == len(b) and all(m is n and c == d for (m, c), (n, d) in zip(a, b, strict=True))


def drop(terms: list[Term], term: Term) -> bool:
    """Remove the first occurrence of a term from a list; return whether there was one."""
    for position, each in enumerate(terms):
        if each is term:
            del terms[position]
            return True
    return False


def interned() -> int:
    """Return the number of terms alive: for tests of memory growth."""
    return len(_table)
