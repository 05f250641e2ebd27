"""A region seen along two of its symbols, cell by cell: for plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from guards.budget import about, whole_question
from guards.domains.interval_arithmetic import SIZES, Pair
from guards.errors import GuardsError
from guards.facts.definedness import guarded, satisfied
from guards.facts.facts import Facts
from guards.regions.elimination import eliminate
from guards.regions.satisfiability import Ranges, empty_range, facts_of, range_conditions, search
from guards.terms import arithmetic
from guards.terms.arithmetic import symbol
from guards.terms.boolean import FALSE
from guards.terms.fold import substitute
from guards.terms.term import Term, among

_WIDTH = 32  # values shown of a range that has more
_MOST = 1_000_000  # cells


@attrs.frozen
class Grid:
    """The values of two symbols at which a region holds, as a grid of cells.

    Attributes:
        first: the symbol along the rows.
        second: the symbol along the columns.
        columns: the values of the first symbol.
        rows: the values of the second symbol.
        cells: one tuple for each row: whether the region has a point there, None where that was not
            found out.
    """

    first: str
    second: str
    columns: tuple[int, ...]
    rows: tuple[int, ...]
    cells: tuple[tuple[bool | None, ...], ...]

    def __str__(self) -> str:
        drawn = {True: "#", False: ".", None: "?"}
        lines = ["".join(drawn[cell] for cell in row) for row in self.cells]
        width = max((len(str(value)) for value in self.rows), default=0)
        named = [f"{value:>{width}} {line}" for value, line in zip(self.rows, lines, strict=True)]
        spread = f"{self.columns[0]}..{self.columns[-1]}" if self.columns else "nothing"
        return "\n".join(
            [*reversed(named), f"{self.second} upwards, {self.first} from left to right: {spread}"]
        )


@whole_question()
def grid(
    conditions: Sequence[Term],
    ranges: Ranges,
    first: str,
    second: str,
    columns: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    at: Mapping[str, int] | None = None,
) -> Grid:
    """The region along two symbols; ``at`` fixes others, and a cell is in where the rest of them
    can have some values.

    Raises:
        GuardsError: the two symbols are the same, or there are too many cells.

    >>> from guards.terms.arithmetic import symbol
    >>> from guards.terms.boolean import eq, gt
    >>> s0, s1 = symbol("s0"), symbol("s1")
    >>> print(grid([gt(s0 + s1, 4), eq(s1 % 2, 0)], {}, "s0", "s1", range(6), range(4)))
    3 ......
    2 ...###
    1 ......
    0 .....#
    s1 upwards, s0 from left to right: 0..5
    """
    if first == second:
        raise GuardsError(f"a grid needs two symbols, not {first} twice")
    named = {s.name: SIZES for condition in conditions for s in condition.symbols} | {
        first: SIZES,
        second: SIZES,
    }
    ranges = {**named, **ranges}
    if empty_range(ranges):
        return Grid(
            first,
            second,
            tuple(columns or ()),
            tuple(rows or ()),
            _all(False, columns or (), rows or ()),
        )
    facts = facts_of(ranges)
    asked = [guarded(condition, facts) for condition in conditions]
    asked += [c for name, limits in ranges.items() for c in range_conditions(name, limits)]
    fixed = {
        symbol(name): arithmetic.const(value)
        for name, value in (at or {}).items()
        if name not in (first, second)
    }
    asked = [substitute(condition, fixed) for condition in asked]
    known = facts_of(dict.fromkeys(ranges, (None, None)), asked)
    xs = tuple(_shown(*_ends(known, first)) if columns is None else columns)
    ys = tuple(_shown(*_ends(known, second)) if rows is None else rows)
    if len(xs) * len(ys) > _MOST:
        raise GuardsError(
            f"{len(xs)} times {len(ys)} cells are too many; give the columns and rows to be shown"
        )
    if among(FALSE, asked) or known.contradictory:
        return Grid(first, second, xs, ys, _all(False, xs, ys))
    left, exact = eliminate(asked, {symbol(first), symbol(second)})
    about(len(xs) * len(ys))
    cells = tuple(tuple(_cell(left, exact, asked, {first: x, second: y}) for x in xs) for y in ys)
    return Grid(first, second, xs, ys, cells)


def _ends(facts: Facts, name: str) -> Pair:
    found = facts.interval(facts.canonical(symbol(name)))
    return found.lo, found.hi


def _shown(low: int | None, high: int | None) -> range:
    if low is None:
        low = -_WIDTH // 2 if high is None else high - _WIDTH + 1
    return range(low, min(low + _WIDTH - 1, low + _WIDTH if high is None else high) + 1)


def _all(value: bool, xs: Sequence[int], ys: Sequence[int]) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(value for _ in xs) for _ in ys)


def _cell(left: Term, exact: bool, asked: Sequence[Term], values: Mapping[str, int]) -> bool | None:
    if not satisfied(left, values):
        return False
    if exact:
        return True
    here = {symbol(name): arithmetic.const(value) for name, value in values.items()}
    rest = [substitute(condition, here) for condition in asked]
    return search(
        rest, {s.name: (None, None) for condition in rest for s in condition.symbols}
    ).satisfiable
