"""``generate`` of transformers' models: the tokens of eager, with few traces, in every way that
people write it.

Each cell generates three times, for other prompts and lengths: one model, one way to compile it,
one cache, one way to choose tokens. The first generation makes at most three traces, the others
none, but for those that the table allows (``MORE``), with the reason.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.frontends.dynamo_graph import alive

transformers = pytest.importorskip("transformers")

_SIZES = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
_LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
_BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "decoder_start_token_id": 2,
}
_SPEECH = {"num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 100}
_SPEECH |= {"suppress_tokens": None, "begin_suppress_tokens": None}  # type: ignore[dict-item]

MODELS: dict[str, Callable[[Any], Any]] = {
    "gpt2": lambda t: t.GPT2LMHeadModel(
        t.GPT2Config(**_SIZES, n_positions=128, n_embd=32, n_layer=2, n_head=4)
    ),
    "llama": lambda t: t.LlamaForCausalLM(t.LlamaConfig(**_SIZES, **_LLAMA)),
    "mistral": lambda t: t.MistralForCausalLM(
        t.MistralConfig(**_SIZES, **_LLAMA, sliding_window=64)
    ),
    "mixtral": lambda t: t.MixtralForCausalLM(
        t.MixtralConfig(**_SIZES, **_LLAMA, num_local_experts=4, num_experts_per_tok=2)
    ),
    "t5": lambda t: t.T5ForConditionalGeneration(
        t.T5Config(
            **_SIZES,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    ),
    "bart": lambda t: t.BartForConditionalGeneration(
        t.BartConfig(**_SIZES, **_BART, max_position_embeddings=128, forced_eos_token_id=None)
    ),
    "whisper": lambda t: t.WhisperForConditionalGeneration(
        t.WhisperConfig(**_SIZES, **_BART, **_SPEECH)
    ),
}
CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "none": {"use_cache": False},
}
CHOICES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sample": {"do_sample": True},
    "beam": {"do_sample": False, "num_beams": 3},
}
PROMPTS = ((2, 5, 6), (2, 9, 4), (2, 3, 5))
"""Of each generation: batch, length of the prompt, new tokens."""

MORE = {"t5": 2, "bart": 2}
"""Traces after the first generation without a cache: the length of what is encoded varies only
then.
"""


def built(name: str) -> Any:
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    return MODELS[name](transformers).eval()


def prompt(name: str, batch: int, length: int, padding: int = 0) -> dict[str, torch.Tensor]:
    """A prompt; with padding, its first row is shorter, and padded on the left."""
    generator = torch.Generator().manual_seed(length)
    if name == "whisper":
        return {"input_features": torch.randn(batch, 16, 60, generator=generator)}
    ids = torch.randint(3, 99, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    ids[0, :padding] = mask[0, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _by_forward(model: Any) -> tuple[Any, Callable[[], tuple[int, int]]]:
    fast = model.forward = symshape.compile(model.forward)
    return model, lambda: (fast.stats().traces, fast.stats().fallbacks)


def _by_module(model: Any) -> tuple[Any, Callable[[], tuple[int, int]]]:
    fast = symshape.compile(model)
    return fast, lambda: (fast.stats().traces, fast.stats().fallbacks)


def _by_backend(model: Any) -> tuple[Any, Callable[[], tuple[int, int]]]:
    before = list(alive)
    # by default a CPU runs Dynamo's own graph where that is quicker
    model.compile(backend="symshape", dynamic=True, options={"plain_calls": False})

    def counts() -> tuple[int, int]:
        mine = [each.stats() for each in list(alive) if not any(each is other for other in before)]
        return sum(each.traces for each in mine), sum(each.fallbacks for each in mine)

    return model, counts


WAYS = {"forward": _by_forward, "module": _by_module, "backend": _by_backend}


@pytest.fixture(autouse=True)
def _without_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()
    gc.collect()


def generated(model: Any, inputs: dict[str, Any], new: int, how: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(5)
    return model.generate(**inputs, max_new_tokens=new, **how)  # type: ignore[no-any-return]


def check(name: str, way: str, cache: str, choice: str, padding: int = 0) -> None:
    """One cell."""
    plain = built(name)
    fast, counts = WAYS[way](copy.deepcopy(plain))
    how = CACHES[cache] | CHOICES[choice]
    traces = []
    for batch, length, new in PROMPTS:
        inputs = prompt(name, batch, length, padding)
        assert torch.equal(generated(fast, inputs, new, how), generated(plain, inputs, new, how))
        made, fallbacks = counts()
        assert fallbacks == 0
        traces.append(made)
    more = MORE.get(name, 0) if cache == "none" else 0
    assert 0 < traces[0] <= 3
    assert traces[-1] <= traces[0] + more, f"traces after each generation: {traces}"


SMOKE = {
    ("gpt2", "forward", "dynamic", "greedy"),
    ("llama", "module", "dynamic", "greedy"),
    ("mixtral", "module", "dynamic", "greedy"),
    ("gpt2", "module", "dynamic", "beam"),
    ("gpt2", "module", "dynamic", "sample"),
    ("llama", "module", "static", "greedy"),
    ("gpt2", "module", "none", "greedy"),
    ("t5", "module", "dynamic", "greedy"),
    ("whisper", "module", "dynamic", "greedy"),
}
CELLS = [
    pytest.param(*cell, marks=() if cell in SMOKE else pytest.mark.nightly, id="-".join(cell))
    for cell in (
        (m, w, k, c) for m in MODELS for w in ("forward", "module") for k in CACHES for c in CHOICES
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way", "cache", "choice"), CELLS)
def test_tokens_are_those_of_eager(name: str, way: str, cache: str, choice: str) -> None:
    check(name, way, cache, choice)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("cache", ["dynamic", pytest.param("static", marks=pytest.mark.nightly)])
def test_prompts_that_are_padded_on_the_left(name: str, cache: str) -> None:
    check(name, "module", cache, "greedy", padding=2)


@pytest.mark.slow
def test_buckets_of_a_cache_that_grows_beside_a_mask() -> None:
    """The mask is one longer than the cache: both go up together, two steps for each doubling."""
    plain = built("gpt2")
    fast: Any = symshape.compile(copy.deepcopy(plain), runner="padded")
    for length in (5, 7):
        inputs = prompt("gpt2", 2, length, padding=2)
        assert torch.equal(generated(fast, inputs, 60, {}), generated(plain, inputs, 60, {}))
    buckets = [len(entry.runner.buckets) for entry in fast.entries]
    assert sum(buckets) == fast.stats().cuda_graphs
    assert max(buckets) <= 9, buckets


OTHERS: dict[str, dict[str, Any]] = {
    "beams that are drawn": {"do_sample": True, "num_beams": 3},
    "of the most likely": {"do_sample": True, "top_p": 0.9, "top_k": 20, "temperature": 0.8},
    "no repetition": {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "looked up in the prompt": {"do_sample": False, "prompt_lookup_num_tokens": 3},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral"])
@pytest.mark.parametrize("other", OTHERS)
def test_other_ways_to_choose(name: str, other: str) -> None:
    plain = built(name)
    fast = symshape.compile(copy.deepcopy(plain), fullgraph=True)
    traces = []
    for _, length, new in PROMPTS:
        inputs = prompt(name, 1, length)
        assert torch.equal(
            generated(fast, inputs, new, OTHERS[other]),
            generated(plain, inputs, new, OTHERS[other]),
        )
        traces.append(fast.stats().traces)
    # one token or several, of each that is guessed or of a batch of one
    assert traces[-1] <= traces[0] + 1 <= 5


@pytest.mark.nightly
def test_an_assistant() -> None:
    plain, helper = built("llama"), built("llama")
    fast, fast_helper = (symshape.compile(copy.deepcopy(each)) for each in (plain, helper))
    for _, length, new in PROMPTS:
        inputs = prompt("llama", 1, length)
        wanted = generated(plain, inputs, new, {"assistant_model": helper, "do_sample": False})
        assert torch.equal(
            generated(fast, inputs, new, {"assistant_model": fast_helper, "do_sample": False}),
            wanted,
        )
    assert fast.stats().traces <= 4
    assert fast.stats().fallbacks == fast_helper.stats().fallbacks == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "cache"),
    [("gpt2", "dynamic"), ("llama", "dynamic"), ("gpt2", "none"), ("gpt2", "static")],
)
def test_the_backend(name: str, cache: str) -> None:
    check(name, "backend", cache, "greedy")


@pytest.mark.slow
def test_other_batches_and_a_window_that_fills() -> None:
    """A sliding window: programs for the prompt, while it fills, for the token that fills it, and
    when it is full.
    """
    torch.manual_seed(0)
    sizes = {**_SIZES, **_LLAMA, "sliding_window": 8}
    plain = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes)).eval()
    fast = symshape.compile(copy.deepcopy(plain), fullgraph=True)
    for batch, length, new in ((2, 4, 9), (3, 6, 7), (5, 5, 8)):
        inputs = prompt("mistral", batch, length)
        assert torch.equal(generated(fast, inputs, new, {}), generated(plain, inputs, new, {}))
        assert fast.stats().traces == 4


def test_the_caches_of_a_generation_are_those_of_eager() -> None:
    plain = built("llama")
    fast = symshape.compile(copy.deepcopy(plain), fullgraph=True)
    inputs = prompt("llama", 2, 5)
    how = {"return_dict_in_generate": True, "do_sample": False}
    ours, theirs = transformers.DynamicCache(), transformers.DynamicCache()
    got = fast.generate(**inputs, max_new_tokens=4, past_key_values=ours, **how)
    wanted = plain.generate(**inputs, max_new_tokens=4, past_key_values=theirs, **how)
    assert got.past_key_values is ours
    assert wanted.past_key_values is theirs
    assert ours.get_seq_length() == theirs.get_seq_length() == 8
    for mine, its in zip(ours.layers, theirs.layers, strict=True):
        assert vars(mine).keys() == vars(its).keys()
        torch.testing.assert_close((mine.keys, mine.values), (its.keys, its.values))
