"""Plans for traffic: waste against lists made by hand with as many graphs, how far from the best,
and how quickly.

Azure's trace (the bundled sample), the project's log-normal stream, and three made-up families.
Calls are priced by the product of their sizes (*elements*) and by the FLOPs of a Llama-shaped model
of two layers (*llama*).  *waste*: what goes into padding, as a part of what nothing padded costs.
*hand*: the better of a geometric list and of vLLM's, thinned to as many graphs.  *gap*: by how much
the plan is dearer than the best one at most (0 along one size: it is the best).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import process_time

import torch

import symshape
from symshape import Traffic
from tests.bench.report import NotHere, Report, bench_parser
from tests.models import MODELS
from tests.symshape.planning.families import FAMILIES


def _llama() -> symshape.Traced:
    (model,) = (each for each in MODELS if each.name == "llama")
    ids = model.call(3, 12)["input_ids"]
    with torch.no_grad():
        return symshape.trace(
            model.build(), input_ids=ids, dynamic={"input_ids": {0: "batch", 1: "length"}}
        )


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    args = bench_parser(__doc__).parse_args(argv)
    if args.device != "cpu":
        raise NotHere("plans are made on the CPU")
    report = Report("plans", device=args.device)
    calls = 300 if args.smoke else 20_000
    table = report.table(
        "plans", "traffic", "price", "graphs", "waste", "hand", "plan / hand", "gap", "CPU s"
    )
    prices: dict[str, symshape.Traced | None] = (
        {"elements": None} if args.smoke else {"elements": None, "llama": _llama()}
    )
    ratios: list[float] = []
    for name, make in FAMILIES.items():
        for price, program in prices.items():
            traffic = make(calls)
            if program is not None and "batch" not in traffic.symbols:
                traffic = traffic.having(batch=4)
            for graphs in (8,) if args.smoke else (8, 16, 32):
                start = process_time()
                plan = symshape.plan(program, traffic, max_graphs=graphs)
                seconds = process_time() - start
                hand = min(other.waste for other in plan.compared.values())
                ratios.append(plan.waste / hand)
                table.row(name, price, graphs, plan.waste, hand, ratios[-1], plan.gap, seconds)
    if args.smoke:
        return report
    report.goal("median of waste / the better hand list's", statistics.median(ratios), at_most=0.75)
    report.goal("greatest of them", max(ratios), at_most=0.75)
    table = report.table("100,000 calls, 24 graphs", "traffic", "CPU s")
    slowest = 0.0
    for name, make in FAMILIES.items():
        traffic = make(100_000)
        start = process_time()
        symshape.plan(None, traffic, max_graphs=24)
        slowest = max(slowest, process_time() - start)
        table.row(name, process_time() - start)
    calls_of = [(size, count) for (size,), count in FAMILIES["heavy tail"](100_000).counts.items()]
    start = process_time()
    Traffic.of((size for size, count in calls_of for _ in range(count)), ("length",))
    report.note(f"counting 100,000 calls into a histogram: {process_time() - start:.2f} s")
    report.goal("seconds a plan for 100,000 calls", slowest, at_most=2)
    return report


if __name__ == "__main__":
    main()
