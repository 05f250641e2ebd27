"""``generate`` with a growing cache: the time of a token against eager and ``torch.compile``.

Each way generates greedily from prompts of other lengths until it makes no more programs; then all
ways generate the same, in turn. What is measured is a whole ``generate``, over its tokens: the
model's ``forward`` and all that transformers does around it. On the CPU the models are tiny, and it
is processor time; on a device they have 12 layers of half precision, it is time by the clock, and
the first generation of a batch counts on its own. Tokens are compared with eager's; in half
precision, where logits may be as good as equal, their share is told.

- *ours*: ``symshape.compile(model)``; *ours, backend*: ``model.compile(backend="symshape",
  dynamic=True)``.
- *dynamo*, *aot*: ``model.compile(backend="eager")`` and ``"aot_eager"``, ``dynamic=True``.
- *inductor*: ``model.compile(dynamic=True)``; *static cache*: ``cache_implementation="static"``,
  with transformers' own compiled ``forward`` (``reduce-overhead``).
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
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
    "inductor": lambda model: _in_place(model, "inductor"),
    "static cache": lambda model: model,
}
ON_CPU = ("eager", "ours", "ours, backend", "dynamo", "aot")
ON_DEVICE = ("eager", "ours")  # compilers take minutes: --ways
QUICK = ("eager", "ours")


def _in_place(model: Any, backend: str) -> Any:
    model.compile(backend=backend, dynamic=True)
    return model


def _gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {
        "vocab_size": 99,
        "n_positions": 256,
        "n_embd": 64,
        "n_layer": layers,
        "n_head": 4,
    }
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


def _large_gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {
        "n_layer": layers,
        "bos_token_id": 1,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    made: Any = GPT2LMHeadModel(GPT2Config(**sizes))
    return made.to("cuda", torch.bfloat16)


def _large_llama(layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
    }
    tokens: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    made: Any = LlamaForCausalLM(LlamaConfig(**sizes, **tokens, num_hidden_layers=layers))
    return made.to("cuda", torch.bfloat16)


def _generate(
    model: Any, length: int, new: int, batch: int = 1, device: str = "cpu", **how: Any
) -> torch.Tensor:
    ids = (torch.arange(3, 3 + length)[None] + 7 * torch.arange(batch)[:, None]).to(device)
    mask = torch.ones_like(ids)
    mask[1:, : length // 3] = 0  # padded on the left
    return model.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False, **how)  # type: ignore[no-any-return]


def _rounds(models: dict[str, Any], new: int, rounds: int) -> dict[str, float]:
    """Milliseconds of processor time a token, by way: medians of rounds, taken in turn."""
    taken: dict[str, list[float]] = {who: [] for who in models}
    for number in range(rounds):
        for who, model in models.items():
            start = process_time()
            _generate(model, 5 + number % 3, new)
            taken[who].append((process_time() - start) * 1e3 / new)
    return {who: statistics.median(times) for who, times in taken.items()}


def _on_device(report: Report, new: int, rounds: int, layers: int, ways: Sequence[str]) -> None:
    """Batches of one and of four on a CUDA device."""
    columns = (
        "model",
        "batch",
        "who",
        "first generation, s",
        "ms a token",
        "slowest",
        "of eager's",
        "tokens alike",
    )
    table = report.table(f"greedy, {new} tokens, {layers} layers, bfloat16", *columns)
    static = {"cache_implementation": "static"}

    def seconds(who: str, model: Any, batch: int, length: int) -> tuple[float, torch.Tensor]:
        torch.cuda.synchronize()
        start = perf_counter()
        made = _generate(
            model, length, new, batch, "cuda", **(static if who == "static cache" else {})
        )
        torch.cuda.synchronize()
        return perf_counter() - start, made

    for name, make in (("GPT-2", _large_gpt2), ("Llama", _large_llama)):
        plain = make(layers).eval()
        seconds("eager", plain, 1, 5)
        torch._dynamo.reset()
        models = {who: WAYS[who](copy.deepcopy(plain)) for who in ways}
        for batch in (1, 4):
            firsts = {who: seconds(who, model, batch, 9)[0] for who, model in models.items()}
            taken: dict[str, list[float]] = {who: [] for who in models}
            alike = dict.fromkeys(models, 0.0)
            for number in range(rounds):
                wanted = seconds("eager", plain, batch, 10 + 3 * number)[1]
                for who, model in models.items():
                    time, made = seconds(who, model, batch, 10 + 3 * number)
                    taken[who].append(time * 1e3 / new)
                    alike[who] += float((made == wanted).float().mean()) / rounds
            medians = {who: statistics.median(times) for who, times in taken.items()}
            for who, median in medians.items():
                of_eager = median / medians["eager"]
                table.row(
                    name, batch, who, firsts[who], median, max(taken[who]), of_eager, alike[who]
                )
            report.goal(
                f"{name}, {batch}: a token, ours / eager",
                medians["ours"] / medians["eager"],
                at_most=1.0,
            )
        stats = models["ours"].stats()
        report.note(f"{name}: ours made {stats.traces} traces and {stats.cuda_graphs} graphs")


def main(argv: Sequence[str] | None = None) -> Report:
    """Run it."""
    try:
        import transformers
    except ImportError as error:
        raise NotHere("transformers is not installed") from error
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--ways", default="", help="which, with semicolons between (default: all that are for it)"
    )
    args = parser.parse_args(argv)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    chosen = tuple(filter(None, args.ways.split(";")))
    report = Report("generate", device=args.device)
    if args.device == "cuda":
        sizes = (8, 2, 1, chosen or QUICK) if args.smoke else (64, 7, 12, chosen or ON_DEVICE)
        _on_device(report, *sizes)
        return report
    new, rounds, layers = (4, 1, 1) if args.smoke else (64, 9, 4)
    table = report.table(
        f"greedy, {new} tokens, {layers} layers, CPU", "model", "who", "ms a token", "of eager's"
    )
    for name, make in (("GPT-2", _gpt2), ("Llama", _llama)):
        torch.manual_seed(args.seed)
        plain = make(layers).eval()
        torch._dynamo.reset()
        ways = chosen or (QUICK if args.smoke else ON_CPU)
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
