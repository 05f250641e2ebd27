"""Traffic as a histogram: the number of calls for each combination of sizes.

>>> traffic = Traffic.of([(1, 5), (1, 7), (1, 5)], ("batch", "length"))
>>> traffic.counts
{(1, 5): 2, (1, 7): 1}
>>> traffic.varying, traffic.calls
(('length',), 3)
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from guards import GuardsError, parse, symbol
from symshape.errors import InputError
from symshape.forks import cached_property

_LARGEST = 2**62


class Traffic:
    """A histogram of the sizes of calls.

    Attributes:
        symbols: the names of the sizes.
        counts: for each combination of sizes the number of calls.
    """

    def __init__(self, symbols: Sequence[str], counts: Mapping[tuple[int, ...], int]) -> None:
        self.symbols = tuple(symbols)
        self.counts = dict(counts)
        wrong = next(
            (
                point
                for point, count in self.counts.items()
                if len(point) != len(self.symbols) or count < 1
            ),
            None,
        )
        if wrong is not None:
            raise InputError(
                f"{wrong!r} must be a size for each of {', '.join(self.symbols)}, with the number "
                f"of its calls, not {self.counts[wrong]!r}"
            )
        for name in self.symbols:
            if self.symbols.count(name) > 1:
                raise InputError(f"the traffic names {name!r} twice; give each size its own name")
            if not _is_symbol(name):
                raise InputError(
                    f"{name!r} cannot name a size: it must be an identifier that means nothing "
                    "else in a formula, such as length, or a place like x.size(0)"
                )
        if not self.counts:
            raise InputError(
                "the traffic is empty: there is nothing to plan for; pass at least one call's sizes"
            )

    @classmethod
    def of(cls, calls: Iterable[Any], symbols: Sequence[str]) -> Traffic:
        """Count calls: each an integer (for one symbol), a sequence or shape, or a mapping from
        symbols.

        Raises:
            InputError: there are none, or one has other sizes than the symbols, or none at all.
        """
        symbols = (symbols,) if isinstance(symbols, str) else tuple(symbols)
        counts: dict[tuple[int, ...], int] = {}
        for number, call in enumerate(calls):
            point = _point(call, symbols, f"call {number} of the traffic")
            counts[point] = counts.get(point, 0) + 1
        return cls(symbols, counts)

    @classmethod
    def read(cls, path: str | Path, columns: Mapping[str, str] | Sequence[str]) -> Traffic:
        """Read traffic from a CSV file with a header, or from a JSONL file of objects.

        Args:
            path: the file; ``.jsonl`` or ``.json`` is read as one JSON object a line, all else as
                CSV.
            columns: for each symbol the name of its column or key; a sequence where they are the
                same.

        Raises:
            InputError: the file cannot be read, a column is missing, or a row holds no size.
        """
        names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        symbols = tuple(names)
        counts: dict[tuple[int, ...], int] = {}
        try:
            with Path(path).open(encoding="utf-8", newline="") as lines:
                for number, row in _rows(lines, str(path)):
                    missing = [name for name in names.values() if name not in row]
                    if missing:
                        raise InputError(
                            f"{path}:{number} has no {missing[0]!r}; it has "
                            f"{', '.join(map(str, row))}"
                        )
                    given = {symbol: row[name] for symbol, name in names.items()}
                    point = _point(given, symbols, f"{path}:{number}")
                    counts[point] = counts.get(point, 0) + 1
        except OSError as error:
            raise InputError(f"the traffic cannot be read: {error}") from None
        return cls(symbols, counts)

    def having(self, **sizes: int) -> Traffic:
        """Return the same calls with further sizes that are the same for all of them.

        >>> Traffic.of([5, 7], ("length",)).having(batch=1).counts
        {(5, 1): 1, (7, 1): 1}
        """
        added = tuple(_size(size, f"having({name}=…)") for name, size in sizes.items())
        return Traffic(
            (*self.symbols, *sizes),
            {(*point, *added): count for point, count in self.counts.items()},
        )

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(self.counts.values())

    @cached_property
    def fixed(self) -> dict[str, int]:
        """The symbols that never varied, with their value."""
        first = next(iter(self.counts))
        return {
            name: first[index]
            for index, name in enumerate(self.symbols)
            if all(point[index] == first[index] for point in self.counts)
        }

    @property
    def varying(self) -> tuple[str, ...]:
        """The symbols that took several values."""
        return tuple(name for name in self.symbols if name not in self.fixed)

    def along(self, symbols: Sequence[str]) -> dict[tuple[int, ...], int]:
        """Return the histogram of some of the symbols."""
        places = [self.symbols.index(name) for name in symbols]
        found: dict[tuple[int, ...], int] = {}
        for point, count in self.counts.items():
            key = tuple(point[place] for place in places)
            found[key] = found.get(key, 0) + count
        return found

    def __repr__(self) -> str:
        return (
            f"<Traffic: {self.calls} calls, {len(self.counts)} different sizes of "
            f"{', '.join(self.symbols)}>"
        )


def _is_symbol(name: Any) -> bool:
    """Return whether a formula can contain the name."""
    try:
        return type(name) is str and parse(name) is symbol(name)
    except GuardsError:
        return False


def _rows(lines: Iterable[str], path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if not path.endswith((".jsonl", ".json")):
        yield from enumerate(csv.DictReader(lines), 2)
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number} is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number} is no object but {line.strip()[:60]!r}")
        yield number, row


def _point(call: Any, symbols: tuple[str, ...], where: str) -> tuple[int, ...]:
    if isinstance(call, Mapping):
        missing = [name for name in symbols if name not in call]
        if missing:
            raise InputError(
                f"{where} has no size {missing[0]!r}; it has {', '.join(map(str, call))}"
            )
        values: Sequence[Any] = [call[name] for name in symbols]
    elif isinstance(call, Sequence) and not isinstance(call, str):
        values = call
    else:
        values = [call]
    if len(values) != len(symbols):
        raise InputError(
            f"{where} has {len(values)} sizes, but there are {len(symbols)} symbols: "
            f"{', '.join(symbols)}"
        )
    return tuple(_size(value, where) for value in values)


def _size(value: Any, where: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        size = int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {value!r} is no size") from None
    if size != (float(value) if isinstance(value, float) else size) or not 0 <= size < _LARGEST:
        raise InputError(f"{where}: {value!r} is no size; a size is an integer, 0 or more")
    return size
