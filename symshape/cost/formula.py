"""A number of a traced program as a formula of its sizes: shown, evaluated, solved."""

from __future__ import annotations

from guards.sets.guard_set import GuardSet
from guards.terms.latex_printing import latex
from guards.terms.term import Term
from symshape.cost.domain import Domain
from symshape.cost.solving import largest, within
from symshape.forks import cached_property


class Formula:
    """An integer as a formula of the symbols of a trace.

    Attributes:
        term: the formula, simplified under the guards of the trace.
        domain: its symbols and guards.
    """

    def __init__(self, term: Term, domain: Domain) -> None:
        self.written = term
        self.domain = domain

    @cached_property
    def term(self) -> Term:
        """The formula, simplified under the guards of the trace."""
        return self.domain.simplified(self.written)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that the formula depends on, in the order of the trace."""
        names = {s.name for s in self.term.symbols}
        return tuple(name for name in self.domain.symbols if name in names)

    @cached_property
    def _evaluate(self) -> object:
        return self.domain.compiled([self.term])

    def at(self, **sizes: int) -> int:
        """Return the value at these sizes; symbols that the formula does not contain may be left
        out.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        values = self.domain.values(sizes, frozenset(self.symbols))
        (found,) = self._evaluate(values)  # type: ignore[operator]
        return int(found)

    def largest(self, symbol: str, at_most: int, **others: int) -> int:
        """Return the greatest value of ``symbol`` for which the guards hold and the formula is at
        most ``at_most``.

        Raises: as :func:`symshape.cost.solving.largest`.
        """
        return largest(self.domain, [self.term], symbol, at_most, others)

    def within(self, at_most: int, rule: str = "budget") -> GuardSet:
        """Return the sizes for which the formula is at most ``at_most``, as a guard set; ``rule``
        names their origin.

        >>> from guards import GuardSet, parse
        >>> domain = Domain("f", ["n"], GuardSet(), {})
        >>> print(Formula(parse("3*n + 5"), domain).within(100))
        n <= 31  # budget
        """
        return within([self.term], at_most, rule, self.domain)

    def __str__(self) -> str:
        return str(self.term)

    def __repr__(self) -> str:
        return f"<Formula {self.term}>"

    def _repr_latex_(self) -> str:
        return f"${latex(self.term)}$"
