"""What is known about symbols: frozen :class:`Facts`, made of one :class:`Scope` for each set of connected symbols.

Two symbols are connected when a condition mentions both.  Decisions are cached on the scope they depend on, so an
assumption about ``s0`` leaves the cached decisions about an unconnected ``s7`` in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guards import exprs
from guards.assuming import declare
from guards.errors import RangeError
from guards.exprs import FALSE, TRUE, Op, Term
from guards.intervals import SIZES, Interval, Pair, meet
from guards.scope import Scope, replaced

_JOINED_LIMIT = 2048
_single: dict[tuple[Term, Pair], Scope] = {}
_joined: dict[frozenset[Scope], Scope] = {}


def _scope_of(symbol: Term, pair: Pair) -> Scope:
    key = (symbol, pair)
    found = _single.get(key)
    if found is None:
        if len(_single) >= _JOINED_LIMIT:
            _single.clear()
        found = Scope({symbol: pair})
        if pair[0] is not None and pair[0] == pair[1]:
            declare(found)
        _single[key] = found
    return found


def join(scopes: Iterable[Scope]) -> Scope:
    """One scope that knows what each of the unconnected scopes knows."""
    key = frozenset(scopes)
    found = _joined.get(key)
    if found is None:
        if len(_joined) >= _JOINED_LIMIT:
            _joined.clear()
        found = _joined[key] = Scope.joined(sorted(key, key=lambda scope: min(s.order for s in scope.symbols)))
    return found


_EMPTY = Scope({})


class Facts:
    """What is known: a range for each declared symbol and a conjunction of conditions.  Immutable.

    A symbol that was not declared is a size: any integer >= 0.

    >>> from guards.exprs import symbol, ge, eq
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> facts = Facts().with_symbol(s0, 1).assume(ge(s1, s0 + 8))
    >>> facts.interval(s1)
    Interval(lo=9, hi=None)
    >>> facts.assume(eq(s1, 3)).contradictory
    True
    """

    __slots__ = ("_answers", "_conditions", "_hash", "_scopes", "contradictory")

    contradictory: bool

    def __init__(self) -> None:
        self._scopes: dict[Term, Scope] = {}
        self._conditions: dict[Term, None] = {}
        self._answers: dict[Term, bool] = {}
        self._hash: int | None = None
        self.contradictory = False

    @classmethod
    def make(cls, ranges: Mapping[Term, Pair], conditions: Iterable[Term] = ()) -> Facts:
        """Facts from ranges and conditions at once."""
        made = cls()
        for symbol, pair in ranges.items():
            made._declare(symbol, pair)
        known = {exprs.boolean(condition): None for condition in conditions}
        known.pop(TRUE, None)
        if known:
            made._learn(list(known))
        return made

    def _learn(self, conditions: list[Term]) -> None:
        self._conditions.update(dict.fromkeys(conditions))
        if FALSE in conditions:
            self.contradictory = True
            return
        scopes = {self._scopes.get(s) or _scope_of(s, SIZES) for condition in conditions for s in condition.symbols}
        scope = (scopes.pop() if len(scopes) == 1 else join(scopes)).assume(*conditions)
        self.contradictory = self.contradictory or scope.contradictory
        for symbol in scope.symbols:
            self._scopes[symbol] = scope

    def _declare(self, symbol: Term, pair: Pair) -> None:
        if symbol.op is not Op.SYMBOL:
            raise TypeError(f"a range is declared for a symbol, not for {symbol}")
        if pair[0] is not None and pair[1] is not None and pair[0] > pair[1]:
            raise RangeError(f"the range of {symbol} is empty: from {pair[0]} to {pair[1]}")
        self._scopes[symbol] = _scope_of(symbol, pair)

    def _copy(self) -> Facts:
        made = Facts()
        made._scopes = dict(self._scopes)
        made._conditions = dict(self._conditions)
        made.contradictory = self.contradictory
        return made

    def with_symbol(self, symbol: Term, lo: int | None = 0, hi: int | None = None) -> Facts:
        """These facts and the range of one symbol (met with what is known of it already).

        Raises:
            RangeError: ``lo > hi``.
        """
        if symbol not in self._scopes:
            made = self._copy()
            made._declare(symbol, (lo, hi))
            return made
        if lo is not None and hi is not None and lo > hi:
            raise RangeError(f"the range of {symbol} is empty: from {lo} to {hi}")
        made = self
        if lo is not None:
            made = made.assume(exprs.ge(symbol, lo))
        return made if hi is None else made.assume(exprs.le(symbol, hi))

    def assume(self, condition: Term) -> Facts:
        """These facts and one more condition; ``contradictory`` when it cannot hold.

        The same object when the condition adds nothing.
        """
        condition = exprs.boolean(condition)
        if condition is TRUE or condition in self._conditions:
            return self
        made = self._copy()
        made._learn([condition])
        return made

    def scope(self, term: Term) -> Scope:
        """The scope of all symbols that the term mentions."""
        symbols = term.symbols
        if len(symbols) == 1:
            (symbol,) = symbols
            return self._scopes.get(symbol) or _scope_of(symbol, SIZES)
        if not symbols:
            return _EMPTY
        get = self._scopes.get
        found = {get(symbol) or _scope_of(symbol, SIZES) for symbol in symbols}
        return found.pop() if len(found) == 1 else join(found)

    @property
    def conditions(self) -> tuple[Term, ...]:
        """The conditions assumed, in order."""
        return tuple(self._conditions)

    @property
    def symbols(self) -> frozenset[Term]:
        """The symbols that were declared or that a condition mentions."""
        return frozenset(self._scopes)

    @property
    def ranges(self) -> dict[Term, Interval]:
        """The best known range of each symbol."""
        return {symbol: Interval(*scope.bounds(symbol)) for symbol, scope in self._scopes.items()}

    def declared(self, symbol: Term) -> Interval:
        """The range with which the symbol was declared."""
        scope = self._scopes.get(symbol)
        return Interval(*(scope.declared[symbol] if scope is not None else SIZES))

    def interval(self, term: Term) -> Interval:
        """A range that contains all values the term can have."""
        scope = self.scope(term)
        pair = scope.bounds(term)
        known = scope.canonical(term)
        return Interval(*(pair if known is term else meet(pair, scope.bounds(known))))

    def canonical(self, term: Term) -> Term:
        """``term`` with symbols that are known to equal something earlier replaced by it.

        The same object when no such equality applies.

        >>> from guards.exprs import symbol, eq
        >>> s0, s1 = symbol("s0"), symbol("s1")
        >>> str(Facts().assume(eq(s1, s0)).canonical(s0 + s1))
        '2*s0'
        """
        replacements: dict[Term, Term] | None = None
        for symbol in term.symbols:
            scope = self._scopes.get(symbol)
            if scope is not None and symbol in scope.equals:
                if replacements is None:
                    replacements = {}
                replacements[symbol] = scope.equals[symbol]
        return term if replacements is None else replaced(term, replacements) or term

    replace = canonical

    def _key(self) -> tuple[frozenset[Any], frozenset[Term]]:
        ranges = ((s, scope.declared[s]) for s, scope in self._scopes.items())
        return frozenset((s, pair) for s, pair in ranges if pair != SIZES), frozenset(self._conditions)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Facts) and self._key() == other._key()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._key())
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{s} in {Interval(*scope.declared[s])}" for s, scope in self._scopes.items()]
        return f"Facts({', '.join(parts + [str(c) for c in self._conditions])})"
