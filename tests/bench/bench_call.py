"""What a call spends outside the graph, step by step; and the graph itself, op by op, against
eager.

The first table is of warm calls of whole models as modules: everything but the run of the graph,
which is replaced by its own last result. The steps are measured alone, so that they need not add
up. `memo miss` is a call with sizes that a known entry serves and that were never seen.
`--against CHECKOUT` measures another checkout in turn. Units: µs of this thread's own time, the
least sample of the rounds: other processes take part of the machine, and its clock changes.

The second table is of `runner="eager"` against the model itself, sampled in turn, milliseconds,
medians.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time_ns
from typing import Any

import torch

import symshape
from tests.bench.bench_state import WARM, _gpt2, _llama, _resnet
from tests.bench.report import NotHere, Report
from tests.bench.timing import measure_together

HERE = Path(__file__).resolve()
STEPS = ("call of the module", "key", "memo", "state", "of it, tensors", "result", "memo miss")
Arguments = Callable[[int], dict[str, torch.Tensor]]


def _bert(layers: int) -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128
        )
    )


def _ids(size: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.zeros(1 + size % 7, 2 + size // 7, dtype=torch.long)}


def _pixels(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.zeros(2 + size, 3, 32, 32)}


Rows = dict[str, tuple[Callable[[int], Any], int, Arguments]]


def rows(smoke: bool) -> Rows:
    """By name: the model, its depth, and the arguments of a call by a number for its sizes."""
    if smoke:
        return {"GPT-2, 1 layer": (_gpt2, 1, _ids)}
    llamas: Rows = {f"Llama, {layers} layers": (_llama, layers, _ids) for layers in (12, 48)}
    return {"GPT-2, 12 layers": (_gpt2, 12, _ids), **llamas, "ResNet-50": (_resnet, 6, _pixels)}


def _least(call: Callable[[], Any], rounds: int, repeats: int = 50) -> float:
    """The least time of a call over rounds.  Units: µs of this thread."""
    taken = []
    for _ in range(rounds):
        start = thread_time_ns()
        for _ in range(repeats):
            call()
        taken.append((thread_time_ns() - start) / repeats / 1e3)
    return min(taken)


def figures(
    make: Callable[[int], Any], depth: int, arguments: Arguments, rounds: int
) -> list[float]:
    """What the steps of a warm call of one model cost, in the order of ``STEPS``."""
    torch.manual_seed(0)
    module = symshape.compile(make(depth).eval(), dynamic=True, options={"plain_calls": False})
    compiled = symshape.compiled_of(module)
    for size in (8, 17, 26, *[8] * WARM):
        module(**arguments(size))
    given = arguments(8)
    cache, leaves = compiled._cache, tuple(given.values())
    key = cache.makers[len(leaves)](leaves, given)
    found = cache.find_exact(key)
    if found is None:
        raise RuntimeError("a call that was made again is not known")
    entry, values, _ = found
    flat = entry.run(leaves, values)
    _without_graph(compiled, flat)
    state: Any = cache.branches[0].state
    steps: list[Callable[[], Any]] = [
        lambda: module(**given),
        lambda: cache.makers[len(leaves)](leaves, given),
        lambda: cache.branches[0].memo.get(key),
        state.unchanged,
        getattr(state, "_quick_tensors", None)
        or state._same_tensors,  # the latter in older checkouts
        lambda: entry.build(flat),
    ]
    return [
        *(_least(step, rounds) for step in steps),
        _misses(compiled, module, arguments, rounds, flat),
    ]


def _without_graph(compiled: Any, flat: list[Any]) -> None:
    for each in compiled.entries:
        each.run = lambda leaves, values: flat


def _misses(
    compiled: Any, module: Any, arguments: Arguments, rounds: int, flat: list[Any]
) -> float:
    sizes = [arguments(size) for size in range(8, 108)]
    for each in sizes:
        module(**each)
    _without_graph(compiled, flat)
    traces, taken = compiled.stats().traces, []
    for _ in range(max(3, rounds // 4)):
        for branch in compiled._cache.branches:
            branch.memo.clear()
        for entry in compiled.entries:
            entry.seen.clear()
        start = thread_time_ns()
        for each in sizes:
            module(**each)
        taken.append((thread_time_ns() - start) / len(sizes) / 1e3)
    if compiled.stats().traces != traces:
        raise RuntimeError("a call of known sizes was traced")
    return min(taken)


def measure_round(smoke: bool) -> dict[str, list[float]]:
    """The figures of all models, here."""
    torch.set_num_threads(1)
    with torch.no_grad():
        return {
            name: figures(*row, rounds=5 if smoke else 100) for name, row in rows(smoke).items()
        }


def _round(checkout: Path, smoke: bool) -> dict[str, list[float]]:
    """The figures of all models, from a fresh process that imports one checkout."""
    command = [sys.executable, str(HERE), "--round", *["--smoke"] * smoke]
    environment = os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{HERE.parents[2]}"}
    run = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    return measured


def against_eager(report: Report, smoke: bool) -> None:
    """The second table."""
    ids = {"input_ids": torch.zeros(1 if smoke else 2, 4 if smoke else 24, dtype=torch.long)}
    models: dict[str, tuple[Callable[[int], Any], int, dict[str, torch.Tensor]]] = {
        "GPT-2": (_gpt2, 12, ids),
        "Llama": (_llama, 12, ids),
        "BERT": (_bert, 12, ids),
        "ResNet-50": (_resnet, 6, _pixels(0)),
    }
    table = report.table(
        "runner eager against the model", "model", "eager ms", "ours ms", "ours / eager"
    )
    for name, (make, depth, given) in list(models.items())[: 1 if smoke else None]:
        model = make(1 if smoke else depth).eval()
        compiled = symshape.compile(model, runner="eager")
        with torch.no_grad():
            calls = {
                "eager": lambda m=model, g=given: m(**g),
                "ours": lambda c=compiled, g=given: c(**g),
            }
            took = measure_together(
                calls, samples=3 if smoke else 150, sample_us=1.0, warmup=3 if smoke else 2 * WARM
            )
        eager, ours = took["eager"].median / 1e3, took["ours"].median / 1e3
        table.row(name, eager, ours, ours / eager)
        if not smoke:
            report.goal(f"{name}, ours / eager", ours / eager, at_most=1.0)


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures this checkout, and another one where it is given."""
    # which an older checkout, that a round imports, need not have
    from tests.bench.report import against_parser

    args = against_parser(__doc__).parse_args(argv)
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    report = Report("call")
    checkouts = {"here": HERE.parents[2]} | (
        {"other": args.against.resolve()} if args.against else {}
    )
    rounds: dict[str, list[dict[str, list[float]]]] = {name: [] for name in checkouts}
    for _ in range(1 if args.smoke else args.rounds):
        for name, checkout in checkouts.items():
            rounds[name].append(_round(checkout, args.smoke))
    for name, checkout in checkouts.items():
        described = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(
            described, capture_output=True, text=True, check=False
        ).stdout.strip()
        table = report.table(f"{name}: commit {commit}, outside the graph, µs", "model", *STEPS)
        for model in rows(args.smoke):
            least = [
                min(column) for column in zip(*(each[model] for each in rounds[name]), strict=True)
            ]
            table.row(model, *least)
            if name == "here" and model.startswith("GPT-2") and not args.smoke:
                report.goal(f"warm call of {model}, outside the graph, µs", least[0], at_most=15.0)
                report.goal(
                    f"call of {model} with new sizes, outside the graph, µs",
                    least[-1],
                    at_most=60.0,
                )
    against_eager(report, args.smoke)
    return report


if __name__ == "__main__":
    print(json.dumps(measure_round("--smoke" in sys.argv)))
