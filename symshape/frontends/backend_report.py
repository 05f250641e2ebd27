"""The report of the torch.compile backend: one row for each graph made and served, for ``print``
and for notebooks.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from symshape.exploring.tables import Table, table_html, table_text
from symshape.frontends.dynamo_graph import DynamoGraph, Origin, alive
from symshape.frontends.stats import Stats
from symshape.runtime.runners.pieces.runner import padded_parts


@attrs.frozen
class GraphReport:
    """The report of one graph.

    Attributes:
        origin: the part and the function that the graph comes from, and why Dynamo made it.
        ops: calls of operators in its program, or of functions in the graph that runs as Dynamo
            made it; 0 where there is neither.
        sizes: the sizes that vary, each with the place in the user's words where it is read.
        runner: the runner of the program, or ``as Dynamo made it``; empty where the graph was
            refused.
        stats: its counters.
        fallback: which calls ran the graph eagerly, and why; empty if none did.
        exact: sizes that keep their exact value though a padded runner serves, each with the op
            that refused and why.
        plain: which calls ran the graph as Dynamo made it, and why; empty if none did.
    """

    origin: Origin
    ops: int
    sizes: tuple[str, ...]
    runner: str
    stats: Stats
    fallback: str
    exact: tuple[str, ...] = ()
    plain: str = ""


@attrs.frozen
class BackendReport:
    """The graphs that the torch.compile backend has made and served since ``torch.compile`` was
    last reset.

    Attributes:
        graphs: forward, backward and inference graphs, in the order in which Dynamo made them.
    """

    graphs: tuple[GraphReport, ...]

    @property
    def _table(self) -> Table:
        calls = sum(each.stats.calls for each in self.graphs)
        traces = sum(each.stats.traces for each in self.graphs)
        fallbacks = sum(each.stats.fallbacks for each in self.graphs)
        title = (
            f"{len(self.graphs)} graphs, {traces} traced, {calls} calls, {fallbacks} of them eager"
        )
        rows = tuple(_row(each) for each in self.graphs)
        columns = ("graph", "of", "calls", "ops", "sizes that vary", "runner", "made because")
        code = frozenset({"of", "sizes that vary"})
        return Table(title, columns, rows, code=code, numbers=frozenset({"calls", "ops"}))

    def __str__(self) -> str:
        if not self.graphs:
            return (
                "torch.compile has made no graph with the backend symshape, or none is in use "
                "any more"
            )
        told = [each.fallback for each in self.graphs if each.fallback]
        for each in self.graphs:
            texts = (*each.exact, *([each.plain] if each.plain else []))
            told += [f"{each.origin.number} {each.origin.name}: {text}" for text in texts]
        return "\n".join([table_text(self._table), *told])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table_html(self._table)


def backend_report() -> BackendReport:
    """Return a report of the graphs that ``torch.compile(backend="symshape")`` has made and served
    in this process.

    >>> import symshape
    >>> print(symshape.backend_report())  # doctest: +ELLIPSIS
    torch.compile has made no graph with the backend symshape, ...
    """
    graphs: Sequence[DynamoGraph] = sorted(alive, key=lambda each: each.number)
    return BackendReport(tuple(map(_report, graphs)))


def _report(graph: DynamoGraph) -> GraphReport:
    stats = graph.stats()
    fallback = graph.explain_fallback() if stats.fallbacks else ""
    if not graph.entries:
        if not graph.plain_because:
            return GraphReport(graph.origin, 0, (), "", stats, fallback)
        ops, sizes = graph.outline()
        return GraphReport(
            graph.origin,
            ops,
            sizes,
            "as Dynamo made it",
            stats,
            fallback,
            plain=graph.explain_plain(),
        )
    (entry,) = graph.entries
    program = entry.program
    sizes = tuple(
        f"{symbol.name} = {symbol.sources[0].text()}"
        for symbol in program.symbols.values()
        if symbol.sources
    )
    refused = [
        each
        for _, runner in padded_parts(entry.runner, program)
        for each in runner.refusals.items()
    ]
    exact = tuple(f"{name} is not padded: {refusal}" for name, refusal in refused)
    ops, runner = len(program.graph.nodes), entry.runner.describe()
    return GraphReport(
        graph.origin, ops, sizes, runner, stats, fallback, exact, graph.explain_plain()
    )


def _row(each: GraphReport) -> tuple[str, ...]:
    origin = each.origin
    calls, sizes = str(each.stats.calls), ", ".join(each.sizes) or "none"
    reason = origin.reason or "first call"
    return (
        origin.number,
        origin.name,
        calls,
        str(each.ops),
        sizes,
        each.runner or "as Dynamo made it",
        reason,
    )
