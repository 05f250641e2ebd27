"""What it costs to make programs and buckets: the first calls of models whose sizes never repeat,
by phase.

Each model is called with sizes drawn anew, in eager and with ``runner="padded"`` on the CPU, where
nothing is replayed: what is left beside eager's work is the making.  CPU time of one thread.

- *first calls*: the first call, the dearest one, all of them, and eager's; how often the padding
  rules walked.
- *phases*: where the time of these calls goes, each phase without those inside it.  A collection of
  garbage is a phase.
- *a new bucket*: the plan for sizes that no bucket holds yet, by a blueprint, and derived by the
  rules.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import symshape
from guards.sets.guard_set import GuardSet
from symshape.graph import codegen
from symshape.options import Options
from symshape.runtime.padding import blueprint, planning
from symshape.runtime.runners.padded import bucket, fusion
from symshape.runtime.runners.pieces import runner
from symshape.tracing import capture
from symshape.tracing.garbage import seldom_collected
from tests.bench.report import NotHere, Report, bench_parser

CALLS = 12
PHASES: dict[str, list[tuple[Any, str]]] = {
    "trace": [(capture, "trace_once")],
    "guards minimised": [(GuardSet, "minimise")],
    "cut into pieces": [(runner, "cut")],
    "padding rules": [(planning, "pad")],
    "blueprint": [(blueprint.Blueprint, "__init__")],
    "instance": [(blueprint.Blueprint, "serves"), (blueprint.Blueprint, "at")],
    "results": [(planning, "Results")],
    "bucket": [(bucket.Bucket, "__init__")],
    "code": [(module, "compile_graph") for module in (codegen, blueprint, fusion)],
    "run": [(bucket.Bucket, "call")],
}


class Phases:
    """CPU seconds by phase, each without those inside it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((*PHASES, "garbage", "all else"), 0.0)
        self._inner: list[float] = []
        self._begun = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside is of this phase."""
        start = time.process_time()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = time.process_time() - start
            self.seconds[name] += took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        return run

    def _collected(self, moment: str, info: dict[str, int]) -> None:
        if moment == "start":
            self._begun = time.process_time()
            return
        took = time.process_time() - self._begun
        self.seconds["garbage"] += took
        if self._inner:
            self._inner[-1] += took

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Times what happens inside."""
        gc.callbacks.append(self._collected)
        try:
            with ExitStack() as stack:
                for name, functions in PHASES.items():
                    for owner, attribute in functions:
                        timed = self._timed(name, getattr(owner, attribute))
                        stack.enter_context(patch.object(owner, attribute, timed))
                yield
        finally:
            gc.callbacks.remove(self._collected)


def _gpt2(layers: int, dropout: float = 0.0) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 512, "n_positions": 512, "n_embd": 64, "n_layer": layers, "n_head": 4}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(**sizes, **drops, bos_token_id=0, eos_token_id=0))


def _llama(layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=512, num_hidden_layers=layers, **sizes))


def _step(layers: int, dropout: float = 0.0) -> Callable[[torch.Tensor], Any]:
    """A whole step of training: forward, loss, backward, clipped gradients, AdamW."""
    model = _gpt2(layers, dropout).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(ids: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def _inference(model: Any) -> Callable[[torch.Tensor], Any]:
    model.eval()

    def logits(ids: torch.Tensor) -> Any:
        with torch.no_grad():
            return model(input_ids=ids, use_cache=False).logits

    return logits


PROGRAMS: dict[str, tuple[Callable[[int], Any], Options]] = {
    "GPT-2, a step of training": (_step, Options()),
    "GPT-2, a step, dropout": (lambda layers: _step(layers, 0.1), Options()),
    'GPT-2, a step, dropout, randomness="any"': (
        lambda layers: _step(layers, 0.1),
        Options(randomness="any"),
    ),
    "GPT-2": (lambda layers: _inference(_gpt2(layers)), Options()),
    "Llama": (lambda layers: _inference(_llama(layers)), Options()),
}


def _each(call: Callable[[torch.Tensor], Any], stream: Sequence[torch.Tensor]) -> list[float]:
    """The CPU seconds of each call."""
    found = []
    for ids in stream:
        start = time.process_time()
        call(ids)
        found.append(time.process_time() - start)
    return found


def _new_buckets(
    compiled: Any, rng: random.Random, number: int
) -> tuple[int, list[float], list[float]]:
    """The nodes of the largest padded program; milliseconds of plans for sizes drawn anew, both
    ways.
    """
    entry = compiled.entries[-1]
    program, _ = max(
        runner.padded_parts(entry.runner, entry.program), key=lambda each: len(each[0].graph.steps)
    )
    hints = {name: symbol.hint for name, symbol in program.symbols.items()}
    known = planning.blueprints_of(program, any_randomness=True, compiled=True)
    took: tuple[list[float], list[float]] = ([], [])
    for count in range(number + 1):
        sizes = {**hints, "s0": rng.randint(3, 64), "s1": rng.randint(9, 400)}
        for blueprints, times in zip((known, None), took, strict=True):
            start = time.process_time()
            with seldom_collected():  # as calls do
                planning.plan(program, sizes, blueprints=blueprints, any_randomness=True)
            if count:  # the first one derives the blueprint
                times.append((time.process_time() - start) * 1e3)
    return len(program.graph.nodes), *took


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures all tables."""
    args = bench_parser(__doc__).parse_args(argv)
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    del transformers
    torch.set_num_threads(1)
    layers, calls = (1, 4) if args.smoke else (6, CALLS)
    report = Report("making")
    first = report.table(
        "first calls, CPU s", "program", "traces", "walks", "first", "dearest", "all", "eager"
    )
    phases = report.table("phases, CPU s", "program", *Phases().seconds)
    buckets = report.table(
        "a new bucket, CPU ms", "program", "nodes", "by blueprint", "by the rules", "ratio"
    )
    for name, (make, options) in PROGRAMS.items():
        rng = random.Random(args.seed)
        stream = [
            torch.randint(0, 512, (rng.randint(2, 8), rng.randint(8, 100))) for _ in range(calls)
        ]
        eager = sum(_each(make(layers), stream))
        compiled: Any = symshape.compile(make(layers), runner="padded", options=options)
        found, walks = Phases(), patch.object(planning, "pad", side_effect=planning.pad)
        gc.collect()
        with walks as walked, found.measured(), found.phase("all else"):
            took = _each(compiled, stream)
        counted = compiled.stats().traces, walked.call_count
        first.row(name, *counted, took[0], max(took), sum(took), eager)
        phases.row(name, *found.seconds.values())
        nodes, by_blueprint, by_rules = _new_buckets(compiled, rng, 2 if args.smoke else 10)
        ratio = median(by_blueprint) / median(by_rules)
        buckets.row(name, nodes, median(by_blueprint), median(by_rules), ratio)
        if make is _step:
            report.goal("the first call of a step of training, CPU s", took[0], at_most=1.5)
            report.goal(
                "a new bucket of a step of training, CPU ms", median(by_blueprint), at_most=10
            )
        report.goal(f"{name}: a new bucket, by blueprint over by the rules", ratio, at_most=0.15)
    return report
