"""The cost of a traced program: formulas, tables, values at sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from guards.terms import arithmetic
from guards.terms.arithmetic import split
from guards.terms.arithmetic import symbol as symbol_of
from guards.terms.fold import fold
from guards.terms.term import Op, Term
from symshape.cost.domain import Domain
from symshape.cost.formula import Formula
from symshape.cost.op_costs import OpCost, op_costs, unpriced
from symshape.cost.units import amount, shown
from symshape.errors import InputError
from symshape.exploring.tables import Table, table_html, table_text
from symshape.forks import cached_property
from symshape.graph.program import Program

GROUPS: Mapping[str, Callable[[OpCost], str]] = {
    "op": lambda each: each.op,
    "line": lambda each: each.place,
    "module": lambda each: each.module,
    "dtype": lambda each: each.dtype,
    "family": lambda each: each.family or "unpriced",
}
"""The keys by which a cost can be split."""


@attrs.frozen
class CostAt:
    """The cost at given sizes: operations, bytes read and written, kernels."""

    flops: int
    read: int
    written: int
    kernels: int

    @property
    def bytes(self) -> int:
        """Memory traffic: read and written."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Operations a byte of memory traffic."""
        return self.flops / self.bytes if self.bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{shown(self.flops, 'FLOP')}, {shown(self.bytes, 'B')} moved ({shown(self.read, 'B')} "
            "read, "
            f"{shown(self.written, 'B')} written), {self.intensity:.3g} FLOP a byte, "
            f"{self.kernels} kernels"
        )


