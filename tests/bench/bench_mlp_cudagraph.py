"""A small MLP under CUDA graphs: ours, torch.compile's modes, and the floor (copy in, raw replay,
clone out), in one process.

The model is 1024-1024-1024 with a ReLU, batch 256, fp32, no gradients; sixteen inputs take turns,
each at an address of its own. ``first 50`` is what a user sees who makes one warm-up call and then
50; ``steady`` is the median over rounds of many calls. Both are wall-clock per call with one
synchronisation at the end; host µs is the time until the call returns, before it. The variants take
turns within each round.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence

import torch

import symshape
from tests.bench.report import NotHere, Report, bench_parser

Function = Callable[[torch.Tensor], torch.Tensor]
MODES = ("default", "reduce-overhead", "max-autotune")


def mlp() -> torch.nn.Module:
    """The model of the design's facts."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    return torch.nn.Sequential(*layers).cuda().eval()


def raw_replay(model: torch.nn.Module, example: torch.Tensor) -> tuple[Function, Function]:
    """A hand-written CUDA graph: (copy + replay + clone, replay alone)."""
    static = example.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(static)

    def copied(x: torch.Tensor) -> torch.Tensor:
        static.copy_(x)
        graph.replay()
        return output.clone()

    def alone(x: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return output

    return copied, alone


def timed(fn: Function, inputs: Sequence[torch.Tensor], calls: int) -> tuple[float, float]:
    """(µs a call, host µs a call) over ``calls`` calls with one synchronisation at the end; the
    inputs take turns.
    """
    given = [inputs[i % len(inputs)] for i in range(calls)]
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for x in given:
        fn(x)
    host = time.perf_counter_ns() - start
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) / calls / 1e3, host / calls / 1e3


def hosted(fn: Function, inputs: Sequence[torch.Tensor]) -> float:
    """Median host µs of single calls with an idle queue: what the call costs the CPU, not the wait
    for a full queue.
    """
    taken = []
    for i in range(200):
        x = inputs[i % len(inputs)]
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        fn(x)
        taken.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(taken)


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures all variants in turn."""
    args = bench_parser(__doc__, device="cuda").parse_args(argv)
    if not torch.cuda.is_available():
        raise NotHere("needs a CUDA device")
    logging.disable(logging.ERROR)  # autotuning logs the configurations that do not fit
    model, x = mlp(), torch.randn(256, 1024, device="cuda")
    report = Report("mlp_cudagraph", device="cuda")
    with torch.no_grad():
        expected = model(x)
        compiled = symshape.compile(model, runner="cudagraph")
        copied, alone = raw_replay(model, x)
        inputs = [x, *(torch.randn_like(x) for _ in range(15))]
        auto = symshape.compile(mlp())
        variants: dict[str, Function] = {
            "eager": model,
            "symshape cudagraph": compiled,
            "symshape auto": auto,
        }
        for mode in MODES:
            variants[mode] = torch.compile(mlp(), mode=mode)
        variants |= {"raw copy + replay + clone": copied, "raw replay alone": alone}
        # the card's clocks rise with its first work: it would be the first variant's
        awake = time.perf_counter() + 0.3
        while time.perf_counter() < awake:
            timed(alone, inputs, 200)
        first: dict[str, float] = {}
        for name, fn in variants.items():  # as a user would: one warm-up, then 50 calls
            if fn is not alone:  # which reads what was copied last
                torch.testing.assert_close(fn(x), expected)
            first[name] = timed(fn, inputs, 50)[0]
        rounds: dict[str, list[float]] = {name: [] for name in variants}
        fifties: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(3 if args.smoke else 15):
            for name, fn in variants.items():
                rounds[name].append(timed(fn, inputs, 200 if args.smoke else 2000)[0])
                fifties[name].append(timed(fn, inputs, 50)[0])
        host = {name: hosted(fn, inputs) for name, fn in variants.items()}
        assert compiled.stats().cuda_graphs == 1, compiled.stats()
    steady = {name: statistics.median(times) for name, times in rounds.items()}
    again = {name: statistics.median(times) for name, times in fifties.items()}
    table = report.table(
        "µs a call", "who", "first 50", "50 again (median)", "steady (median)", "host, idle queue"
    )
    for name in variants:
        table.row(name, first[name], again[name], steady[name], host[name])
    ours, floor = "symshape cudagraph", "raw copy + replay + clone"
    for who in (ours, "symshape auto"):
        report.goal(f"first 50, {who} / {floor}", first[who] / first[floor], at_most=1.1)
        report.goal(f"steady, {who} / {floor}", steady[who] / steady[floor], at_most=1.1)
        report.goal(f"host µs a call, {who}", host[who], at_most=20.0)
    report.goal(
        "steady, symshape auto / eager", steady["symshape auto"] / steady["eager"], at_most=1.05
    )
    for mode in MODES:
        report.goal(f"first 50, ours / {mode}", first[ours] / first[mode], at_most=1.0)
        report.goal(f"steady, ours / {mode}", steady[ours] / steady[mode], at_most=1.0)
    return report


if __name__ == "__main__":
    print(main().text())
