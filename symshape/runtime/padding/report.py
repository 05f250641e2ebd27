"""The padding report: for each symbol its capacity and the repairs inserted for it, or the op that
refused, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby
from textwrap import indent

import attrs

from symshape.graph.program import Program
from symshape.runtime.padding.emission import Repair
from symshape.runtime.padding.planning import Plan, candidates, left_out, plan
from symshape.runtime.padding.transform import Refusal, device_of
from symshape.runtime.pieces.cutting import cut

__all__ = ["PaddingReport", "SymbolPadding", "padding_of", "report_of"]


@attrs.frozen
class SymbolPadding:
    """The padding of one symbol of a program.

    Attributes:
        name: the symbol.
        capacity: the largest value that one program serves; None for an exact symbol.
        fixed: whether the guards leave it one value.
        repairs: the repairs inserted for it, in the order of the program.
        refusal: why it keeps its exact value; None if it is padded, or never could be.
    """

    name: str
    capacity: int | None
    fixed: bool = False
    repairs: tuple[Repair, ...] = ()
    refusal: Refusal | None = None

    @property
    def padded(self) -> bool:
        """Return whether one program serves a range of the symbol's values."""
        return self.capacity is not None

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"{self.name}: refused by {self.refusal}"
        if self.fixed:
            return f"{self.name}: fixed by the guards"
        if self.capacity is None:
            return f"{self.name}: exact (it sizes no tensor by itself)"
        lines = [
            f"{self.name}: padded to {self.capacity}"
            + ("" if self.repairs else ", no repair needed")
        ]
        for (what, op), found in groupby(self.repairs, key=lambda each: (each.what, each.op)):
            places = [each.where for each in found]
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            lines.append(f"  {what} for {op} at {places[0]}{more}")
        return "\n".join(lines)


@attrs.frozen
class PaddingReport:
    """The padding of a program's symbols.

    Attributes:
        symbols: by name.
        pieces: the reports of the recorded pieces, by piece, if the program cannot be recorded
            whole.
        others: the pieces that run eagerly, each with the reasons.
    """

    symbols: Mapping[str, SymbolPadding]
    pieces: Mapping[str, PaddingReport] = attrs.field(factory=dict)
    others: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    @property
    def padded(self) -> tuple[str, ...]:
        """The names of the padded symbols."""
        return tuple(name for name, each in self.symbols.items() if each.padded)

    def __str__(self) -> str:
        whole = "\n".join(map(str, self.symbols.values())) or "no symbols"
        if not self.pieces:
            return whole
        found = {0: f"as one program:\n{indent(whole, '  ')}"}
        for name, each in self.pieces.items():
            found[_place(name)] = f"{name}:\n{indent(str(each), '  ')}"
        for name, reasons in self.others.items():
            found[_place(name)] = "\n  ".join([f"{name} runs eagerly:", *reasons])
        return "\n".join(found[place] for place in sorted(found))


def _place(name: str) -> int:
    """Return the number in the name of a piece."""
    return int(name.split()[1])


def report_of(program: Program, made: Plan) -> PaddingReport:
    """Return the report of a plan."""
    repairs = made.padded.repairs if made.padded is not None else ()
    found = {}
    for symbol in program.symbols.values():
        if symbol.backed:
            own = tuple(each for each in repairs if symbol.name in each.symbols)
            refusal = made.refusals.get(symbol.name)
            cap = made.caps.get(symbol.name)
            region = made.padded.region if made.padded is not None else None
            fixed = cap is not None and region is not None and region.fixed(symbol.term, cap)
            found[symbol.name] = SymbolPadding(
                symbol.name, None if fixed else cap, fixed, own, refusal
            )
    return PaddingReport(found)


def padding_of(program: Program, *, any_randomness: bool = False) -> PaddingReport:
    """Plan the padding of a program at the capacities around its example call, and return the
    report.

    ``any_randomness``: the program may draw other random numbers than eager.
    """
    made = _example(program, any_randomness)
    left = left_out(made.refusals.values() if made.padded is None else ())
    whole = report_of(program, made)
    parts = cut(program, device_of(program.graph), left, draws=any_randomness)
    names = {f"piece {number} of {len(parts) - 1}": part for number, part in enumerate(parts, 1)}
    programs = {name: part.program for name, part in names.items() if part.piece.recorded}
    pieces = {
        name: report_of(piece, _example(piece, any_randomness)) for name, piece in programs.items()
    }
    return attrs.evolve(
        whole,
        pieces=pieces,
        others={name: part.reasons for name, part in names.items() if part.reasons},
    )


def _example(program: Program, any_randomness: bool) -> Plan:
    values = {
        name: symbol.hint for name, symbol in program.symbols.items() if symbol.hint is not None
    }
    if candidates(program):
        with suppress(ValueError):  # data-dependent sizes have no example
            return plan(program, values, any_randomness=any_randomness)
    return Plan(None, None, values, {}, {})
