"""Peak memory of a traced program, as a formula: the maximum over its moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from operator import ge
from typing import Any

import attrs

from guards.asking.ladder import Effort
from guards.asking.questions import ask
from guards.sets.guard_set import GuardSet
from guards.terms import arithmetic, boolean, extremes
from guards.terms.arithmetic import ZERO
from guards.terms.term import Term
from symshape.cost.domain import Domain
from symshape.cost.formula import Formula
from symshape.cost.liveness import PARTS, SCHEDULES, Moment, Rounded, exact, moments, rounded_up
from symshape.cost.solving import budget, largest, solved, within
from symshape.cost.units import amount, shown
from symshape.errors import InputError
from symshape.exploring.tables import Table, table_html, table_text
from symshape.forks import cached_property
from symshape.graph.control_flow import ControlFlow
from symshape.graph.program import Program

_UNDECIDED = 40
"""The number of undecided comparisons of moments after which only coefficients are compared."""

_FACTORS = (0, 0.4, 2, 5, 64, 1000)
"""The points at which formulas are compared, in multiples of the example's sizes (1 at least)."""


@attrs.frozen
class MemoryAt:
    """The memory at the peak, at given sizes, in bytes, and the line that runs then."""

    parameters: int
    inputs: int
    activations: int
    outputs: int
    gradients: int
    optimizer: int
    place: str

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return (
            self.parameters
            + self.inputs
            + self.activations
            + self.outputs
            + self.gradients
            + self.optimizer
        )

    def __str__(self) -> str:
        used = [name for name in PARTS if name in PARTS[:4] or getattr(self, name)]
        parts = ", ".join(f"{name} {shown(getattr(self, name), 'B')}" for name in used)
        return f"{shown(self.total, 'B')} at {self.place or 'the start'} ({parts})"


