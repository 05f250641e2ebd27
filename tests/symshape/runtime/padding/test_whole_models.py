"""Whole models, padded and poisoned between replays, at ten sizes each: every call is eager's at
the exact size.

Sizes grow and shrink, so that what a large call left behind would show in a small one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from tests.symshape.runtime.runners.padded.test_runner import SIZES, _check, _runner

Tensors = tuple[torch.Tensor, ...]
WORDS = 64
SMALL = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
NARROW = {"intermediate_size": 64}


@attrs.frozen
class Whole:
    """A model: how to make the function that is called, and the arguments of a call of a batch and
    a length.
    """

    name: str
    make: Callable[[], Callable[..., Any]]
    call: Callable[[int, int], Tensors]


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, WORDS, (batch, length))


def _keep(batch: int, length: int) -> torch.Tensor:
    return (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).long()


def _one(batch: int, length: int) -> Tensors:
    return (_tokens(batch, length),)


def _masked(batch: int, length: int) -> Tensors:
    return _tokens(batch, length), _keep(batch, length)


def _labelled(batch: int, length: int) -> Tensors:
    """Labels, of which those beyond a length are ignored."""
    labels = _tokens(batch, length).masked_fill(_keep(batch, length) == 0, -100)
    labels[:, 1] = 5
    return _tokens(batch, length), labels


def _bert(attention: str) -> Any:
    import transformers

    config = transformers.BertConfig(**SMALL, **NARROW, attn_implementation=attention)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def _bidirectional(attention: str) -> Callable[..., Any]:
    model = _bert(attention)
    return lambda tokens, keep=None: model(input_ids=tokens, attention_mask=keep).last_hidden_state


def _llama(attention: str = "sdpa", **options: Any) -> Callable[..., Any]:
    import transformers

    config = transformers.LlamaConfig(
        **SMALL, **NARROW, num_key_value_heads=2, attn_implementation=attention
    )
    model = transformers.LlamaForCausalLM(config).eval()
    return lambda tokens, keep=None: (
        model(tokens, attention_mask=keep, **{"use_cache": False} | options).logits
    )


def _losses(make: Callable[[], Any]) -> Callable[[], Callable[..., Any]]:
    def made() -> Callable[..., Any]:
        model = make().eval()

        def run(tokens: torch.Tensor, labels: torch.Tensor) -> Tensors:
            result = model(tokens, labels=labels, use_cache=False)
            return result.loss, result.logits

        return run

    return made


def _llama_model() -> Any:
    import transformers

    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, **NARROW, num_key_value_heads=2)
    )


def _gpt2_model() -> Any:
    import transformers

    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4)
    )


def _gpt2() -> Callable[..., Any]:
    model = _gpt2_model().eval()
    return lambda tokens, keep=None: model(tokens, attention_mask=keep, use_cache=False).logits


def _t5() -> Callable[..., Any]:
    import transformers

    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=32,
        d_kv=8,
        num_layers=2,
        num_heads=4,
        d_ff=64,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    return lambda tokens, given, keep: (
        model(
            input_ids=tokens, decoder_input_ids=given, attention_mask=keep, use_cache=False
        ).logits
    )


def _vit() -> Callable[..., Any]:
    import transformers

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = transformers.ViTConfig(**sizes, image_size=24, patch_size=4)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    return lambda images: model(images, interpolate_pos_encoding=True).last_hidden_state


def _resnet() -> Callable[..., Any]:
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    model = transformers.ResNetForImageClassification(config).eval()
    return lambda images: model(images).logits


class Cached(nn.Module):
    """A step of decoding that writes into a cache as long as it may become, and attends to what
    came before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor
    ) -> Tensors:
        batch, length = keys.shape[0], keys.shape[2]
        q, k, v = self.qkv(x).view(batch, 1, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        keys, values = keys.index_copy(2, at, k), values.index_copy(2, at, v)
        keep = torch.arange(length) <= at
        y = nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=keep[None, None, None, :]
        )
        return self.out(y.transpose(1, 2).reshape(batch, 1, 32)), keys, values


def _cache(batch: int, length: int) -> Tensors:
    keys, values = torch.randn(batch, 4, length, 8), torch.randn(batch, 4, length, 8)
    return torch.randn(batch, 1, 32), keys, values, torch.randint(0, length, (1,))


class Segments(nn.Module):
    """Shaped like a network for images: norms over groups, a path at half the size, resampled and
    joined.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
        self.norm, self.out = nn.GroupNorm(2, 8), nn.Conv2d(16, 4, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.norm(self.first(images)).relu()
        coarse = nn.functional.interpolate(self.second(fine), size=fine.shape[2:], mode="bilinear")
        out: torch.Tensor = self.out(torch.cat((fine, coarse), 1))
        return out


MODELS: tuple[Whole, ...] = (
    *(
        Whole(f"bert, {each}", lambda each=each: _bidirectional(each), _one)
        for each in ("sdpa", "eager")
    ),
    *(
        Whole(f"bert, {each}, mask", lambda each=each: _bidirectional(each), _masked)
        for each in ("sdpa", "eager")
    ),
    Whole("llama, eager", lambda: _llama("eager"), _one),
    Whole("llama, mask", _llama, _masked),
    Whole("llama, last logits", lambda: _llama(logits_to_keep=1), _one),
    Whole("llama, with a cache", lambda: _llama(use_cache=True), _one),
    Whole("llama, loss", _losses(_llama_model), _labelled),
    Whole("gpt2, mask", _gpt2, _masked),
    Whole("gpt2, loss", _losses(_gpt2_model), _labelled),
    Whole("t5", _t5, lambda b, n: (_tokens(b, n), _tokens(b, n // 2 + 1), _keep(b, n))),
    Whole("vit, images of any size", _vit, lambda b, n: (torch.randn(b, 3, 12 + n, 8 + 2 * n),)),
    Whole(
        "resnet, images of any size", _resnet, lambda b, n: (torch.randn(b, 3, 12 + n, 8 + 2 * n),)
    ),
    Whole("a cache written in place", lambda: Cached().eval(), _cache),
    Whole(
        "segments", lambda: Segments().eval(), lambda b, n: (torch.randn(b, 3, 8 + n, 8 + 2 * n),)
    ),
)


EXACT: dict[str, set[str]] = (
    {}
    if torch.torch_version.TorchVersion(torch.__version__) >= "2.13"
    else {"a cache written in place": {"s0", "s1", "s3"}}
)
"""With torch 2.11, C++ does not ask whether the batch is 1, and no guard tells the planner how its
rows are made up.
"""


@pytest.mark.slow
@pytest.mark.usefixtures("planned_both_ways")
@pytest.mark.parametrize("whole", MODELS, ids=lambda each: each.name)
def test_every_size_is_padded(whole: Whole) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    run = whole.make()
    calls = [whole.call(*sizes) for sizes in SIZES]
    compiled = _check(lambda *given: run(*given), calls)
    runner = _runner(compiled)
    padding = runner.padding()
    exact = EXACT.get(whole.name, set())
    assert runner.refusals.keys() == exact, padding
    dynamic = {name for name, each in padding.symbols.items() if not each.fixed}
    assert set(padding.padded) == dynamic - exact, padding
    assert "s0" in dynamic
    assert len(dynamic) >= 2
    assert len(runner.buckets) <= 5
