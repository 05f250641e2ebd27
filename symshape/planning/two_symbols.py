"""Caps along two symbols: bands of the first, each with caps of its own along the second.

The plan is the cheapest of all banded plans over a grid of candidates. For each band the best caps along the second
symbol are known for every number of caps (``one_symbol``). Another dynamic program distributes the caps over the bands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from symshape.planning.one_symbol import Choices, Number, choose_caps


@attrs.frozen
class Banded:
    """The best banded plans.

    Attributes:
        costs: ``costs[k]``: what all calls cost with ``k`` caps; None where that many bring nothing.
        plans: ``plans[k]``: the caps as pairs of candidates' indices.
    """

    costs: tuple[Number | None, ...]
    plans: tuple[tuple[tuple[int, int], ...], ...]


@attrs.frozen
class _State:
    cost: Number
    before: tuple[int, int]  # the band's first candidate, and the caps left for what is below
    choices: Choices | None
    count: int
    columns: tuple[int, ...]


def choose_bands(
    counts: Mapping[tuple[int, int], int], rows: int, columns: int, price: Callable[[int, int], Number], most: int
) -> Banded:
    """Return the best caps on a grid of ``rows`` by ``columns`` candidates, for each number of caps up to ``most``.

    Args:
        counts: how many calls have the pair of candidates as the least that holds them.
        rows: how many candidates there are along the first symbol.
        columns: how many along the second.
        price: what a call padded to a pair of candidates costs.
        most: how many caps at most.

    >>> calls = {(0, 0): 9, (0, 1): 1, (1, 0): 9, (1, 1): 1}
    >>> found = choose_bands(calls, 2, 2, lambda i, j: (i + 1) * (10 * j + 1), 4)
    >>> found.costs, found.plans[2]
    ((None, 440, 80, 150, 60), ((1, 0), (1, 1)))
    """
    table: list[dict[int, _State]] = [{0: _State(0, (-1, 0), None, 0, ())}, *({} for _ in range(rows))]
    for last in range(rows):
        band = [0] * columns
        prices = [price(last, column) for column in range(columns)]
        for first in range(last, -1, -1):
            for column in range(columns):
                band[column] += counts.get((first, column), 0)
            used = [column for column in range(columns) if band[column]]
            if not used:  # no caps are needed
                _improve(table, first, last, None, (0,), (), most)
                continue
            choices = choose_caps([band[column] for column in used], [prices[column] for column in used], most)
            _improve(table, first, last, choices, range(1, len(choices.costs)), tuple(used), most)
    return _read(table, rows, most)


def _improve(
    table: list[dict[int, _State]],
    first: int,
    last: int,
    choices: Choices | None,
    numbers: Sequence[int],
    columns: tuple[int, ...],
    most: int,
) -> None:
    """Record this band, served by ``numbers`` of caps, above the best plans below it, where the sum is the least."""
    for below, state in table[first].items():
        for number in numbers:
            added = 0 if choices is None else choices.costs[number]
            total = below + number
            if added is None or total > most:
                continue
            known = table[last + 1].get(total)
            if known is None or state.cost + added < known.cost:
                table[last + 1][total] = _State(state.cost + added, (first, below), choices, number, columns)


def _read(table: list[dict[int, _State]], rows: int, most: int) -> Banded:
    costs: list[Number | None] = [None]
    plans: list[tuple[tuple[int, int], ...]] = [()]
    for total in range(1, most + 1):
        state = table[rows].get(total)
        costs.append(None if state is None else state.cost)
        pairs: list[tuple[int, int]] = []
        row, left = rows, total
        while state is not None and row > 0:
            if state.choices is not None:
                pairs += [(row - 1, state.columns[index]) for index in state.choices.caps(state.count)]
            row, left = state.before
            state = table[row][left]
        plans.append(tuple(sorted(pairs)))
    return Banded(tuple(costs), tuple(plans))
