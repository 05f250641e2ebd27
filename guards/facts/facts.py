"""The facts about symbols: frozen :class:`Facts`, one :class:`Component` for each set of connected
symbols.

Two symbols are connected when a condition mentions both. Decisions are cached on the component they
depend on, so an assumption about ``s0`` leaves the cached decisions about an unconnected ``s7`` in
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from guards.domains.interval import Interval
from guards.domains.interval_arithmetic import SIZES, Pair, meet
from guards.errors import ArgumentError, RangeError
from guards.facts.component import Component, replaced
from guards.facts.propagate import assume, declare, learn
from guards.terms import boolean
from guards.terms.boolean import FALSE, TRUE
from guards.terms.term import Op, Term, among

_PLAIN_LIMIT = 1024
_JOINED_LIMIT = 128  # these may be large
_plain: dict[frozenset[tuple[Term, Pair]], Component] = {}
_joined: dict[frozenset[Component], Component] = {}


def _plain_component(ranges: Iterable[tuple[Term, Pair]]) -> Component:
    """The component that knows ranges and nothing else."""
    key = frozenset(ranges)
    found = _plain.get(key)
    if found is None:
        if len(_plain) >= _PLAIN_LIMIT:
            _plain.clear()
        found = _plain[key] = _made_plain(dict(sorted(key, key=lambda item: item[0].order)))
    return found


def _made_plain(ranges: dict[Term, Pair]) -> Component:
    made = Component(ranges)
    for lo, hi in ranges.values():
        if lo is not None and lo == hi:
            declare(made)
            break
    return made


def join(components: Iterable[Component]) -> Component:
    """One component that knows what each of the unconnected components knows."""
    key = frozenset(components)
    found = _joined.get(key)
    if found is None:
        if len(_joined) >= _JOINED_LIMIT:
            _joined.clear()
        found = _joined[key] = Component.joined(
            sorted(key, key=lambda component: min(s.order for s in component.symbols))
        )
    return found


def forget_components() -> None:
    """Empty the caches of components."""
    _plain.clear()
    _joined.clear()


def _require_range(symbol: Any, pair: Pair) -> None:
    if type(symbol) is not Term or symbol.op is not Op.SYMBOL:
        raise ArgumentError(f"a range is declared for a symbol, not for {symbol}")
    if pair[0] is not None and pair[1] is not None and pair[0] > pair[1]:
        raise RangeError(f"the range of {symbol} is empty: from {pair[0]} to {pair[1]}")


class Facts:
    """The facts about symbols: a range for each declared symbol and a conjunction of conditions.
    Immutable.

    A symbol that was not declared is a size: any integer >= 0.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, ge
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> facts = Facts().with_symbol(s0, 1).assume(ge(s1, s0 + 8))
    >>> facts.interval(s1)
    Interval(lo=9, hi=None)
    >>> facts.assume(eq(s1, 3)).contradictory
    True
    """

    __slots__ = ("_answers", "_components", "_conditions", "_hash", "_ranges", "contradictory")

    contradictory: bool

    def __init__(self) -> None:
        self._ranges: dict[Term, Pair] = {}  # of symbols that no condition mentions
        self._components: dict[Term, Component] = {}  # of the others
        self._conditions: dict[Term, None] = {}
        self._answers: dict[
            Term, int
        ] = {}  # bits of `guards.decide`: an answer, or what was sought in vain
        self._hash: int | None = None
        self.contradictory = False

    @classmethod
    def make(cls, ranges: Mapping[Term, Pair], conditions: Iterable[Term] = ()) -> Facts:
        """Facts from ranges and conditions at once; all symbols count as connected if there is any
        condition.
        """
        made = cls()
        for symbol, pair in ranges.items():
            _require_range(symbol, pair)
        made._ranges.update(ranges)
        known = {boolean.boolean(condition): None for condition in conditions}
        known.pop(TRUE, None)
        if known:
            made._conditions = known
            if among(FALSE, known):
                made.contradictory = True
                return made
            all_ranges = dict(ranges)
            for condition in known:
                for symbol in condition.symbols:
                    all_ranges.setdefault(symbol, SIZES)
            component = learn(_made_plain(all_ranges), known)
            made.contradictory = component.contradictory
            made._components = dict.fromkeys(all_ranges, component)
            made._ranges = {}
        return made

    def _learn(self, condition: Term) -> None:
        self._conditions[condition] = None
        if condition is FALSE:
            self.contradictory = True
            return
        component = assume(self.component(condition), (condition,))
        self.contradictory = self.contradictory or component.contradictory
        for symbol in component.symbols:
            self._components[symbol] = component
            self._ranges.pop(symbol, None)

    def _copy(self) -> Facts:
        made = Facts()
        made._ranges = dict(self._ranges)
        made._components = dict(self._components)
        made._conditions = dict(self._conditions)
        made.contradictory = self.contradictory
        return made

    def with_symbol(self, symbol: Term, lo: int | None = 0, hi: int | None = None) -> Facts:
        """These facts and the range of one symbol (met with what is known of it already).

        Raises:
            RangeError: ``lo > hi``.
        """
        _require_range(symbol, (lo, hi))
        if symbol not in self._components and symbol not in self._ranges:
            made = self._copy()
            made._ranges[symbol] = (lo, hi)
            return made
        made = self
        if lo is not None:
            made = made.assume(boolean.ge(symbol, lo))
        return made if hi is None else made.assume(boolean.le(symbol, hi))

    def assume(self, condition: Term) -> Facts:
        """These facts and one more condition; ``contradictory`` when it cannot hold.

        The same object when the condition adds nothing.
        """
        condition = boolean.boolean(condition)
        if condition is TRUE or condition in self._conditions:
            return self
        made = self._copy()
        made._learn(condition)
        return made

    def component(self, term: Term) -> Component:
        """The component of all symbols that the term mentions."""
        components = self._components
        if components:
            found = {components[symbol] for symbol in term.symbols if symbol in components}
            if found:
                loose = [symbol for symbol in term.symbols if symbol not in components]
                if loose:
                    found.update(
                        _plain_component([(symbol, self._range(symbol))]) for symbol in loose
                    )
                return found.pop() if len(found) == 1 else join(found)
        ranges = self._ranges
        return _plain_component([(symbol, ranges.get(symbol, SIZES)) for symbol in term.symbols])

    def _range(self, symbol: Term) -> Pair:
        return self._ranges.get(symbol, SIZES)

    @property
    def conditions(self) -> tuple[Term, ...]:
        """The conditions assumed, in order."""
        return tuple(self._conditions)

    @property
    def symbols(self) -> frozenset[Term]:
        """The symbols that were declared or that a condition mentions."""
        return frozenset((*self._components, *self._ranges))

    @property
    def ranges(self) -> dict[Term, Interval]:
        """The best known range of each symbol."""
        loose = {symbol: Interval(*pair) for symbol, pair in self._ranges.items()}
        return loose | {
            symbol: Interval(*component.bounds(symbol))
            for symbol, component in self._components.items()
        }

    def declared(self, symbol: Term) -> Interval:
        """The range with which the symbol was declared."""
        return Interval(*self._declared().get(symbol, SIZES))

    def _declared(self) -> dict[Term, Pair]:
        return {
            **self._ranges,
            **{
                symbol: component.declared[symbol] for symbol, component in self._components.items()
            },
        }

    def interval(self, term: Term) -> Interval:
        """A range that contains all values the term can have."""
        component = self.component(term)
        pair = component.bounds(term)
        known = component.canonical(term)
        return Interval(*(pair if known is term else meet(pair, component.bounds(known))))

    def canonical(self, term: Term) -> Term:
        """``term`` with symbols that are known to equal something earlier replaced by it.

        The same object when no such equality applies.

        >>> from guards.terms.arithmetic import symbol
        >>> from guards.terms.boolean import eq
        >>> s0, s1 = symbol("s0"), symbol("s1")
        >>> str(Facts().assume(eq(s1, s0)).canonical(s0 + s1))
        '2*s0'
        """
        replacements: dict[Term, Term] | None = None
        for symbol in term.symbols:
            component = self._components.get(symbol)
            if component is not None and symbol in component.equals:
                if replacements is None:
                    replacements = {}
                replacements[symbol] = component.equals[symbol]
        found = None if replacements is None else replaced(term, replacements)
        return term if found is None else found

    def replace(self, term: Term) -> Term:
        """Rewrite a term as :meth:`canonical` does."""
        return self.canonical(term)

    def _key(self) -> tuple[frozenset[Any], frozenset[Term]]:
        declared = frozenset(item for item in self._declared().items() if item[1] != SIZES)
        return declared, frozenset(self._conditions)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Facts) and self._key() == other._key()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._key())
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{symbol} in {Interval(*pair)}" for symbol, pair in self._declared().items()]
        return f"Facts({', '.join(parts + [str(c) for c in self._conditions])})"
