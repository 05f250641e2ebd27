"""Programs that costs are tested on: transformers' models in small, a U-Net and an LSTM, callable
at many sizes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.models import MODELS, VOCABULARY, Model, ids

SIZES = ((2, 9), (3, 17), (4, 24), (5, 40), (7, 33))
"""Batch and size of the calls that are compared; models say what the size means to them."""


class UNet(nn.Module):
    """Two levels down and up again, with skips, group norms, transposed convolutions and an
    upsampling.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
        )
        self.down3 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 32)
        self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Conv2d(32, 8, 3, padding=1)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.down1(x))
        b = F.relu(self.down2(a))
        c = F.gelu(self.norm(self.down3(b)))
        d = torch.cat([self.up1(c), b], 1)
        e = F.interpolate(F.relu(self.up2(d)), scale_factor=2, mode="nearest")
        return self.out(torch.cat([e, a], 1))


class Recurrent(nn.Module):
    """Embeddings, an LSTM step by step, a head.  (``nn.LSTM`` reads its sizes as numbers in C++,
    which fixes them.)
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.inner, self.outer = nn.Linear(12, 40), nn.Linear(10, 40)
        self.head = nn.Linear(10, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = cell = torch.zeros(ids.size(0), 10)
        states = []
        for step in self.embed(ids).unbind(1):
            i, f, g, o = (self.inner(step) + self.outer(state)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
            states.append(state)
        found: torch.Tensor = self.head(torch.stack(states, 1))
        return found


def _mistral() -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
    }
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": None}
    return MistralForCausalLM(
        MistralConfig(**sizes, **heads, max_position_embeddings=128, use_cache=False)
    )


def _opt() -> Any:
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "max_position_embeddings": 128, "word_embed_proj_dim": 64}
    return OPTForCausalLM(OPTConfig(**sizes, **heads, use_cache=False))


def _distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    sizes = {"vocab_size": VOCABULARY, "dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4}
    return DistilBertModel(DistilBertConfig(**sizes, max_position_embeddings=128))


def _gpt_neox() -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
    }
    return GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, num_attention_heads=4, use_cache=False))


def _words(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(batch, length)}


def _image(batch: int, size: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 3, 4 * (size // 2), 4 * (size // 3 + 1))}


def _tokens(batch: int, size: int) -> dict[str, torch.Tensor]:
    return {"ids": torch.randint(0, 50, (batch, 8))}


def programs() -> dict[str, Model]:
    """By name."""
    more = (
        Model("mistral", _mistral, _words),
        Model("opt", _opt, _words),
        Model("distilbert", _distilbert, _words),
        Model("gpt-neox", _gpt_neox, _words),
        Model("unet", UNet, _image, "batch, and images"),
        Model("lstm", Recurrent, _tokens, "batch; 8 steps"),
    )
    return {model.name: model for model in (*MODELS, *more)}


def sizes_of(traced: Any, call: dict[str, torch.Tensor]) -> dict[str, int]:
    """The values of a trace's symbols in a call."""
    return {
        name: call[source.arg].size(source.dim) for name, source in traced.program.sources.items()
    }
