"""State outside the arguments, on whole models: what finding it costs in a trace, and what checking
it costs a call.

Transformers' GPT-2 (12 layers), Llama (12 and 48) and a ResNet-50 layout, narrow, each as a module:

- *trace*: the first call of a compiled module, in ms, on the clock and of the processor; *memory*:
  what Python has allocated more after it, in MB; *peak*: the most that it had allocated while
  tracing.
- *look-up*: a warm call up to where its graph runs (key, memo or tree, state), in µs.
- *state check*: of it, ``State.unchanged``; *of it, tensors*: the metadata of parameters and
  buffers.

``--against FOLDER`` measures another checkout too, in turn with this one, each round in a process
of its own.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from torch import nn

import symshape
from symshape.calls.call_key import read
from tests.bench.report import NotHere, Report
from tests.bench.timing import measure_together

HERE = Path(__file__).resolve()
FIGURES = (
    "trace ms",
    "trace CPU ms",
    "memory MB",
    "peak MB",
    "look-up µs",
    "state check µs",
    "of it, tensors µs",
)
WARM = 24  # calls before a warm one is measured: the state is watched by then


def _gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 100, "n_positions": 64, "n_embd": 48, "n_layer": layers, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0))


def _llama(layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return LlamaForCausalLM(
        LlamaConfig(**sizes, vocab_size=100, num_hidden_layers=layers, use_cache=False)
    )


def _resnet(blocks: int) -> Any:
    from transformers import ResNetConfig, ResNetModel

    depths = [3, 4, blocks, 3] if blocks > 1 else [1, 1, 1, 1]
    return ResNetModel(
        ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=depths)
    )


def _ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.zeros(1, 4, dtype=torch.long)}


def _pixels() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.zeros(1, 3, 32, 32)}


Rows = dict[str, tuple[Callable[[int], Any], int, Callable[[], dict[str, torch.Tensor]]]]


def rows(smoke: bool) -> Rows:
    """By name: the model, its depth, and the arguments of a call."""
    if smoke:
        return {"GPT-2, 1 layer": (_gpt2, 1, _ids), "ResNet of 4 blocks": (_resnet, 1, _pixels)}
    llamas = {f"Llama, {layers} layers": (_llama, layers, _ids) for layers in (12, 48)}
    return {"GPT-2, 12 layers": (_gpt2, 12, _ids), **llamas, "ResNet-50": (_resnet, 6, _pixels)}


def _looked_up(compiled: Any, model: nn.Module, arguments: dict[str, torch.Tensor]) -> Any:
    """The entry for a call, as the slow path of a call finds it."""
    leaves, structure, values = read(model, (), arguments)
    known = getattr(getattr(compiled, "_dispatcher", compiled), "known", None) or getattr(
        compiled, "_known", None
    )
    if known is not None:  # not in checkouts from before there were questions
        structure = known.with_answers(structure, leaves)
    return compiled._cache.find(structure, values)


def figures(
    make: Callable[[int], Any], depth: int, arguments: dict[str, torch.Tensor], samples: int
) -> list[float]:
    """One round of the figures of one model, in the order of ``FIGURES``, then its modules and
    tensors.
    """
    torch.manual_seed(0)
    model: nn.Module = make(depth).eval()
    gc.collect()
    start, worked = perf_counter(), process_time()
    compiled = symshape.compile(model, options={"plain_calls": False})
    # a checkout from before they were modules
    compiled = getattr(compiled, "__symshape_compiled__", compiled)
    compiled(**arguments)
    trace, worked = perf_counter() - start, process_time() - worked
    other: nn.Module = make(depth).eval()
    gc.collect()
    tracemalloc.start()
    kept = symshape.compile(other, options={"plain_calls": False})
    kept(**arguments)
    gc.collect()
    memory, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for _ in range(WARM):
        compiled(**arguments)
    state: Any = compiled._cache.branches[0].state
    calls: dict[str, Callable[[], Any]] = {
        "look-up": lambda: _looked_up(compiled, model, arguments),
        "state": state.unchanged,
        "tensors": getattr(state, "_quick_tensors", None)
        or state._same_tensors,  # the latter in older checkouts
    }
    if not all(call() for call in calls.values()):
        raise RuntimeError("the state is no longer the traced one")
    took = measure_together(calls, samples=samples, sample_us=2000.0, warmup=WARM)
    times = [took[name].least for name in calls]  # the samples that no other process disturbed
    parts = len(list(model.modules())), len(getattr(state._metadata, "tensors", state._metadata))
    return [trace * 1e3, worked * 1e3, memory / 1e6, peak / 1e6, *times, *parts]


def _round(checkout: Path, smoke: bool) -> dict[str, list[float]]:
    """The figures of all models, from a fresh process that imports one checkout."""
    command = [sys.executable, str(HERE), "--round", *["--smoke"] * smoke]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    run = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    return measured


def measure_round(smoke: bool) -> dict[str, list[float]]:
    """The figures of all models, here."""
    torch.set_num_threads(1)
    with torch.no_grad():
        return {
            name: figures(make, depth, call(), 5 if smoke else 60)
            for name, (make, depth, call) in rows(smoke).items()
        }


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures this checkout, and another one where it is given."""
    # which an older checkout, that a round imports, need not have
    from tests.bench.report import against_parser

    args = against_parser(__doc__).parse_args(argv)
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    del transformers
    report = Report("state")
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
        table = report.table(
            f"{name}: commit {commit}, median of rounds", "model", "modules", "tensors", *FIGURES
        )
        for model in rows(args.smoke):
            middle = [
                statistics.median(column)
                for column in zip(*(each[model] for each in rounds[name]), strict=True)
            ]
            table.row(model, int(middle[-2]), int(middle[-1]), *middle[:-2])
            if name == "here" and not args.smoke:
                places = middle[-4] - middle[-3]
                report.goal(f"state of {model}, without tensors, µs a call", places, at_most=10.0)
    return report


if __name__ == "__main__":
    print(json.dumps(measure_round("--smoke" in sys.argv)))
