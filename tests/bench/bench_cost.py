"""Formulas of cost and peak memory against the trace that they are read from, forward and in
training.

A Llama-shaped model of 12 layers is traced; then its cost and its peak memory are made into
formulas, and evaluated. Nobody else makes such formulas, so there is no peer: the trace itself is
what the time is compared with.  CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import torch

import symshape
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together


def _llama(layers: int) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": layers,
    }
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False)).eval()
    return model


def _seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = process_time()
    result = run()
    return process_time() - start, result


def _loss(result: Any) -> torch.Tensor:
    loss: torch.Tensor = result.logits.float().square().mean()
    return loss


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
        cost_s, cost = _seconds(
            lambda traced=traced: (found := traced.cost(), found.flops.term, found.bytes.term)[0]
        )  # type: ignore[misc]
        peak_s, peak = _seconds(traced.peak_memory)
        table.row(layers, traced_s * 1e3, cost_s * 1e3, peak_s * 1e3)
    if not args.smoke:  # of one layer there is too little to measure
        report.goal("formulas / trace", (cost_s + peak_s) / traced_s, at_most=0.5)
    table = report.table(
        "a step of training with AdamW, ms", "layers", "trace", "cost", "peak memory"
    )
    for layers in (1,) if args.smoke else (1, 12):
        model = _llama(layers)
        step_s, step = _seconds(
            lambda model=model: symshape.trace_training(model, loss=_loss, input_ids=ids)
        )  # type: ignore[misc]
        step.optimizer = torch.optim.AdamW(model.parameters())
        step_cost_s, _ = _seconds(
            lambda step=step: (found := step.cost(), found.flops.term, found.bytes.term)[0]
        )  # type: ignore[misc]
        step_peak_s, _ = _seconds(step.peak_memory)
        table.row(layers, step_s * 1e3, step_cost_s * 1e3, step_peak_s * 1e3)
    at = {"s0": 8, "s1": 4096}
    points = {"cost": lambda: cost.at(**at), "peak memory": lambda: peak.at(**at)}
    times = measure_together(points, samples=10 if args.smoke else 1000)
    table = report.table("a value, µs", "of", "median", "p99")
    for name, time in times.items():
        table.row(name, time.median, time.p99)
    report.goal("slowest median, µs", max(time.median for time in times.values()), at_most=50)
    return report