class Cost:
    """The cost of a traced program, as formulas of its sizes.

    Attributes:
        domain: the symbols and guards of the trace.
        ops: the cost of each node, in order.
        hints: the sizes of the example call, where the symbols have any.
    """

    def __init__(self, domain: Domain, ops: Iterable[OpCost], hints: Mapping[str, int]) -> None:
        self.domain = domain
        self.ops = tuple(ops)
        self.hints = dict(hints)

    @classmethod
    def of(cls, program: Program) -> Cost:
        """Return the cost of a traced program."""
        hints = {each.name: each.hint for each in program.symbols.values() if each.hint is not None}
        return cls(Domain.of(program), op_costs(program.graph), hints)

    def _sum(self, part: Callable[[OpCost], Term]) -> Formula:
        return Formula(arithmetic.total(part(each) for each in self.ops), self.domain)

    @cached_property
    def flops(self) -> Formula:
        """Arithmetic operations (a multiply-add is two)."""
        return self._sum(lambda each: each.flops)

    @cached_property
    def read(self) -> Formula:
        """Bytes read: each op reads each of its operands once."""
        return self._sum(lambda each: each.read)

    @cached_property
    def written(self) -> Formula:
        """Bytes written."""
        return self._sum(lambda each: each.written)

    @cached_property
    def bytes(self) -> Formula:
        """Memory traffic in bytes: read and written."""
        return self._sum(lambda each: each.read + each.written)

    @cached_property
    def kernels(self) -> int:
        """Kernels that eager launches."""
        return sum(each.kernels for each in self.ops)

    def intensity(self, **sizes: int) -> float:
        """Operations a byte of memory traffic, at these sizes."""
        return self.at(**sizes).intensity

    @property
    def unpriced(self) -> dict[str, int]:
        """Ops that no cost rule knows, with the number of their calls; the formulas leave them
        out.
        """
        found: dict[str, int] = {}
        for name in unpriced(self.ops):
            found[name] = found.get(name, 0) + 1
        return found

    @cached_property
    def _totals(self) -> Callable[..., tuple[int, ...]]:
        return self.domain.compiled([self.flops.term, self.read.term, self.written.term])

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset((*self.flops.symbols, *self.read.symbols, *self.written.symbols))

    def at(self, **sizes: int) -> CostAt:
        """Return the cost at these sizes, by compiled formulas.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        flops, read, written = self._totals(self.domain.values(sizes, self._needed))
        return CostAt(flops, read, written, self.kernels)

    def only(self, keep: Callable[[OpCost], bool]) -> Cost:
        """Return the cost of the ops that ``keep`` accepts."""
        return Cost(self.domain, filter(keep, self.ops), self.hints)

    def by(self, what: str) -> dict[str, Cost]:
        """Return the cost split by ``op``, ``line``, ``module``, ``dtype`` or ``family``, in order
        of appearance.

        Raises:
            InputError: it cannot be split by that.
        """
        if what not in GROUPS:
            raise InputError(f"a cost cannot be split by {what!r}; choose from {', '.join(GROUPS)}")
        found: dict[str, list[OpCost]] = {}
        for each in self.ops:
            found.setdefault(GROUPS[what](each), []).append(each)
        return {name: Cost(self.domain, ops, self.hints) for name, ops in found.items()}

    def growth(self, symbol: str, of: str = "flops") -> Growth:
        """Return the growth of a cost (``flops``, ``read`` or ``written``) with one symbol, with
        its ops and lines.

        Raises:
            InputError: there is no such symbol, or no such cost.
        """
        self.domain.require(symbol)
        if of not in ("flops", "read", "written"):
            raise InputError(f"the growth of {of!r} is not known; choose from flops, read, written")
        formulas = [(f"{each.op} at {each.place}", getattr(each, of)) for each in self.ops]
        return growth(symbol_of(symbol), formulas)

    def largest(self, symbol: str, *, flops: int | str, **others: int) -> int:
        """Return the greatest value of ``symbol`` for which the guards hold and the operations stay
        within ``flops``.

        Raises: as :func:`symshape.cost.solving.largest`.
        """
        return self.flops.largest(symbol, amount(flops, "flops"), **others)

    # -- shown
    def table(self, by: str = "op", *, limit: int | None = 12, **sizes: int) -> Table:
        """Return the cost split ``by`` op, line, module, dtype or family: formulas, and values at
        ``sizes``.

        Without ``sizes`` the values are those of the example call.  The largest come first; rows
        beyond ``limit`` are added up in one.

        Raises:
            InputError: it cannot be split by that, or the sizes are wrong.
        """
        point = self._point(sizes)
        rows: list[tuple[CostAt | None, str, Cost]] = [
            (None if point is None else part.at(**point), name, part)
            for name, part in self.by(by).items()
        ]
        if point is not None:
            rows.sort(key=lambda row: -(row[0].flops if row[0] else 0))
        shown_rows, rest = rows[:limit], rows[limit:] if limit is not None else []
        cells = [_cells(name, part, value) for value, name, part in shown_rows]
        if rest:
            left = Cost(self.domain, [each for _, _, part in rest for each in part.ops], self.hints)
            cells.append(
                _cells(f"{len(rest)} more", left, None if point is None else left.at(**point))
            )
        cells.append(_cells("all", self, None if point is None else self.at(**point)))
        columns = (by, "calls", "FLOPs", "bytes moved", "FLOP", "B", "FLOP a byte")
        where = (
            ""
            if point is None
            else " at " + ", ".join(f"{name}={value}" for name, value in point.items())
        )
        return Table(
            f"cost of {self.domain.name}{where}",
            columns,
            tuple(cells),
            code=frozenset({"FLOPs", "bytes moved"}),
            numbers=frozenset({"calls", "FLOP", "B", "FLOP a byte"}),
        )

    def _point(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """Return the sizes at which values are shown: given ones, then the example's; None if one
        is unknown.
        """
        self.domain.check_names(sizes, frozenset())
        known = {**self.hints, **sizes}
        if not self._needed <= known.keys():
            return None
        return {name: known[name] for name in self.domain.symbols if name in known}

    def notes(self) -> list[str]:
        """Return sentences on the ops that are left out, and on the growth of the cost with each
        symbol.
        """
        found = [f"{self.domain.name} {self.growth(name)}" for name in self.domain.symbols]
        if self.unpriced:
            names = ", ".join(f"{name} ({count})" for name, count in self.unpriced.items())
            found.append(f"left out, because no cost rule knows them: {names}")
        return found

    def __str__(self) -> str:
        return "\n".join((table_text(self.table()), *self.notes()))

    def __repr__(self) -> str:
        return f"<Cost of {self.domain.name}: {self.flops.term} FLOPs, {self.bytes.term} bytes>"

    def _repr_html_(self) -> str:
        from html import escape

        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f"<div>{table_html(self.table())}<ul>{notes}</ul></div>"


def _cells(name: str, part: Cost, value: CostAt | None) -> tuple[str, ...]:
    formulas = (_short(str(part.flops)), _short(str(part.bytes)))
    if not any(each.known for each in part.ops):
        return (name, str(len(part.ops)), "unknown", "unknown", "", "", "")
    if value is None:
        return (name, str(len(part.ops)), *formulas, "", "", "")
    return (
        name,
        str(len(part.ops)),
        *formulas,
        shown(value.flops),
        shown(value.bytes),
        f"{value.intensity:.3g}",
    )


def _short(text: str, most: int = 60) -> str:
    """Return a formula of at most so many characters: its first terms, and … for the others."""
    if len(text) <= most:
        return text
    whole = text[: most - 4].rpartition(" ")[0].rstrip(" +-")
    return f"{whole} + …" if whole else text[: most - 1] + "…"


@attrs.frozen
class Growth:
    """The highest power of a symbol in a cost, and the places that cause it.

    Attributes:
        symbol: its name.
        degree: the power, of this symbol alone.
        places: the ops that grow so, each with the user's line, those that weigh most first.
    """

    symbol: str
    degree: int
    places: tuple[str, ...]

    def __str__(self) -> str:
        power = "does not grow" if self.degree == 0 else f"grows with {self.symbol}"
        if self.degree > 1:
            power += f"**{self.degree}"
        if not self.places:
            return power if self.degree else f"{power} with {self.symbol}"
        more = f" and {len(self.places) - 1} more" if len(self.places) > 1 else ""
        return f"{power} in {self.places[0]}{more}"


def degree(term: Term, symbol: Term) -> int:
    """Return the highest power of ``symbol`` that a formula grows with, the other symbols fixed.

    >>> from guards import parse, symbol
    >>> s = symbol("s")
    >>> [
    ...     degree(parse(text), s)
    ...     for text in ("3*s*s + t*s", "(s*s + 7)//8", "min(s, 4)*s", "s % 8", "t*t", "s*s//s")
    ... ]
    [2, 2, 1, 0, 0, 1]
    """
    return fold(term, _degree_of(symbol))


def _degree_of(symbol: Term) -> Callable[[Term, list[int]], int]:
    def algebra(part: Term, operands: list[int]) -> int:
        op = part.op
        if op is Op.SYMBOL:
            return int(part is symbol)
        if not operands:
            return 0
        if op is Op.MUL:
            return sum(operands)
        if op is Op.FLOORDIV:
            return max(0, operands[0] - operands[1])
        if op is Op.MOD or op is Op.MIN:
            return min(operands) if op is Op.MIN or operands[1] else 0
        return max(operands[1:] if op is Op.ITE else operands)

    return algebra


def growth(symbol: Term, formulas: Sequence[tuple[str, Term]]) -> Growth:
    """Return the growth of a sum of formulas, each with its place."""
    degrees = [(place, term, degree(term, symbol)) for place, term in formulas]
    most = max((found for _, _, found in degrees), default=0)
    places: dict[str, int] = {}
    for place, term, found in degrees:
        if found == most and most:
            places[place] = places.get(place, 0) + _leading(term, symbol, most)
    ordered = sorted(places, key=lambda place: -places[place])
    return Growth(symbol.name, most, tuple(ordered))


def _leading(term: Term, symbol: Term, most: int) -> int:
    """Return the weight of a formula: the sum of the coefficients of its fastest-growing part."""
    return sum(coefficient for part, coefficient in split(term)[1] if degree(part, symbol) == most)
