"""Capacities as formulas: the integers of a padded program that is made once and serves many
buckets.

A padding rule computes with capacities and compares them, and the program that it makes depends on
the answers.  A :class:`Capacity` is an integer with its formula; arithmetic on it gives formulas.
A comparison gives a :class:`Comparison`, which answers like the integers and records the question,
unless the answer holds for any capacities.  If all recorded questions have the same answers at
other capacities, the rules make the same program there, with the formulas evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.facts.facts import Facts
from guards.terms import arithmetic, boolean, division, fold
from guards.terms.term import Op, Term

__all__ = ["Capacities", "Capacity", "Comparison", "Operators", "small", "text_of"]


class Capacities:
    """The capacities of one bucket, for a program that is to serve other buckets too.

    An integer that is 0 or 1 in the bucket becomes that constant, since the layout of a tensor
    differs at these sizes. The comparison with 0 and 1 is recorded for every integer.

    Args:
        caps: the capacity of each padded symbol in the bucket; formulas name it like the symbol.

    Attributes:
        decided: the comparisons whose answers the program depends on, with their answers.
    """

    def __init__(self, caps: Mapping[str, int]) -> None:
        self._caps = dict(caps)
        self._known: dict[Term, Any] = {}
        self._small = {
            arithmetic.symbol(name): arithmetic.const(cap) for name, cap in small(caps).items()
        }
        self._facts = Facts.make(
            {arithmetic.symbol(name): (2, None) for name, cap in caps.items() if cap >= 2}, ()
        )
        self.decided: dict[Term, bool] = {}

    def of(self, term: Term) -> Any:
        """Return a formula as a capacity, the same object for the same formula; an int if it is
        constant.
        """
        found = self._known.get(term)
        if found is None:
            found = self._known[term] = self._of(fold.substitute(term, self._small))
        return found

    @property
    def terms(self) -> list[Term]:
        """The formulas of all capacities that are not constant."""
        return [
            term
            for term, each in self._known.items()
            if type(each) is Capacity and each.term is term
        ]

    def _of(self, term: Term) -> Any:
        if term.op is Op.CONST:
            return term.value
        constant = next((each for each in (0, 1) if self.decide(boolean.eq(term, each))), None)
        if constant is None and term not in self._known:
            self._known[term] = Capacity(term, int(fold.evaluate(term, self._caps)), self)
        return self._known[term] if constant is None else constant

    def known(self, condition: Term) -> bool | None:
        """Return whether a comparison holds for any capacities, or for none; None if it depends on
        them.
        """
        return ask(self._facts, condition, effort=Effort.CHEAP)

    def decide(self, condition: Term) -> bool:
        """Return whether a comparison holds in the bucket, and record it if it depends on the
        capacities.
        """
        if condition is boolean.TRUE or condition is boolean.FALSE:
            return condition is boolean.TRUE
        found = self.decided.get(condition)
        if found is None:
            found = self.known(condition)
        if found is None:
            found = self.decided[condition] = bool(fold.evaluate(condition, self._caps))
        return found

    def agree(self, caps: Mapping[str, int]) -> bool:
        """Return whether all recorded comparisons have the same answers at other capacities."""
        if small(caps) != small(self._caps):
            return False
        try:
            return all(
                bool(fold.evaluate(each, caps)) is answer for each, answer in self.decided.items()
            )
        except ZeroDivisionError:
            return False


def small(caps: Mapping[str, int]) -> dict[str, int]:
    """Return the capacities that are 0 or 1, with which the layout of tensors differs."""
    return {name: cap for name, cap in caps.items() if cap < 2}


class Operators:
    """The operators of an integer that is a formula; subclasses define the results of arithmetic
    and of comparisons.
    """

    __slots__ = ()

    def _combined(self, function: Callable[..., Term], left: Any, right: Any) -> Any:
        raise NotImplementedError

    def _compared(self, function: Callable[..., Term], other: Any) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self._combined(arithmetic.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._combined(arithmetic.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._combined(arithmetic.sub, self, other)

    def __mul__(self, other: Any) -> Any:
        return self._combined(arithmetic.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combined(arithmetic.mul, other, self)

    def __eq__(self, other: object) -> Any:
        return self._compared(boolean.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(boolean.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compared(boolean.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(boolean.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(boolean.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(boolean.ge, other)


class Capacity(Operators):
    """An integer that depends on the capacities: its formula, and its value in the bucket that a
    program is made for.

    Code that needs the bare integer, to count to it or to look it up, makes the program depend on
    that value.
    """

    __slots__ = ("_all", "term", "value")

    def __init__(self, term: Term, value: int, together: Capacities) -> None:
        self.term = term
        self.value = value
        self._all = together

    def _combined(self, function: Callable[..., Term], left: Any, right: Any) -> Any:
        terms = [each.term if type(each) is Capacity else _integer(each) for each in (left, right)]
        return NotImplemented if None in terms else self._all.of(function(*terms))

    def _compared(self, function: Callable[..., Term], other: Any) -> Any:
        term = other.term if type(other) is Capacity else _integer(other)
        if term is None:
            return NotImplemented
        made = function(self.term, term)
        return (
            made is boolean.TRUE
            if made is boolean.TRUE or made is boolean.FALSE
            else Comparison(made, self._all)
        )

    def _divided(self, function: Callable[..., Term], left: Any, right: Any) -> Any:
        if right == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return self._combined(function, left, right)

    def __rsub__(self, other: Any) -> Any:
        return self._combined(arithmetic.sub, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided(division.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._divided(division.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._divided(division.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._divided(division.mod, other, self)

    def __neg__(self) -> Any:
        return self._combined(arithmetic.sub, 0, self)

    def __truediv__(self, other: Any) -> float:
        return int(self) / (int(other) if type(other) is Capacity else other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other / int(self))

    def __bool__(self) -> bool:
        return self._all.decide(boolean.ne(self.term, 0))

    def __int__(self) -> int:
        self._all.decide(boolean.eq(self.term, self.value))
        return self.value

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __hash__(self) -> int:
        return hash(int(self))  # a look-up compares with other keys, so it depends on the value

    def sym_max(self, other: Any) -> Any:
        """Return the larger of two integers."""
        return self if self >= other else other

    def sym_min(self, other: Any) -> Any:
        """Return the smaller of two integers."""
        return self if self <= other else other

    def at_least_one(self) -> Any:
        """Return the larger of this and 1."""
        return self if self >= 1 else 1

    def __repr__(self) -> str:
        return text_of(self.term)


class Comparison:
    """A comparison of capacities: the protocol of a condition of :mod:`meta_fns.core.sizes`."""

    __slots__ = ("_all", "term")

    def __init__(self, term: Term, together: Capacities) -> None:
        self.term = term
        self._all = together

    def __bool__(self) -> bool:
        return self._all.decide(self.term)

    @property
    def hint(self) -> bool:
        """Return whether the comparison holds in the bucket."""
        return bool(self)

    def known(self) -> bool:
        """Return whether the comparison holds for any capacities."""
        return self._all.known(self.term) is True

    def check(self, message: object) -> bool:
        """Return whether the comparison holds in the bucket."""
        return bool(self)

    def guard_or_false(self) -> bool:
        """Return whether the comparison holds in the bucket."""
        return bool(self)

    def sym_ite(self, then: Any, otherwise: Any) -> Any:
        """Return ``then`` if the comparison holds, else ``otherwise``."""
        return then if self else otherwise

    def __and__(self, other: Any) -> Any:
        return bool(other) if not self else other

    def __or__(self, other: Any) -> Any:
        return True if self else bool(other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> bool:
        return not self


def text_of(term: Term) -> str:
    """Return the placeholder for a capacity in texts; an instance replaces it by the integer."""
    return f"<capacity {term}>"


def _integer(other: Any) -> Term | None:
    """Return an int as a term; None for anything else."""
    return arithmetic.integer(other) if isinstance(other, int) else None
