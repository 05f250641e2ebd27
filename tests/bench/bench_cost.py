"""Formulas of cost and peak memory against the trace that they are read from, and a plan for 100,000 calls.

A Llama-shaped model of 12 layers is traced; then its cost and its peak memory are made into formulas, and evaluated.
Nobody else makes such formulas, so there is no peer: the trace itself is what the time is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

import symshape
from symshape import Traffic
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together


def _llama(layers: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False)).eval()
    return model


def _seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = run()
    return perf_counter() - start, result


def main(argv: Sequence[str] | None = None) -> Report:
    args = bench_parser(__doc__).parse_args(argv)
    report = Report("cost", device=args.device)
    ids = torch.zeros(3, 17, dtype=torch.long)
    table = report.table("formulas of a Llama, ms", "layers", "trace", "cost", "peak memory")
    for layers in (1,) if args.smoke else (1, 12):
        model = _llama(layers)
        with torch.no_grad():
            symshape.trace(model, input_ids=ids)  # the first trace imports and compiles
            traced_s, traced = _seconds(lambda model=model: symshape.trace(model, input_ids=ids))  # type: ignore[misc]
        cost_s, cost = _seconds(lambda traced=traced: (found := traced.cost(), found.flops.term, found.bytes.term)[0])  # type: ignore[misc]
        peak_s, peak = _seconds(traced.peak_memory)
        table.row(layers, traced_s * 1e3, cost_s * 1e3, peak_s * 1e3)
    if not args.smoke:  # of one layer there is too little to measure
        report.goal("formulas / trace", (cost_s + peak_s) / traced_s, at_most=0.5)
    at = {"s0": 8, "s1": 4096}
    points = {"cost": lambda: cost.at(**at), "peak memory": lambda: peak.at(**at)}
    times = measure_together(points, samples=10 if args.smoke else 1000)
    table = report.table("a value, µs", "of", "median", "p99")
    for name, time in times.items():
        table.row(name, time.median, time.p99)
    report.goal("slowest median, µs", max(time.median for time in times.values()), at_most=50)
    rng = random.Random(args.seed)
    calls = [(rng.choice((1, 2, 3, 4, 5, 6, 8)), int(rng.lognormvariate(4.6, 0.9))) for _ in range(100_000)]
    traffic = Traffic.of([(batch, min(1024, max(2, n))) for batch, n in calls], ("batch", "length"))
    table = report.table("plans for 100,000 calls", "graphs", "s", "waste", "geometric", "like vLLM's")
    for graphs in (8,) if args.smoke else (8, 16, 32):
        planned_s, plan = _seconds(lambda graphs=graphs: symshape.plan(None, traffic, max_graphs=graphs))  # type: ignore[misc]
        others = [outcome.waste for outcome in plan.compared.values()]
        table.row(graphs, planned_s, plan.waste, *others)
    report.goal("seconds a plan", planned_s, at_most=2)
    return report
