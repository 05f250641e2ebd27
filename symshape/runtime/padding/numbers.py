"""The integers of a padded program that differ from call to call: formulas of the sizes, computed
all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guards.terms.generated import generated_function
from guards.terms.straight_line import StraightLine, once
from guards.terms.term import Op, Term

__all__ = ["Numbers"]


class Numbers:
    """Integers of a padded program, evaluated together for a call by one generated function.

    >>> from guards import parse
    >>> numbers = Numbers()
    >>> places = [
    ...     numbers.place(parse("s0 * s1")),
    ...     numbers.place(7),
    ...     numbers.place(parse("s0 * s1")),
    ... ]
    >>> found = numbers.at({"s0": 2, "s1": 5, "s2": 9})
    >>> [found[place] for place in places]
    [10, 7, 10]
    """

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._symbols: tuple[str, ...] = ()
        self._compute: Callable[[Sequence[int]], tuple[int, ...]] | None = None

    def place(self, size: Any) -> int:
        """Return the index of a size (an int, a term, or an object with a term) among the results,
        added if new.
        """
        if not isinstance(size, (int, Term)):
            size = size.term
        elif isinstance(size, bool):
            size = int(size)
        found = self._places.get(size)
        if found is None:
            found = self._places[size] = len(self._places)
            self._compute = None
        return found

    def places(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return :meth:`place` of each size."""
        return tuple(map(self.place, sizes))

    def at(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """Return all integers, for these values of symbols.

        Raises:
            KeyError: a symbol has no value.
            ZeroDivisionError: a size divides by a size that is 0.
        """
        compute = self._compute or self._compiled()
        return compute([values[each] for each in self._symbols])

    def _compiled(self) -> Callable[[Sequence[int]], tuple[int, ...]]:
        terms = [size for size in self._places if isinstance(size, Term)]
        symbols = sorted(
            {symbol for term in terms for symbol in term.symbols}, key=lambda each: each.order
        )
        names = {symbol.name: f"v{i}" for i, symbol in enumerate(symbols)}
        lines = StraightLine(names)
        parts = [
            str(size) if isinstance(size, int) else _integer(size, lines) for size in self._places
        ]
        unpack = [f"{', '.join(names.values())}, = values"] if names else []
        body = [*unpack, *lines.steps, f"return ({', '.join(parts)},)"] if parts else ["return ()"]
        source = "def numbers(values):\n" + "\n".join(f"    {line}" for line in body) + "\n"
        made: Callable[[Sequence[int]], tuple[int, ...]] = generated_function(
            source, "numbers", "symshape padded sizes", {"_once": once}
        )
        self._symbols, self._compute = tuple(names), made
        return made


def _integer(term: Term, lines: StraightLine) -> str:
    """Return the code of a term as an integer; a truth value is converted."""
    text = lines.expression(term)
    return f"int({text})" if term.op not in (Op.CONST, Op.SYMBOL, Op.ADD, Op.MUL) else text
