"""``generate`` on a device: the tokens of eager, few graphs, in every way to keep a cache and to
choose tokens.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import symshape
from symshape.frontends.dynamo import symshape_backend
from tests.symshape.frontends.test_generate import (
    CACHES,
    CHOICES,
    MODELS,
    MORE,
    PROMPTS,
    built,
    generated,
    prompt,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CELLS = [
    *((model, "auto", "dynamic", "greedy") for model in MODELS),
    *((model, "padded", "dynamic", "greedy") for model in MODELS),
    *(("llama", "padded", cache, choice) for cache in CACHES for choice in CHOICES),
    *(("gpt2", "auto", cache, "sample") for cache in CACHES),
]


def _on_device(name: str, batch: int, length: int, padding: int = 0) -> dict[str, torch.Tensor]:
    return {key: each.cuda() for key, each in prompt(name, batch, length, padding).items()}


@pytest.mark.parametrize(("name", "runner", "cache", "choice"), CELLS)
def test_tokens_are_those_of_eager(name: str, runner: Any, cache: str, choice: str) -> None:
    plain, how = built(name).cuda(), CACHES[cache] | CHOICES[choice]
    fast: Any = symshape.compile(copy.deepcopy(plain), runner=runner)
    traces = []
    for batch, length, new in PROMPTS:
        inputs = _on_device(name, batch, length)
        assert torch.equal(generated(fast, inputs, new, how), generated(plain, inputs, new, how))
        traces.append(fast.stats().traces)
    assert fast.stats().fallbacks == 0
    assert traces[0] <= 3
    # the first calls run eagerly, the first prompt's among them
    settled = 1 if runner == "auto" else 0
    assert traces[settled] <= 3
    assert traces[-1] <= traces[settled] + (MORE.get(name, 0) if cache == "none" else 0), traces


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_few_graphs_for_a_cache_that_grows_beside_a_mask(name: str) -> None:
    plain = built(name).cuda()
    fast: Any = symshape.compile(copy.deepcopy(plain), runner="padded")
    for length in (5, 7):
        inputs = _on_device(name, 2, length, padding=2)
        assert torch.equal(generated(fast, inputs, 60, {}), generated(plain, inputs, 60, {}))
    assert max(len(entry.runner.buckets) for entry in fast.entries) <= 9
    assert fast.stats().cuda_graphs > 0


@pytest.mark.parametrize("batch", [1, 3])
def test_half_precision(batch: int) -> None:
    """What is generated may differ where two logits are nearly equal; whether a call is right, the
    logits tell.
    """
    plain = built("llama").cuda().to(torch.bfloat16)
    fast: Any = symshape.compile(copy.deepcopy(plain), runner="padded")
    how = {"output_logits": True, "return_dict_in_generate": True, "do_sample": False}
    for length in (5, 9, 6):
        inputs = _on_device("llama", batch, length)
        ours, theirs = generated(fast, inputs, 8, how), generated(plain, inputs, 8, how)
        for mine, its in zip(ours.logits, theirs.logits, strict=True):  # type: ignore[attr-defined]
            torch.testing.assert_close(mine, its, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_backend(name: str) -> None:
    torch._dynamo.reset()
    plain = built(name).cuda()
    fast = copy.deepcopy(plain)
    fast.compile(backend=symshape_backend, dynamic=True)
    for batch, length, new in PROMPTS:
        inputs = _on_device(name, batch, length)
        assert torch.equal(generated(fast, inputs, new, {}), generated(plain, inputs, new, {}))
