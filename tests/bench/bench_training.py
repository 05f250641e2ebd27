"""Training steps through torch.compile: programs made, and ms a step, against aot_eager, Inductor
and plain eager.

Batch and length change at every step; the same steps for all.  *traces*: programs made by the
backend in all steps, forward and backward.  *step*: median CPU time of forward and backward at
sizes that all have met, one step of each in turn; ratios are medians of the ratios of steps beside
each other.  On a device the time is by the clock, until it is done.  Dynamo's limit of eight
programs for a frame is raised for all: beyond it a peer runs eager, and that is timed. Plain eager
pays for no look-up of Dynamo's, which comes before any backend: a few percent are allowed for it.

*Whole step*: forward, loss, backward and AdamW as one function of ``symshape.compile``, against the
function itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any

import torch

import symshape
from symshape.frontends.dynamo import symshape_backend
from symshape.frontends.dynamo_graph import alive
from tests.bench.report import NotHere, Report, bench_parser
from tests.training import DROPPING, TRAINED, Step, Trained, sizes, step

BACKENDS: dict[str, Callable[[torch.nn.Module], Step]] = {
    "eager": lambda model: model,
    "symshape": lambda model: torch.compile(model, backend=symshape_backend),
    "aot_eager": lambda model: torch.compile(model, backend="aot_eager"),
}
INDUCTOR: dict[str, Callable[[torch.nn.Module], Step]] = {
    "symshape, inductor": lambda model: torch.compile(
        model, backend=symshape_backend, options={"runner": "inductor"}
    ),
    "inductor": lambda model: torch.compile(model, backend="inductor"),
}


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--steps", type=int, default=500, help="steps in which traces are counted (default: 500)"
    )
    parser.add_argument(
        "--timed", type=int, default=60, help="steps that are timed, for each peer (default: 60)"
    )
    parser.add_argument(
        "--models",
        default="",
        help="names with commas between, each with and without dropout (default: all)",
    )
    parser.add_argument("--no-inductor", action="store_true", help="leave out what compiles C++")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise NotHere("there is no CUDA device")
    torch.set_num_threads(1)
    steps, timed = (6, 2) if args.smoke else (args.steps, args.timed)
    wanted = [
        each
        for each in (*TRAINED, *DROPPING)
        if not args.models or each.name.partition(",")[0] in args.models.split(",")
    ]
    report = Report("training", device=args.device)
    peers = BACKENDS if args.no_inductor or args.smoke else BACKENDS | INDUCTOR
    ratios = ("/ eager", "/ aot_eager", "inductor / inductor")
    columns = ("model", "traces fwd/bwd", *(f"{name}, ms" for name in peers), *ratios)
    table = report.table(f"{steps} steps, then {timed} timed", *columns)
    whole = report.table(
        "whole step", "model", "programs", "eager, ms", "symshape.compile, ms", "/ eager"
    )
    for trained in wanted[:1] if args.smoke else wanted:
        tried = BACKENDS if trained in DROPPING else peers
        with torch._dynamo.config.patch(recompile_limit=64):
            traces, times = _measure(trained, tried, steps, timed, torch.device(args.device))
        plain, ratio = (_ratio(times, "symshape", peer) for peer in ("eager", "aot_eager"))
        compiled = _ratio(times, "symshape, inductor", "inductor") if "inductor" in times else None
        medians = [
            statistics.median(times[name]) * 1e3 if name in times else None for name in peers
        ]
        table.row(trained.name, traces, *medians, plain, ratio, compiled)
        if not args.smoke:
            report.goal(f"{trained.name}: symshape / eager", plain, at_most=1.03)
            report.goal(f"{trained.name}: symshape / aot_eager", ratio, at_most=1.0)
            if compiled is not None:
                report.goal(
                    f"{trained.name}: symshape with inductor / inductor", compiled, at_most=1.0
                )
        programs, times = _whole(trained, steps, timed, torch.device(args.device))
        ratio = _ratio(times, "symshape", "eager")
        whole.row(
            trained.name,
            programs,
            *(statistics.median(each) * 1e3 for each in times.values()),
            ratio,
        )
        if not args.smoke:
            report.goal(f"{trained.name}: whole step / eager", ratio, at_most=1.0)
    return report


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return process_time()
    torch.cuda.synchronize()
    return perf_counter()


def _whole(
    trained: Trained, steps: int, timed: int, device: torch.device
) -> tuple[int, dict[str, list[float]]]:
    """Programs of a whole step, and the seconds of each timed one."""

    def made() -> Step:
        model = trained.build().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def train(call: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = step(model, model, call)
            optimizer.step()
            return loss

        return train

    compiled: Any = symshape.compile(made())
    ways: dict[str, Step] = {"eager": made(), "symshape": compiled}
    for batch, length in sizes(steps):
        call = {name: each.to(device) for name, each in trained.call(batch, length).items()}
        for run in ways.values():
            run(call)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number, (batch, length) in enumerate([(4, 24), (7, 33)] * (timed // 2)):
        call = {name: each.to(device) for name, each in trained.call(batch, length).items()}
        for name in _order(list(ways), number):
            start = _now(device)
            ways[name](call)
            times[name].append(_now(device) - start)
    return compiled.stats().traces, times


def _ratio(times: dict[str, list[float]], ours: str, peer: str) -> float:
    return statistics.median(a / b for a, b in zip(times[ours], times[peer], strict=True))


def _measure(
    trained: Trained,
    peers: dict[str, Callable[[torch.nn.Module], Step]],
    steps: int,
    timed: int,
    device: torch.device,
) -> tuple[str, dict[str, list[float]]]:
    """Programs made by our backend, and the seconds of each timed step."""

    def called(batch: int, length: int) -> dict[str, torch.Tensor]:
        return {name: each.to(device) for name, each in trained.call(batch, length).items()}

    torch._dynamo.reset()
    alive.clear()
    torch.manual_seed(0)
    runs: dict[str, tuple[Step, torch.nn.Module]] = {}
    traces = ""
    for name, make in peers.items():
        model = trained.build().to(device)
        run = make(model)
        runs[name] = run, model
        for batch, length in sizes(steps if name == "symshape" else min(steps, 12)):
            step(run, model, called(batch, length))
        if name == "symshape":
            made = [(each.origin.part, each.stats().traces) for each in alive]
            traces = "/".join(
                str(sum(n for part, n in made if part == wanted))
                for wanted in ("forward", "backward")
            )
    times: dict[str, list[float]] = {name: [] for name in peers}
    for number, (batch, length) in enumerate([(4, 24), (7, 33)] * (timed // 2)):
        call = called(batch, length)
        for name in _order(list(peers), number):
            run, model = runs[name]
            start = _now(device)
            step(run, model, call)
            times[name].append(_now(device) - start)
    return traces, times


def _order(names: list[str], number: int) -> list[str]:
    """Who goes first changes, and so does who comes after whom: caches are warm behind one with the
    same kernels.
    """
    at = number // 4 % len(names)
    turned = names[at:] + names[:at]
    return turned if number // 2 % 2 else turned[::-1]


if __name__ == "__main__":
    main()
