"""Streams of training and of generation: batch and length change at every call.

What is compiled differs: a whole step (``*_step``), or the loss alone, whose backward the caller
runs (``*_loss``). ``generate`` compiles a model, and a call is one whole generation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.bench.streams import Call, Sizes, Stream, Tensors, transformers

_NEW = 24  # tokens of a generation


def _lengths(rng: random.Random, longest: int) -> Sizes:
    return rng.randint(1, 8), rng.randint(longest // 50 + 4, longest)


def _optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def _step(loss: Call, model: nn.Module) -> Call:
    """Return a whole step of training: forward, loss, backward, clipping and AdamW."""
    optimizer = _optimizer(model.parameters())

    def step(*arguments: torch.Tensor) -> Tensors:
        optimizer.zero_grad()
        (found,) = loss(*arguments)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return (found.detach(),)

    return step


def _caller(model: nn.Module) -> Callable[[Call], Call]:
    """Return what makes a step of a loss that may be compiled."""
    return lambda loss: _step(loss, model)


def _trained(
    model: nn.Module,
    loss: Call,
    sizes: Callable[[random.Random], Sizes],
    arguments: Callable[[Sizes], Tensors],
    whole: bool,
) -> Stream:
    if whole:
        return Stream(_step(loss, model), sizes, arguments, None, trains=True)
    return Stream(loss, sizes, arguments, None, trains=True, around=_caller(model))


def gpt2(device: torch.device, tiny: bool, *, dropout: float = 0.0, whole: bool = True) -> Stream:
    """A GPT-2 of six layers."""
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    drop = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    config = hf.GPT2Config(
        vocab_size=words, n_positions=512, n_embd=width, n_layer=layers, n_head=8, **drop
    )
    model = hf.GPT2LMHeadModel(config).train().to(device)

    def loss(tokens: torch.Tensor) -> Tensors:
        return (model(input_ids=tokens, labels=tokens).loss,)

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randint(0, words, sizes, device=device),)

    return _trained(model, loss, lambda rng: _lengths(rng, 20 if tiny else 400), arguments, whole)


def bert(device: torch.device, tiny: bool, *, dropout: float = 0.1, whole: bool = False) -> Stream:
    """A BERT of six layers that classifies tokens, with dropout as people train it."""
    hf = transformers()
    width, layers, words = (32, 2, 64) if tiny else (512, 6, 8192)
    config = hf.BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=9,
    )
    model = hf.BertForTokenClassification(config).train().to(device)

    def loss(tokens: torch.Tensor, labels: torch.Tensor) -> Tensors:
        return (model(input_ids=tokens, labels=labels).loss,)

    def arguments(sizes: Sizes) -> Tensors:
        tokens = torch.randint(0, words, sizes, device=device)
        return tokens, torch.randint(0, 9, sizes, device=device)

    return _trained(model, loss, lambda rng: _lengths(rng, 20 if tiny else 400), arguments, whole)


class ResNet(nn.Module):
    """Residual blocks with batch norm over images of any size."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores of (batch, 10)."""
        hidden = self.stem(images)
        for block in self.blocks:
            hidden = F.relu(hidden + block(hidden))
        scores: torch.Tensor = self.head(hidden.mean((2, 3)))
        return scores


def resnet(device: torch.device, tiny: bool, *, whole: bool = True) -> Stream:
    """A small ResNet; batch and image size vary."""
    model = ResNet(8 if tiny else 64, 2 if tiny else 8).train().to(device)

    def loss(images: torch.Tensor, labels: torch.Tensor) -> Tensors:
        return (F.cross_entropy(model(images), labels),)

    def sizes(rng: random.Random) -> Sizes:
        return rng.randint(2, 6 if tiny else 32), *[
            8 * rng.randint(1 if tiny else 6, 3 if tiny else 20)
        ] * 2

    def arguments(sizes: Sizes) -> Tensors:
        return torch.randn(sizes[0], 3, *sizes[1:], device=device), torch.randint(
            0, 10, sizes[:1], device=device
        )

    return _trained(model, loss, sizes, arguments, whole)


class Recurrent(nn.Module):
    """An embedding, a bidirectional LSTM of two layers, scores of each token."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores of (batch, length, words)."""
        hidden, _ = self.lstm(self.embedding(tokens))
        scores: torch.Tensor = self.head(hidden)
        return scores


def lstm(device: torch.device, tiny: bool, *, whole: bool = True) -> Stream:
    """A tagger with a bidirectional LSTM."""
    words, width = (50, 16) if tiny else (2000, 256)
    model = Recurrent(words, width).train().to(device)

    def loss(tokens: torch.Tensor, labels: torch.Tensor) -> Tensors:
        return (F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()),)

    def arguments(sizes: Sizes) -> Tensors:
        return torch.randint(0, words, sizes, device=device), torch.randint(
            0, words, sizes, device=device
        )

    return _trained(model, loss, lambda rng: _lengths(rng, 20 if tiny else 400), arguments, whole)


def encoder(device: torch.device, tiny: bool, *, whole: bool = False) -> Stream:
    """The transformer encoder of torch, without dropout."""
    width = 32 if tiny else 512
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = (
        nn.TransformerEncoder(layer, 2 if tiny else 6, enable_nested_tensor=False)
        .train()
        .to(device)
    )

    def loss(source: torch.Tensor, wanted: torch.Tensor) -> Tensors:
        return ((model(source) - wanted).square().mean(),)

    def arguments(sizes: Sizes) -> Tensors:
        return torch.randn(*sizes, width, device=device), torch.randn(*sizes, width, device=device)

    return _trained(model, loss, lambda rng: _lengths(rng, 20 if tiny else 400), arguments, whole)


def generate(device: torch.device, tiny: bool) -> Stream:
    """Greedy generation by a Llama; the batch and the length of prompts vary."""
    hf = transformers()
    width, layers = (32, 2) if tiny else (512, 6)
    config = hf.LlamaConfig(
        vocab_size=512,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = hf.LlamaForCausalLM(config).eval().to(device)

    def around(compiled: Any) -> Call:
        def run(tokens: torch.Tensor) -> Tensors:
            made = compiled.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=_NEW, do_sample=False
            )
            return (made[:, tokens.shape[1] :],)

        return run

    def arguments(sizes: Sizes) -> Tensors:
        return (torch.randint(3, 512, sizes, device=device),)

    return Stream(
        model, lambda rng: _lengths(rng, 20 if tiny else 200), arguments, None, around=around
    )


Make = Callable[[torch.device, torch.dtype, bool], Stream]


def _made(make: Callable[..., Stream], **how: Any) -> Make:
    return lambda device, dtype, tiny: make(device, tiny, **how)


TRAINING: dict[str, Make] = {
    "gpt2_step": _made(gpt2),
    "gpt2_step_dropout": _made(gpt2, dropout=0.1),
    "gpt2_loss": _made(gpt2, whole=False),
    "gpt2_loss_dropout": _made(gpt2, dropout=0.1, whole=False),
    "bert_loss_dropout": _made(bert),
    "bert_step_dropout": _made(bert, whole=True),
    "resnet_step": _made(resnet),
    "lstm_step": _made(lstm),
    "encoder_loss": _made(encoder),
    "encoder_step": _made(encoder, whole=True),
    "generate": _made(generate),
}
