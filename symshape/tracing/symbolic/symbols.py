"""The symbols of one trace: their names, their values in the example call, and the inputs they are
read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from guards.sets.sources import Source
from symshape.graph.program import Symbol


class Symbols(Mapping[str, Symbol]):
    """The symbols by name, in order of creation.

    Attributes:
        hints: the values of the backed symbols in the example call.
    """

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self._symbols: dict[str, Symbol] = {}
        self._reserved: set[str] = set()
        self._floats = 0

    def __getitem__(self, name: str) -> Symbol:
        return self._symbols[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def add(self, symbol: Symbol) -> None:
        """Add a symbol."""
        self._symbols[symbol.name] = symbol
        if symbol.hint is not None:
            self.hints[symbol.name] = symbol.hint

    def add_source(self, name: str, source: Source) -> None:
        """Add a further place from which the symbol's value is read; the value must be equal in all
        places.
        """
        known = self._symbols[name]
        self._symbols[name] = attrs.evolve(known, sources=(*known.sources, source))

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve the names that the caller gave to dimensions; no other symbol gets one of
        them.
        """
        self._reserved.update(names)

    def taken(self) -> frozenset[str]:
        """Return all names in use: those of symbols, of floats, and reserved ones."""
        return frozenset(self._reserved) | self._symbols.keys()

    def unbacked_name(self) -> str:
        """Return an unused name for an unbacked integer."""
        return self._fresh("u", sum(1 for each in self._symbols.values() if not each.backed))

    def float_name(self) -> str:
        """Return an unused name for an unbacked float."""
        self._floats += 1
        return self._fresh("f", self._floats - 1)

    def _fresh(self, letter: str, number: int) -> str:
        while (name := f"{letter}{number}") in self._reserved:
            number += 1
        self._reserved.add(name)
        return name
