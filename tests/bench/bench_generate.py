"""``generate`` with a growing cache: the time of a token against eager and ``torch.compile``, on tiny models.

Each way generates greedily from prompts of other lengths until it makes no more programs; then all ways generate the
same, in turn. What is measured is the processor time of a whole ``generate``, over its tokens: the model's ``forward``
and all that transformers does around it. Tokens are compared with eager's.

- *ours*: ``symshape.compile(model)``; *ours, backend*: ``model.compile(backend="symshape", dynamic=True)``.
- *dynamo*, *aot*: ``model.compile(backend="eager")`` and ``"aot_eager"``, ``dynamic=True``.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import torch

import symshape
from tests.bench.report import NotHere, Report, bench_parser

WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda model: model,
    "ours": symshape.compile,
    "ours, backend": lambda model: _in_place(model, "symshape"),
    "dynamo": lambda model: _in_place(model, "eager"),
    "aot": lambda model: _in_place(model, "aot_eager"),
}
QUICK = ("eager", "ours")


def _in_place(model: Any, backend: str) -> Any:
    model.compile(backend=backend, dynamic=True)
    return model


def _gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"vocab_size": 99, "n_positions": 256, "n_embd": 64, "n_layer": layers, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=None, pad_token_id=0))


def _llama(layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    tokens: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(**sizes, **tokens, vocab_size=99, num_hidden_layers=layers))


def _generate(model: Any, length: int, new: int) -> torch.Tensor:
    ids = torch.arange(3, 3 + length)[None]
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False)  # type: ignore[no-any-return]


def _rounds(models: dict[str, Any], new: int, rounds: int) -> dict[str, float]:
    """Milliseconds of processor time a token, by way: medians of rounds, taken in turn."""
    taken: dict[str, list[float]] = {who: [] for who in models}
    for number in range(rounds):
        for who, model in models.items():
            start = process_time()
            _generate(model, 5 + number % 3, new)
            taken[who].append((process_time() - start) * 1e3 / new)
    return {who: statistics.median(times) for who, times in taken.items()}


def main(argv: Sequence[str] | None = None) -> Report:
    """Run it."""
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    args = bench_parser(__doc__).parse_args(argv)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    report = Report("generate")
    new, rounds, layers = (4, 1, 1) if args.smoke else (64, 9, 4)
    table = report.table(f"greedy, {new} tokens, {layers} layers, CPU", "model", "who", "ms a token", "of eager's")
    for name, make in (("GPT-2", _gpt2), ("Llama", _llama)):
        torch.manual_seed(args.seed)
        plain = make(layers).eval()
        torch._dynamo.reset()
        ways = QUICK if args.smoke else tuple(WAYS)
        models = {who: WAYS[who](copy.deepcopy(plain)) for who in ways}
        for length in (4, 7, 5):
            wanted = _generate(plain, length, new)
            for who, model in models.items():
                if not torch.equal(_generate(model, length, new), wanted):
                    raise AssertionError(f"{who} generates other tokens than eager")
        made = models["ours"].stats().traces
        times = _rounds(models, new, rounds)
        for who, time in times.items():
            table.row(name, who, time, time / times["eager"])
        report.goal(f"{name}: traces of a generation", made, at_most=3)
        report.goal(f"{name}: traces after it", models["ours"].stats().traces - made, at_most=0)
        report.goal(f"{name}: a token, ours / eager", times["ours"] / times["eager"], at_most=1.0)
        for who in {"ours, backend"} & times.keys():
            report.goal(f"{name}: a token, {who} / eager", times[who] / times["eager"], at_most=1.0)
    return report
