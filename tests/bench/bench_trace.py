"""What a trace costs as models grow, and what the graph that comes of it costs against eager.

- *growth*: ``symshape.trace`` of transformers' Llama and GPT-2, narrow, of ever more layers: CPU
  time an op, least of some traces, with a model's first trace left out.  A cost that is linear is
  the same in every row.
- *graph*: the models of ``tests/models.py`` in eager, as a compiled module (``runner="eager"``),
  and the graph of it alone, in turn; CPU time of one thread, medians.  *call / eager* above 1 would
  be a graph slower than the program.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import symshape
from tests.bench.bench_state import WARM, _gpt2, _llama
from tests.bench.report import NotHere, Report, Table, bench_parser
from tests.models import MODELS

LAYERS = (6, 12, 24, 48, 96)


def _cpu_ms(call: Callable[[], Any], times: int) -> list[float]:
    """Milliseconds of CPU time of each call, without collections of garbage."""
    found = []
    for _ in range(times):
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            call()
            found.append((time.process_time() - start) * 1e3)
        finally:
            gc.enable()
    return found


def growth(
    report: Report,
    table: Table,
    name: str,
    make: Callable[[int], Any],
    layers: Sequence[int],
    times: int,
) -> None:
    """One row for each depth of a model."""
    ids = torch.zeros(3, 17, dtype=torch.long)
    an_op: list[float] = []
    before = None
    for depth in layers:
        model = make(depth).eval()
        traced = symshape.trace(model, input_ids=ids)
        least = min(_cpu_ms(lambda model=model: symshape.trace(model, input_ids=ids), times))  # type: ignore[misc]
        ops = len(traced.graph.nodes)
        an_op.append(least / ops * 1e3)
        more = None if before is None else (least - before[1]) / (ops - before[0]) * 1e3
        before = ops, least
        table.row(f"{name}, {depth} layers", ops, len(traced.guards), least, an_op[-1], more)
    report.goal(
        f"{name}: dearest over cheapest depth, µs an op", max(an_op) / min(an_op), at_most=1.2
    )
    report.goal(f"{name}: deepest over shallowest, µs an op", an_op[-1] / an_op[0], at_most=1.2)


def against_eager(table: Table, rounds: int, models: Sequence[Any]) -> list[float]:
    """One row for each model; the ratios of a compiled call to an eager one."""
    ratios = []
    for each in models:
        model, call = each.build(), each.call(4, 32)
        compiled = symshape.compile(model, options={"plain_calls": False})
        for batch, length in ((4, 32), (3, 17)):
            compiled(**each.call(batch, length))
        for _ in range(WARM):
            compiled(**call)
        leaves = tuple(call.values())
        cache: Any = symshape.compiled_of(compiled)._cache
        entry, values, _ = cache.find_exact(cache.makers[len(leaves)](leaves, call))
        calls: dict[str, Callable[[], Any]] = {
            "eager": lambda model=model, call=call: model(**call),
            "call": lambda compiled=compiled, call=call: compiled(**call),
            "graph": lambda entry=entry, leaves=leaves, values=values: entry.run(leaves, values),
        }
        took: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, run in calls.items():
                took[name] += _cpu_ms(run, 1)
        eager, whole, graph = (statistics.median(each) for each in took.values())
        ratios.append(whole / eager)
        table.row(each.name, len(entry.program.graph.nodes), eager, whole / eager, graph / eager)
    return ratios


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures both tables."""
    args = bench_parser(__doc__).parse_args(argv)
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    del transformers
    torch.set_num_threads(1)
    report = Report("trace")
    table = report.table(
        "growth", "model", "ops", "guards", "trace ms", "µs an op", "µs an op more"
    )
    graphs = report.table("graph", "model", "nodes", "eager ms", "call / eager", "graph / eager")
    with torch.no_grad():
        for name, make in (("Llama", _llama), ("GPT-2", _gpt2))[: 1 if args.smoke else None]:
            growth(
                report, table, name, make, (1, 2) if args.smoke else LAYERS, 1 if args.smoke else 4
            )
        plain = [each for each in MODELS if "mask" not in each.name]
        ratios = against_eager(graphs, 3 if args.smoke else 60, plain[:1] if args.smoke else plain)
    report.goal("a compiled call over eager, slowest model", max(ratios), at_most=1.0)
    return report
