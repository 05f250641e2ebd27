"""A bucket plan: the sizes to compile and capture, and the cost of padding to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import le
from pathlib import Path
from typing import Any

import attrs
from attrs import validators

from symshape.cost.graph_memory import GraphMemory
from symshape.cost.units import shown
from symshape.errors import InputError
from symshape.exploring.plots import plot_plan
from symshape.exploring.tables import Table, table_html, table_text
from symshape.forks import cached_property
from symshape.planning.candidates import Limits
from symshape.planning.choosing import best_caps, best_of_so_many
from symshape.planning.prices import Prices, Sizes, named, sizes_of
from symshape.planning.traffic import Traffic

FORMAT = "symshape bucket plan 1"


Foretell = Callable[[Sequence[Mapping[str, int]]], GraphMemory | None]
"""Returns the memory of graphs for sizes by name; None if it is not known."""


def _unknown(sizes: Sequence[Mapping[str, int]]) -> None:
    """Return that the memory of graphs is not known."""


@attrs.frozen
class Outcome:
    """The cost of traffic under a plan.

    Attributes:
        calls: how many there were.
        hits: those that a cap holds.
        exact: what all cost if nothing is padded.
        padded: what all cost under the plan; a call that no cap holds costs what it does unpadded.
    """

    calls: int = attrs.field(validator=[validators.instance_of(int), validators.ge(1)])
    hits: int = attrs.field(validator=validators.instance_of(int))
    exact: float = attrs.field(validator=validators.instance_of((int, float)))
    padded: float = attrs.field(validator=validators.instance_of((int, float)))

    @property
    def waste(self) -> float:
        """The share of work that goes into padding, relative to the cost without padding."""
        return self.padded / self.exact - 1 if self.exact else 0.0

    @property
    def hit_rate(self) -> float:
        """The share of the calls that fit a cap."""
        return self.hits / self.calls


class BucketPlan:
    """The sizes to compile and capture for some traffic.

    Attributes:
        caps: the sizes, each in the order of ``symbols``.
        prices: what a call costs at sizes.
        expected: what the traffic that was planned for costs under the plan.
        curve: for each number of graphs what the best plan with at most that many costs (the first
            is for one graph).
        compared: what other lists with at most as many graphs cost, by name.
        objective: what was minimised.
        seconds_a_graph: how long one capture is taken to last.
        least: what no plan with as many graphs comes under, from the same candidates; None where
            that is not known.
        graph_memory: a function that returns the memory of all graphs on a CUDA device, before one
            is captured. It returns None where no program is known, or where the plan was read from
            a file.

    Args:
        foretell: returns the memory of graphs for sizes by name.
    """

    def __init__(
        self,
        caps: Sequence[Sizes],
        prices: Prices,
        expected: Outcome,
        curve: Sequence[float] = (),
        compared: Mapping[str, Outcome] | None = None,
        objective: str = "cost",
        seconds_a_graph: float = 0.0,
        least: float | None = None,
        foretell: Foretell | None = None,
    ) -> None:
        self.caps = tuple(sorted(caps))
        self.prices = prices
        self.expected = expected
        self.curve = tuple(curve)
        self.compared = dict(compared or {})
        self.objective = objective
        self.seconds_a_graph = seconds_a_graph
        self.least = least
        self.graph_memory = cache(partial(foretell or _unknown, self.sizes))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes."""
        return self.prices.symbols

    @property
    def graphs(self) -> int:
        """The number of graphs of the plan."""
        return len(self.caps)

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """The caps by name."""
        return tuple(dict(zip(self.symbols, cap, strict=True)) for cap in self.caps)

    @property
    def waste(self) -> float:
        """The share of work that goes into padding, relative to the cost without padding."""
        return self.expected.waste

    @property
    def hit_rate(self) -> float:
        """The share of the calls that fit a cap."""
        return self.expected.hit_rate

    @property
    def gap(self) -> float | None:
        """An upper bound on the extra cost over the best plan with as many graphs, as a share (0:
        it is the best).
        """
        return (
            None
            if self.least is None
            else max(0.0, self.expected.padded / self.least - 1)
            if self.least
            else 0.0
        )

    @property
    def capture_seconds(self) -> float:
        """The estimated time to capture all graphs, in seconds."""
        return self.graphs * self.seconds_a_graph

    @cached_property
    def memory(self) -> int | None:
        """The peak memory of the largest cap in bytes, if it is known; graphs share a pool."""
        found = [memory for cap in self.caps if (memory := self.prices.memory(cap)) is not None]
        return max(found, default=None)

    @cached_property
    def _by_price(self) -> list[tuple[float, Sizes]]:
        return _priced(self.caps, self.prices)

    def cap_for(self, **sizes: int) -> dict[str, int] | None:
        """Return the cheapest cap that holds a call of these sizes; None if none does.

        Raises:
            InputError: a size is missing or unknown.
        """
        if sizes.keys() != set(self.symbols):
            raise InputError(
                f"sizes of {', '.join(self.symbols)} are needed, not of "
                f"{', '.join(sizes) or 'nothing'}"
            )
        found = _cheapest(self._by_price, tuple(sizes[name] for name in self.symbols))
        return None if found is None else dict(zip(self.symbols, found[1], strict=True))

    def outcome(self, traffic: Traffic) -> Outcome:
        """Return the cost of other traffic under this plan.

        Raises:
            InputError: the traffic does not have the plan's sizes.
        """
        return outcome(self.caps, self.prices, traffic)

    def regret(self, traffic: Traffic) -> float:
        """Return the extra cost of traffic over the best known plan with as many graphs, as a
        share.

        Raises:
            InputError: the traffic does not have the plan's sizes.
        """
        check_symbols(traffic, self.symbols)
        limits = Limits(self.graphs, True, None)
        best = best_caps(self.prices, traffic, limits, "cost")
        caps = best_of_so_many(best, self.graphs, self.prices, traffic, limits)
        found, mine = outcome(caps, self.prices, traffic).padded, self.outcome(traffic).padded
        return max(0.0, mine / found - 1) if found else 0.0

    def plot(self, traffic: Traffic, axes: Any = None) -> Any:
        """Plot the histogram of the traffic with the caps, and the cost by the number of graphs
        (needs matplotlib).

        Args:
            traffic: what is drawn; one or two of its sizes vary.
            axes: two axes of matplotlib's to draw on; new ones if not given.

        Raises:
            InputError: the traffic does not have the plan's sizes, or matplotlib is not installed.
        """
        check_symbols(traffic, self.symbols)
        varying = [name for name in self.symbols if name in traffic.varying][:2] or [
            self.symbols[0]
        ]
        places = [self.symbols.index(name) for name in varying]
        caps = sorted({tuple(cap[place] for place in places) for cap in self.caps})
        return plot_plan(
            varying, traffic.along(varying), caps, self.curve, self.expected.exact, axes
        )

    # -- kept
    def __eq__(self, other: object) -> bool:
        """Return whether two plans have the same caps, prices, forecasts and objective."""
        if not isinstance(other, BucketPlan):
            return NotImplemented
        return self is other or self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.caps)

    def to_json(self) -> str:
        """Return the plan as JSON, with the formulas that judge it on other traffic."""
        data = {
            "format": FORMAT,
            "caps": [list(cap) for cap in self.caps],
            "prices": self.prices.as_json(),
            "expected": attrs.asdict(self.expected),
            "curve": list(self.curve),
            "compared": {name: attrs.asdict(outcome) for name, outcome in self.compared.items()},
            "objective": self.objective,
            "seconds_a_graph": self.seconds_a_graph,
            "least": self.least,
        }
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str | Path) -> BucketPlan:
        """Read a plan from the JSON of ``to_json``, or from a file of it.

        Raises:
            InputError: it is something else.
        """
        content = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
        try:
            data = json.loads(content)
            if data["format"] != FORMAT:
                raise InputError(
                    f"this is no plan of this version: {data['format']!r} instead of {FORMAT!r}"
                )
            prices, least = Prices.from_json(data["prices"]), data.get("least")
            return cls(
                [sizes_of(cap, prices.symbols) for cap in data["caps"]],
                prices,
                Outcome(**data["expected"]),
                list(map(_number, data["curve"])),
                {name: Outcome(**outcome) for name, outcome in dict(data["compared"]).items()},
                str(data["objective"]),
                _number(data["seconds_a_graph"]),
                None if least is None else _number(least),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"this is no bucket plan: {error!r}") from None

    # -- shown
    def table(self) -> Table:
        """Return a table of the plan and of other lists with at most as many graphs."""
        rows = [("this plan", self.expected, self.graphs)]
        rows += [(name, outcome, self.graphs) for name, outcome in self.compared.items()]
        cells = tuple(
            (
                name,
                f"{outcome.waste:.1%}",
                f"{outcome.hit_rate:.1%}",
                shown(outcome.padded, self.prices.unit),
            )
            for name, outcome, _ in rows
        )
        title = f"{self.graphs} graphs for {self.expected.calls} calls"
        return Table(
            title,
            ("caps", "waste", "hits", "padded cost"),
            cells,
            numbers=frozenset({"waste", "hits", "padded cost"}),
        )

    def __str__(self) -> str:
        lines = [
            table_text(self.table()),
            "caps: " + "; ".join(named(self.symbols, cap) for cap in self.caps),
        ]
        if self.gap is not None:
            gap = (
                f"at most {self.gap:.1%} dearer than the best"
                if self.gap > 1e-9
                else "the best there is"
            )
            lines.append(f"of all plans with as many graphs: {gap}")
        if self.memory is not None:
            lines.append(f"peak memory of the largest: {shown(self.memory, 'B')}")
        if self.seconds_a_graph:
            lines.append(f"capturing: about {self.capture_seconds:.1f} s")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<BucketPlan: {self.graphs} graphs, waste {self.waste:.1%}, hit rate "
            f"{self.hit_rate:.1%}>"
        )

    def _repr_html_(self) -> str:
        caps = Table(
            "caps",
            self.symbols,
            tuple(tuple(map(str, cap)) for cap in self.caps),
            numbers=frozenset(self.symbols),
        )
        return f"<div>{table_html(self.table())}{table_html(caps)}</div>"


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return value  # type: ignore[no-any-return]


