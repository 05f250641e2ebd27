"""The price of a call at sizes: a formula of a trace, the product of the sizes, or measured
times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any

from guards import GuardSet, parse
from guards.sets.serialize import from_json as guards_from_json
from guards.sets.serialize import to_json as guards_to_json
from guards.terms import arithmetic
from guards.terms.arithmetic import symbol
from guards.terms.term import Term
from symshape.cost.domain import Domain
from symshape.errors import InputError

Sizes = tuple[int, ...]


class Prices:
    """The price of a call at sizes.

    Attributes:
        symbols: the sizes that it is asked for, in order.
        guards: what a padded size has to fulfil.
        measured: prices by sizes where they were measured; only these sizes can be caps then.
    """

    def __init__(
        self,
        symbols: Sequence[str],
        term: Term | None,
        guards: GuardSet,
        memory: Sequence[Term] = (),
        measured: Mapping[Sizes, float] | None = None,
        unit: str = "FLOP",
    ) -> None:
        self.symbols = tuple(symbols)
        self.guards = guards
        self.term = term
        self.memory_terms = tuple(memory)
        self.measured = None if measured is None else dict(measured)
        self.unit = unit
        domain = self._domain = Domain("the plan", self.symbols, guards, {})
        self._evaluate = None if term is None else domain.compiled([term])
        self._memory = domain.compiled(self.memory_terms) if memory else None

    @classmethod
    def of_elements(cls, symbols: Sequence[str]) -> Prices:
        """Return the product of the sizes as the price, for calls without a known program."""
        return cls(symbols, arithmetic.prod(symbol(name) for name in symbols), GuardSet(), unit="")

    def at(self, sizes: Sizes) -> int | float:
        """Return the price at these sizes.

        Raises:
            InputError: prices were measured, but not here.
        """
        if self.measured is not None:
            if sizes not in self.measured:
                raise InputError(f"no time was measured at {named(self.symbols, sizes)}")
            return self.measured[sizes]
        assert self._evaluate is not None
        return self._evaluate(sizes)[0]

    def exact(self, sizes: Sizes) -> int | float:
        """Return the price of a call that is not padded, or the least measured price that holds
        it; 0 where the guards do not hold and the formula has no value.
        """
        if self.measured is None:
            try:
                return self.at(sizes)
            except ZeroDivisionError:  # a quotient by a size, which the guards keep above zero
                return 0
        fitting = [
            price
            for cap, price in self.measured.items()
            if all(c >= s for c, s in zip(cap, sizes, strict=True))
        ]
        return min(fitting, default=max(self.measured.values()))

    def memory(self, sizes: Sizes) -> int | None:
        """Return the peak memory of a call in bytes, if it is known."""
        return None if self._memory is None else max(self._memory(sizes))

    def allows(self, sizes: Sizes) -> bool:
        """Return whether a call can be padded to these sizes."""
        if self.measured is not None and sizes not in self.measured:
            return False
        return bool(self.guards.holds(dict(zip(self.symbols, sizes, strict=True))))

    def may(self, given: Mapping[str, int]) -> bool:
        """Return whether the guards that speak of these sizes alone hold."""
        return not self._domain.broken(given)

    def as_json(self) -> dict[str, Any]:
        """Return the prices as plain data."""
        measured = (
            None
            if self.measured is None
            else [[list(sizes), price] for sizes, price in self.measured.items()]
        )
        return {
            "symbols": list(self.symbols),
            "formula": None if self.term is None else str(self.term),
            "guards": guards_to_json(self.guards),
            "memory": [str(term) for term in self.memory_terms],
            "measured": measured,
            "unit": self.unit,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prices:
        """Read prices from plain data.

        Raises:
            ValueError, KeyError, TypeError: these are none.
        """
        read = guards_from_json(data["guards"], kind="guard_set")
        assert isinstance(read, GuardSet)
        symbols, measured, formula = data["symbols"], data["measured"], data["formula"]
        if not all(type(name) is str for name in symbols):
            raise TypeError(f"{symbols!r} are no names of sizes")
        if formula is None and measured is None:
            raise ValueError("neither a formula nor measured prices")
        return cls(
            symbols,
            None if formula is None else arithmetic.integer(parse(formula)),
            read,
            [arithmetic.integer(parse(text)) for text in data["memory"]],
            None
            if measured is None
            else measured_prices(symbols, {tuple(sizes): price for sizes, price in measured}),
            str(data["unit"]),
        )


def named(symbols: Sequence[str], sizes: Sequence[int]) -> str:
    """Return sizes with their names."""
    return ", ".join(f"{name}={size}" for name, size in zip(symbols, sizes, strict=True))


def measured_prices(
    symbols: Sequence[str], times: Mapping[Any, float] | Callable[..., float]
) -> Mapping[Sizes, float]:
    """Check measured times by sizes: a mapping from a size, or from a tuple of sizes in the order
    of the symbols.

    Raises:
        InputError: there are none, or one is no time or has other sizes.
    """
    if not isinstance(times, Mapping) or not times:
        raise InputError("times must map sizes to seconds, with at least one of them")
    found: dict[Sizes, float] = {}
    given: Mapping[Any, Any] = times
    for key, value in given.items():
        try:
            sizes = sizes_of(key if isinstance(key, tuple) else (key,), symbols)
        except ValueError as error:
            raise InputError(f"times has sizes {key!r}, but {error}") from None
        try:
            seconds = nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = nan
        if not 0 <= seconds < inf:
            raise InputError(f"times[{key!r}]={value!r} is no time in seconds")
        found[sizes] = value if type(value) is int else seconds
    return found


def sizes_of(given: Any, symbols: Sequence[str]) -> Sizes:
    """Return a size for each symbol.

    Raises:
        ValueError: these are others.
    """
    sizes = tuple(given)
    if len(sizes) != len(symbols) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"a size for each of {', '.join(symbols)} is needed")
    return sizes