class PeakMemory:
    """The peak memory of a traced program that runs op by op.

    Attributes:
        domain: the symbols and guards of the trace.
        moments: those that can be the peak for some sizes, the greatest at the example's sizes
            first.
        left_out: what the program calls that runs functions (``cond``, ``scan``), of which nobody
            knows what they hold while they run: the peak may be greater.
    """

    def __init__(
        self, domain: Domain, candidates: Sequence[Moment], left_out: Iterable[str] = ()
    ) -> None:
        self.domain = domain
        self.moments = tuple(candidates)
        self.left_out = tuple(left_out)

    @classmethod
    def of(
        cls, program: Program, alignment: int | None = None, schedule: str = "graph"
    ) -> PeakMemory:
        """Return the peak of a traced program; allocations are rounded up to ``alignment`` bytes if
        given.

        Raises:
            InputError: the alignment is not a positive integer, or there is no such schedule.
        """
        rounded = rounding(alignment, schedule)
        return cls.among(program, moments(program.graph, rounded, schedule))

    @classmethod
    def among(cls, program: Program, found: Iterable[Moment]) -> PeakMemory:
        """Return the greatest of the moments of a program's run."""
        domain = Domain.of(program)
        hints = {
            each.name: 1 if each.hint is None else each.hint for each in program.symbols.values()
        }
        ops: list[Any] = [node.op for node in program.graph.nodes]
        flows = sorted({str(op) for op in ops if isinstance(op, ControlFlow)})
        return cls(
            domain, _that_can_win(domain, found, [hints[name] for name in domain.symbols]), flows
        )

    def check_known(self) -> None:
        """Raise unless the peak counts every op.

        Raises:
            InputError: something is, so that no budget can be kept.
        """
        if self.left_out:
            raise InputError(
                f"the peak memory of {self.domain.name} is not known: it calls {self.left_out[0]}, "
                "which runs functions"
            )

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that the peak depends on, in the order of the trace."""
        names = {s.name for moment in self.moments for s in moment.total.symbols}
        return tuple(name for name in self.domain.symbols if name in names)

    @cached_property
    def _totals(self) -> tuple[Term, ...]:
        return tuple(self.domain.simplified(moment.total) for moment in self.moments)

    @cached_property
    def total(self) -> Formula:
        """The peak in bytes: a maximum of formulas."""
        return Formula(extremes.maximum(*self._totals), self.domain)

    @cached_property
    def _evaluate(self) -> Callable[[Sequence[int]], tuple[int, ...]]:
        return self.domain.compiled(self._totals)

    @cached_property
    def _parts(self) -> tuple[Callable[[Sequence[int]], tuple[int, ...]], ...]:
        return tuple(self.domain.compiled(moment.parts) for moment in self.moments)

    @cached_property
    def _places(self) -> tuple[str, ...]:
        return tuple(_place(moment) for moment in self.moments)

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset(self.symbols)

    def at(self, **sizes: int) -> MemoryAt:
        """Return the peak at these sizes: its parts and the line that runs then, by compiled
        formulas.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size; or something is left
                out.
            GuardViolation: the trace does not hold for these sizes.
        """
        self.check_known()
        values = self.domain.values(sizes, self._needed)
        totals = self._evaluate(values)
        index = totals.index(max(totals))
        parts = dict(zip(PARTS, self._parts[index](values), strict=True))
        return MemoryAt(place=self._places[index], **parts)

    def largest(self, symbol: str, *, bytes: int | str, **others: int) -> int:  # noqa: A002
        """Return the greatest value of ``symbol`` for which the guards hold and the peak stays
        within ``bytes``.

        >>> import torch, symshape
        >>> traced = symshape.trace(
        ...     lambda x: (x + 1) * 2, torch.ones(3, 5), dynamic={"x": {0: "batch", 1: "length"}}
        ... )
        >>> traced.peak_memory().largest("batch", bytes="1 MB", length=1000)
        83

        Raises: as :func:`symshape.cost.solving.largest`.
        """
        self.check_known()
        return largest(self.domain, self._totals, symbol, amount(bytes, "bytes"), others)

    def solve(self, symbol: str, *, bytes: int | str, **others: int) -> GuardSet:  # noqa: A002
        """Return the values of ``symbol`` for which the peak stays within ``bytes``, as a guard
        solved for the symbol.

        Sizes that are not given stay in the guard.  Only the budget is in it, not the guards of the
        trace.

        >>> import torch, symshape
        >>> traced = symshape.trace(
        ...     lambda x: (x + 1) * 2, torch.ones(3, 5), dynamic={"x": {0: "batch", 1: "length"}}
        ... )
        >>> print(traced.peak_memory().solve("batch", bytes="1 MB", length=1000))
        batch <= 83  # memory within 1 MB

        Raises:
            InputError: a symbol is unknown, a value is no size, or no such condition is known.
        """
        self.check_known()
        found = solved(self.domain, self._totals, symbol, amount(bytes, "bytes"), others)
        return budget(found, f"memory within {bytes}", self.domain).minimise()

    def within(self, bytes: int | str) -> GuardSet:  # noqa: A002 - the caller's word
        """Return the sizes for which the peak stays within ``bytes``, as a guard set: one guard for
        each possible peak.

        Raises:
            InputError: ``bytes`` is no amount.
        """
        self.check_known()
        return within(self._totals, amount(bytes, "bytes"), f"memory within {bytes}", self.domain)

    # -- shown
    def table(self) -> Table:
        """Return the moments that can be the peak: the line that runs, and the bytes of each
        part.
        """
        used = [
            i
            for i in range(len(PARTS))
            if i < 4 or any(moment.parts[i] is not ZERO for moment in self.moments)
        ]
        rows = tuple(
            (place, *(str(self.domain.simplified(moment.parts[part])) for part in used))
            for moment, place in zip(self.moments, self._places, strict=True)
        )
        title = f"peak memory of {self.domain.name} in bytes" + (
            ": the greatest of" if len(rows) > 1 else ""
        )
        if self.left_out:
            title += (
                f" (without what {', '.join(self.left_out)} holds while it runs, which is "
                "not known)"
            )
        names = [PARTS[part] for part in used]
        return Table(title, ("while this runs", *names), rows, code=frozenset(names))

    def __str__(self) -> str:
        return table_text(self.table())

    def __repr__(self) -> str:
        return f"<PeakMemory of {self.domain.name}: {self.total.term} bytes>"

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(str(self.total))} bytes</p>{table_html(self.table())}</div>"


def rounding(alignment: int | None, schedule: str) -> Rounded:
    """Return the rounding of allocations.

    Raises:
        InputError: the alignment is not a positive integer, or there is no such schedule.
    """
    if schedule not in SCHEDULES:
        raise InputError(f"there is no schedule {schedule!r}; choose from {', '.join(SCHEDULES)}")
    if alignment is not None and (type(alignment) is not int or alignment < 1):
        raise InputError(
            f"alignment={alignment!r} must be a positive number of bytes, such as 512 for CUDA's"
        )
    return exact if alignment in (None, 1) else rounded_up(alignment)


def _place(moment: Moment) -> str:
    if moment.place or moment.node is None:
        return moment.place
    where = attrs.evolve(moment.node.origin, text="", op="").place
    return f"{moment.node.op} at {where}" if where else str(moment.node.op)


def _that_can_win(domain: Domain, found: Iterable[Moment], hints: Sequence[int]) -> list[Moment]:
    """Return the moments that can be the peak: none of them is always at most another one.

    Of moments that are always equal one is kept. Two moments are compared as formulas only if one
    is at most the other at a few points.
    """
    distinct: dict[Term, Moment] = {}
    for moment in found:
        distinct.setdefault(domain.simplified(moment.total), moment)
    evaluate = domain.compiled(list(distinct))
    values = zip(*(evaluate(point) for point in _points(domain, hints)), strict=True)
    ordered = sorted(
        zip(values, range(len(distinct)), distinct, strict=True),
        key=lambda row: (-row[0][0], row[1]),
    )
    kept: list[tuple[Term, tuple[int, ...]]] = []
    coefficients = _Coefficients(domain)
    undecided = 0
    for seen, _, term in ordered:
        above = [other for other, there in kept if all(map(ge, there, seen))]
        if any(coefficients.never_below(other, term) for other in above):
            continue
        beaten = False
        for other in above:
            if undecided >= _UNDECIDED:
                break
            if ask(domain.facts, boolean.ge(other, term), effort=Effort.CHEAP, only=True):
                beaten = True
                break
            undecided += 1
        if not beaten:
            kept.append((term, seen))
    return [distinct[term] for term, _ in kept]


def _points(domain: Domain, hints: Sequence[int]) -> list[Sequence[int]]:
    """Return the hints, and sizes around them for which the guards hold."""
    scaled = [[max(1, int(hint * factor)) for factor in _FACTORS] for hint in hints]
    around: list[tuple[int, ...]] = list(zip(*scaled, strict=True))  # all at once
    for place, sizes in enumerate(scaled):
        around += [(*hints[:place], size, *hints[place + 1 :]) for size in sizes]
    return [
        hints,
        *(
            point
            for point in around
            if domain.guards.holds(dict(zip(domain.symbols, point, strict=True)))
        ),
    ]


class _Coefficients:
    """Formulas as the coefficients of their monomials, which are compared without making another
    formula.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._of: dict[Term, tuple[int, dict[Term, int]]] = {}
        self._sizes: dict[Term, bool] = {}

    def never_below(self, other: Term, term: Term) -> bool:
        """Return whether ``other - term`` has no negative coefficient, and no factor that can be
        negative.
        """
        (above, greater), (below, smaller) = self._parts(other), self._parts(term)
        if above < below or any(
            greater.get(monomial, 0) < coefficient for monomial, coefficient in smaller.items()
        ):
            return False
        differing = (
            monomial
            for monomial, coefficient in greater.items()
            if coefficient != smaller.get(monomial, 0)
        )
        return all(
            greater[each] > smaller.get(each, 0) and self._is_size(each) for each in differing
        )

    def _parts(self, term: Term) -> tuple[int, dict[Term, int]]:
        found = self._of.get(term)
        if found is None:
            constant, items = arithmetic.split(term)
            found = self._of[term] = constant, dict(items)
        return found

    def _is_size(self, monomial: Term) -> bool:
        """Return whether no factor of a monomial can be negative."""
        found = self._sizes.get(monomial)
        if found is None:
            lows = [self._domain.facts.interval(atom).lo for atom in arithmetic.factors(monomial)]
            found = self._sizes[monomial] = all(low is not None and low >= 0 for low in lows)
        return found