def check_symbols(traffic: Traffic, symbols: Sequence[str]) -> None:
    """Raise InputError unless the traffic has these sizes."""
    missing = [name for name in symbols if name not in traffic.symbols]
    if missing:
        raise InputError(
            f"the traffic has no size {missing[0]!r}; it has {', '.join(traffic.symbols)} "
            f"(where it is always the same: traffic.having({missing[0]}=…))"
        )


def outcome(caps: Sequence[Sizes], prices: Prices, traffic: Traffic) -> Outcome:
    """Return the cost of traffic when each call is padded to the cheapest cap that holds it.

    Raises:
        InputError: the traffic does not have the sizes that prices are asked for.
    """
    check_symbols(traffic, prices.symbols)
    by_price = _priced(caps, prices)
    exact: float = 0
    padded: float = 0
    hits = 0
    for point, count in traffic.along(prices.symbols).items():
        price = prices.exact(point)
        found = _cheapest(by_price, point)
        exact += price * count
        padded += (price if found is None else found[0]) * count
        hits += 0 if found is None else count
    return Outcome(traffic.calls, hits, exact, padded)


def _priced(caps: Sequence[Sizes], prices: Prices) -> list[tuple[float, Sizes]]:
    return sorted((prices.at(cap), cap) for cap in caps)


def _cheapest(by_price: Sequence[tuple[float, Sizes]], sizes: Sizes) -> tuple[float, Sizes] | None:
    for price, cap in by_price:
        if all(map(le, sizes, cap)):
            return price, cap
    return None
