"""The sizes that one padded program serves: exact values of some symbols, all values up to a
capacity of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import arithmetic, boolean, division, extremes, fold
from guards.terms.term import Op, Term
from meta_fns.padding.refusals import Refuse
from symshape.graph.float_terms import FloatTerm
from symshape.runtime.padding.capacities import Capacities, Operators
from symshape.tracing.symbolic.nodes.choices import tidy

__all__ = ["Amount", "Condition", "Extent", "Fraction", "Region"]


class Condition:
    """A condition on sizes.  Code can ask whether it is provable; its truth differs from call to
    call.
    """

    def __init__(self, region: Region, term: Term) -> None:
        self._region = region
        self._term = term

    def known(self) -> bool:
        """Return whether the condition provably holds for every size of the region."""
        return self._region.known(self._term)

    def __bool__(self) -> bool:
        raise Refuse(f"whether {self._term} holds differs from size to size")


class Extent(Operators):
    """A size that differs from call to call: ``term`` is its true value, ``capacity`` its
    largest.
    """

    __slots__ = ("capacity", "region", "term")

    def __init__(self, region: Region, term: Term, capacity: int) -> None:
        self.region = region
        self.term = term
        self.capacity = capacity

    def _combined(self, function: Callable[..., Term], left: Any, right: Any) -> Any:
        terms = [
            each.term if isinstance(each, Extent) else arithmetic.integer(each)
            for each in (left, right)
        ]
        return self.region.size(function(*terms))

    def _compared(self, function: Callable[..., Term], other: Any) -> Any:
        other = other.term if isinstance(other, Extent) else arithmetic.integer(other)
        term = function(self.term, other)
        return (
            term is boolean.TRUE
            if term is boolean.TRUE or term is boolean.FALSE
            else Condition(self.region, term)
        )

    def __floordiv__(self, other: int) -> Any:
        return self._combined(division.floordiv, self, other)

    def __mod__(self, other: int) -> Any:
        return self._combined(division.mod, self, other)

    def sym_max(self, other: Any) -> Any:
        """Return the larger of two sizes."""
        return self._combined(extremes.maximum, self, other)

    def __str__(self) -> str:
        return str(self.term)

    def __repr__(self) -> str:
        return f"{self.term} <= {self.capacity}"


class Amount(Extent):
    """A number that differs from call to call and may be no size of a tensor.

    It is not known to be between 0 and its value at the capacities.
    """

    __slots__ = ("_why",)

    def __init__(self, region: Region, term: Term, why: Refuse) -> None:
        self.region = region
        self.term = term
        self._why = why

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """Raise the reason why the number is no size."""
        raise self._why

    def __repr__(self) -> str:
        return str(self.term)


class Fraction:
    """A floating-point number that differs from call to call."""

    __slots__ = ("formula", "region")

    def __init__(self, region: Region, formula: FloatTerm) -> None:
        self.region = region
        self.formula = formula

    @property
    def capacity(self) -> int:
        """Raise: a fraction is no size."""
        raise Refuse("a fraction depends on the sizes", self)

    @property
    def term(self) -> Term:
        """A formula with the symbols that the number depends on."""
        return reduce(arithmetic.add, self.formula.symbols())

    def __str__(self) -> str:
        return str(self.formula)

    __repr__ = __str__


class Region:
    """The values of symbols that a padded program serves.

    Args:
        conditions: the conditions that hold of the symbols (an entry's guards).
        exact: the symbols with one value, and the value.
        caps: the symbols with all values from 0 to a capacity that the conditions allow; the
            capacities satisfy them.  With a capacity of 1 the value is 1: calls with a size of 0
            run op by op.
        capacities: makes the capacities of sizes, as formulas; None for plain integers.

    Attributes:
        given: the conditions, as they were given.
        answers: the questions that were asked of the region, with the answers.
    """

    def __init__(
        self,
        conditions: Sequence[Term],
        exact: Mapping[str, int],
        caps: Mapping[str, int],
        capacities: Capacities | None = None,
    ) -> None:
        self.exact = dict(exact)
        self.caps = dict(caps)
        self.given = tuple(conditions)
        self._constants = {
            arithmetic.symbol(name): arithmetic.const(value)
            for name, value in (*exact.items(), *caps.items())
            if name in exact or value == 1
        }
        self.conditions = tuple(fold.substitute(term, self._constants) for term in conditions)
        at_caps = {**self.exact, **self.caps}
        if not all(fold.evaluate(term, at_caps) for term in conditions):
            raise ValueError(f"the capacities {at_caps} are outside of the guards")
        smaller = [
            {**self.exact, **{name: min(cap, few) for name, cap in caps.items()}} for few in (1, 2)
        ]
        self._samples = [at_caps, *(each for each in smaller if self._holds(each))]
        ranges = {
            arithmetic.symbol(name): (1 if cap == 1 else 0, cap) for name, cap in caps.items()
        }
        self.facts = Facts.make(ranges, self.conditions)
        self._sizes: dict[Term, Any] = {}
        self._capacities = capacities
        self.answers: dict[tuple[str, Term], Any] = {}
        self._of_calls: Facts | None = None
        bounds = [self._is_bound(each) for each in self.conditions]
        free = [
            each for each, is_bound in zip(self.conditions, bounds, strict=True) if not is_bound
        ]
        self._unbounded = Facts.make(ranges, free) if any(bounds) else self.facts

    def _holds(self, values: Mapping[str, int]) -> bool:
        """Return whether calls of these sizes are in the region."""
        try:
            return all(fold.evaluate(term, values) for term in self.given)
        except ZeroDivisionError:
            return False

    def _is_refuted(self, condition: Term) -> bool:
        """Return whether a condition does not hold for one of a few calls of the region, which is
        seen much sooner than that it cannot be proven.
        """
        try:
            return not all(fold.evaluate(condition, values) for values in self._samples)
        except (KeyError, ZeroDivisionError):
            return False

    @staticmethod
    def _is_bound(condition: Term) -> bool:
        """Return whether a condition is a bound on one symbol, or excludes other values of one than
        0.

        (That a size is not 0 says that none of its factors is.)
        """
        if len(condition.symbols) != 1 or condition.op not in (Op.LE, Op.NE):
            return False
        (symbol,) = condition.symbols
        try:
            return condition.op is Op.LE or bool(fold.evaluate(condition, {symbol.name: 0}))
        except ZeroDivisionError:
            return False

    @property
    def extents(self) -> tuple[Term, ...]:
        """The formulas of the sizes that differ from call to call, in the order of their first
        use.
        """
        return tuple(size.term for size in self._sizes.values() if isinstance(size, Extent))

    def known(self, condition: Term) -> bool:
        """Return whether a condition provably holds for every size of the region; record the
        question.
        """
        return self._answered("known", condition, self._known)

    def _known(self, condition: Term) -> bool:
        return (
            not self._is_refuted(condition)
            and ask(self.facts, condition, effort=Effort.CHEAP, only=True) is True
        )

    def _answered(self, kind: str, term: Term, answer: Callable[[Term], bool]) -> bool:
        """Return the answer to a question about a term, asked once."""
        found: bool | None = self.answers.get((kind, term))
        if found is None:
            found = self.answers[kind, term] = answer(term)
        return found

    def answers_alike(self, other: Region) -> bool:
        """Return whether all that was known in another region is known in this one, and sizes have
        the same form.

        What was not known there needs no question here: the program that was made is right whether
        it holds or not.
        """
        ask_again = {"known": self.known, "calls": self.known_of_calls, "size": self._outcome}
        return all(
            answer is False or _same(ask_again[kind](term), answer)
            for (kind, term), answer in other.answers.items()
        )

    def _outcome(self, term: Term) -> Any:
        """Return a formula's form as a size: an int, the formula of an extent, or None if it is
        refused.
        """
        if ("size", term) not in self.answers:
            with suppress(Refuse):
                self.size(term)
        return self.answers["size", term]

    def at_capacities(self, size: Any) -> Any:
        """Return a size of another region, with the same answers, as a size of this region."""
        return (
            Extent(self, size.term, int(fold.evaluate(size.term, self.caps)))
            if type(size) is Extent
            else size
        )

    def fixed(self, term: Term, value: int) -> bool:
        """Return whether a formula provably equals this constant, without the conditions of
        :meth:`_is_bound`.

        With ``s0 >= 2`` or ``s0 != 1`` a capacity of 2 leaves one value.  Treated as a varying
        size, it gives the same program as other capacities, which is derived and compiled once.
        """
        return ask(self._unbounded, boolean.eq(term, value), effort=Effort.CHEAP, only=True) is True

    def known_of_calls(self, condition: Term) -> bool:
        """Return whether a condition provably holds for every padded call: calls with a size of 0
        run op by op.
        """
        return self._answered("calls", condition, self._known_of_calls)

    def _known_of_calls(self, condition: Term) -> bool:
        if self._of_calls is None:
            ranges = {
                arithmetic.symbol(name): (min(1, cap), cap) for name, cap in self.caps.items()
            }
            self._of_calls = Facts.make(ranges, self.conditions)
        if self._is_refuted(condition):
            return False
        term = fold.substitute(condition, self._constants)
        return ask(self._of_calls, term, effort=Effort.CHEAP, only=True) is True

    def size(self, term: Term | int) -> Any:
        """Return a formula as a size: an int if it is the same for all calls, else an
        :class:`Extent`.

        Raises:
            Refuse: the formula is not known to be between 0 and its value at the capacities.
        """
        if isinstance(term, int):
            return term
        found = self._sizes.get(term)
        if found is None:
            self.answers["size", term] = None
            found = self._sizes[term] = self._size(term)
            self.answers["size", term] = found.term if isinstance(found, Extent) else found
        return found

    def amount(self, term: Term) -> Any:
        """Return a formula as a number: like a size, but it may be negative, or larger than at the
        capacities.
        """
        try:
            return self.size(term)
        except Refuse as refuse:
            return Amount(self, tidy(self.known, fold.substitute(term, self._constants)), refuse)

    def _size(self, term: Term) -> Any:
        term = tidy(self._known, fold.substitute(term, self._constants))
        if term.op is Op.CONST:
            return term.value
        try:
            cap = fold.evaluate(term, self.caps)
        except (KeyError, ZeroDivisionError) as error:
            raise Refuse(f"the size {term} has no value at the capacities") from error
        assert isinstance(cap, int)
        if self.fixed(term, cap):
            return cap
        made = Extent(self, term, cap if self._capacities is None else self._capacities.of(term))
        if not self._known(boolean.le(term, cap)):
            raise Refuse(
                f"the size {term} is not known to be largest ({cap}) at the capacities", made
            )
        if not self._known(boolean.ge(term, 0)):
            raise Refuse(f"the size {term} is not known to be at least 0", made)
        return made


def _same(mine: Any, theirs: Any) -> bool:
    """Return whether two answers are the same; terms are compared by identity."""
    return mine is theirs or (type(mine) is type(theirs) is int and mine == theirs)
