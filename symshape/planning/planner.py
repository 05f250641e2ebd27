"""``symshape.plan``: choosing the sizes to compile and capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from guards.sets.codegen import compile_check
from guards.terms.term import Term
from symshape.cost.cost import Cost
from symshape.cost.domain import Domain
from symshape.cost.graph_memory import GraphMemory, planned_buckets
from symshape.cost.graph_memory import graph_memory as graph_memory_of
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.units import amount, shown
from symshape.errors import InputError
from symshape.graph.program import Program
from symshape.planning.bucket_plan import BucketPlan, Foretell, check_symbols, outcome
from symshape.planning.candidates import Limits
from symshape.planning.choosing import best_caps, best_of_so_many, least_of_so_many
from symshape.planning.handmade import compared_with
from symshape.planning.prices import Prices, measured_prices
from symshape.planning.traffic import Traffic

OBJECTIVES = ("cost", "latency_p99")
PRICES = ("flops", "bytes")
ENOUGH = 0.05
"""The waste that is low enough if the number of graphs is not limited."""


def plan(
    fn: Any,
    traffic: Traffic | Iterable[Any] | None = None,
    *,
    max_graphs: int | None = None,
    memory: int | str | None = None,
    capture_seconds: float | None = None,
    objective: str = "cost",
    price: str = "flops",
    times: Mapping[Any, float] | None = None,
    seconds_a_graph: float = 0.15,
    graph_memory: int | str | None = None,
) -> BucketPlan:
    """Return the sizes to compile and capture so that padding this traffic to them costs least.

    Args:
        fn: a :class:`symshape.Traced`, a :class:`symshape.Compiled` that has entries, or None for
            the product of sizes.
        traffic: which sizes came how often (:class:`Traffic`); or calls, in the order of the
            trace's symbols.  Without it, what a ``Compiled`` has seen.
        max_graphs: at most so many.
        memory: no graph whose peak memory is above this (a number of bytes, or ``"80 GB"``); what
            is larger runs exact.
        capture_seconds: no more graphs than can be captured in this time.
        objective: ``cost``: the sum over all calls; ``latency_p99``: first the price that 99 of 100
            calls stay within, then the sum (one varying size).
        price: what a call costs: ``flops`` or ``bytes`` of the program's formulas.
        times: measured seconds by size (a tuple of sizes for several symbols) instead of formulas;
            the caps come from these sizes.
        seconds_a_graph: how long a capture is taken to last.
        graph_memory: the most bytes that all graphs together may take on the device (a number, or
            ``"2 GB"``), as ``BucketPlan.graph_memory()`` foretells it: the largest sizes have no
            graph if they do not fit.

    Along one varying size the plan is the cheapest of all that pad to sizes of the traffic (or to
    the next that the guards allow). Along two it is the cheapest in bands
    on a grid of sizes from the traffic (:mod:`symshape.planning.dynamic_programming`), improved by
    local search on the grid (:mod:`symshape.planning.two_sizes`). ``plan.gap`` bounds its extra
    cost over the best plan on that grid.

    Raises:
        InputError: the traffic is empty or has other sizes than the program, more than two sizes
            vary, a limit leaves no graph, or an argument is malformed.

    >>> import symshape
    >>> calls = symshape.Traffic.of([100] * 9 + [900] + [40] * 5, ("length",))
    >>> found = symshape.plan(None, calls, max_graphs=2)
    >>> found.caps, f"{found.waste:.1%}"
    (((100,), (900,)), '15.0%')
    """
    if traffic is None:
        traffic = _seen_by(fn)
    if objective not in OBJECTIVES:
        raise InputError(
            f"there is no objective {objective!r}; choose from {', '.join(OBJECTIVES)}"
        )
    if price not in PRICES:
        raise InputError(
            f"there is no price {price!r}; choose from {', '.join(PRICES)}, or pass measured times="
        )
    counted = memory is not None or graph_memory is not None
    program = _program(fn, traffic)
    prices, seen = _prices_and_traffic(program, traffic, price, times, counted)
    limits = Limits.of(max_graphs, memory, capture_seconds, seconds_a_graph)
    if counted and prices.memory(next(iter(seen.counts))) is None:
        name = "memory" if memory is not None else "graph_memory"
        raise InputError(f"{name}=… needs a traced program, whose peak memory is known")
    foretell = None if program is None else partial(_foretold, program)
    best = partial(_best, prices, seen, objective, seconds_a_graph, foretell)
    if graph_memory is None:
        return best(limits)
    return _within(amount(graph_memory, "bytes", "graph_memory"), best, limits, prices, seen)


def _foretold(program: Program, sizes: Sequence[Mapping[str, int]]) -> GraphMemory:
    return graph_memory_of(list(planned_buckets(program, sizes)))


def _best(
    prices: Prices,
    seen: Traffic,
    objective: str,
    seconds_a_graph: float,
    foretell: Foretell | None,
    limits: Limits,
) -> BucketPlan:
    """Return the best plan within the limits."""
    best = best_caps(prices, seen, limits, objective)
    curve = best[0]
    count = _how_many(curve, limits, outcome(best[1][-1], prices, seen).exact)
    caps = best_of_so_many(best, count, prices, seen, limits)
    others = compared_with(prices, seen, len(caps))
    compared = {name: outcome(other, prices, seen) for name, other in others.items()}
    least = least_of_so_many(best, count, prices, seen, limits) if objective == "cost" else None
    expected = outcome(caps, prices, seen)
    return BucketPlan(
        caps, prices, expected, curve, compared, objective, seconds_a_graph, least, foretell
    )


def _within(
    budget: int, best: Callable[[Limits], BucketPlan], limits: Limits, prices: Prices, seen: Traffic
) -> BucketPlan:
    """Return the best plan whose graphs take at most ``budget`` bytes together, without those of
    the largest sizes.

    Raises:
        InputError: not even the graph of the smallest size fits.
    """
    found = best(limits)
    if _taken(found) <= budget:
        return found
    peaks = sorted({prices.memory(sizes) or 0 for sizes in seen.along(prices.symbols)})
    if limits.memory is not None:
        peaks = [each for each in peaks if each <= limits.memory]
    low, high, fitting = 0, len(peaks) - 1, None  # the greatest peak that a graph may have
    while low <= high:
        middle = (low + high) // 2
        try:
            made = best(attrs.evolve(limits, memory=peaks[middle]))
        except InputError:  # no size that came has such a graph
            low = middle + 1
            continue
        if _taken(made) <= budget:
            low, fitting = middle + 1, made
        else:
            high = middle - 1
    if fitting is None:
        raise InputError(
            f"no graph fits in graph_memory={shown(budget, 'B')}; all of the best plan: "
            f"{found.graph_memory()}"
        )
    return fitting


def _taken(found: BucketPlan) -> int:
    memory = found.graph_memory()
    assert memory is not None
    return memory.total


def _prices_and_traffic(
    program: Program | None,
    traffic: Traffic | Iterable[Any],
    price: str,
    times: Mapping[Any, float] | None,
    memory: bool,
) -> tuple[Prices, Traffic]:
    if program is None:
        if not isinstance(traffic, Traffic):
            raise InputError(
                "without a program the traffic needs names: symshape.Traffic.of(calls, ('length',))"
            )
        if times is not None:
            measured = measured_prices(traffic.symbols, times)
            return Prices(
                traffic.symbols, None, Prices.of_elements(traffic.symbols).guards, (), measured, "s"
            ), traffic
        return Prices.of_elements(traffic.symbols), traffic
    domain = Domain.of(program)
    seen = traffic if isinstance(traffic, Traffic) else Traffic.of(traffic, domain.symbols)
    for name in seen.symbols:
        domain.require(name)
    check_symbols(seen, domain.symbols)
    peak: tuple[Term, ...] = ()
    if memory:
        (known := PeakMemory.of(program)).check_known()
        peak = known._totals
    if times is not None:
        return Prices(
            domain.symbols, None, domain.guards, peak, measured_prices(domain.symbols, times), "s"
        ), seen
    term = getattr(Cost.of(program), price).term
    return Prices(
        domain.symbols, term, domain.guards, peak, unit="FLOP" if price == "flops" else "B"
    ), seen


def _seen_by(fn: Any) -> Traffic:
    if not hasattr(fn, "entries"):
        raise InputError(
            "traffic is needed: only a Compiled that has been called knows which sizes came"
        )
    seen: Traffic = fn.traffic()
    return seen


def _program(fn: Any, traffic: Any) -> Program | None:
    """Return the traced program to plan for; of several entries, the one with most of the traffic's
    symbols, then the one that serves most of its calls.
    """
    if fn is None:
        return None
    if hasattr(fn, "program"):
        return fn.program  # type: ignore[no-any-return]
    entries = list(getattr(fn, "entries", ()))
    if not entries:
        raise InputError(
            "symshape.plan needs a Traced, a Compiled that has been called, or None; "
            f"{type(fn).__name__} has no traced program"
        )
    names = set(traffic.symbols) if isinstance(traffic, Traffic) else set()

    def fitting(entry: Any) -> tuple[int, int, int, int]:
        symbols, calls = (
            entry.program.symbols.keys(),
            sum(each.calls for each in list(entry.seen.values())),
        )
        return len(names & symbols), len(symbols), _served(entry.program, traffic), calls

    return max(entries, key=fitting).program  # type: ignore[no-any-return]


def _served(program: Program, traffic: Any) -> int:
    """Return how many calls the guards of a program let through; 0 if that is not known."""
    if not isinstance(traffic, Traffic) or not program.symbols.keys() <= set(traffic.symbols):
        return 0
    admits = compile_check(program.guards, tuple(program.symbols)).check
    points = traffic.along(tuple(program.symbols))
    return sum(count for sizes, count in points.items() if admits(sizes))


def _how_many(curve: Sequence[float], limits: Limits, exact: float) -> int:
    """Return the number of graphs: all that are allowed or, without a limit, enough for a low
    waste.
    """
    if limits.given:
        return len(curve)
    return next((k for k, cost in enumerate(curve, 1) if cost <= (1 + ENOUGH) * exact), len(curve))
