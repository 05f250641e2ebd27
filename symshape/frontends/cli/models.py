"""The demo's models: small transformers architectures with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch

from symshape.errors import InputError
from symshape.exploring.traffic import Batch

VOCABULARY = 512
POSITIONS = 256
"""The longest sequence that the models take, in tokens."""


@attrs.frozen
class Inputs:
    """One call of a language model: token ids and the attention mask, both
    ``(batch, sequence)``.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor

    @property
    def arguments(self) -> dict[str, torch.Tensor]:
        """Return the keyword arguments of the call."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=POSITIONS,
            n_embd=64,
            n_layer=4,
            n_head=4,
            use_cache=False,
        )
    )


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=POSITIONS,
            use_cache=False,
        )
    )


MODELS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "gpt2": ("GPT-2-shaped", _gpt2),
    "llama": ("Llama-shaped", _llama),
}
"""The models by name: a title, and a function that makes the model."""


def find_model(name: str) -> tuple[str, Callable[[], Any]]:
    """Return a model's title and maker.

    Raises:
        InputError: there is no such model.
    """
    if name not in MODELS:
        raise InputError(f"there is no model {name!r}; choose from {', '.join(MODELS)}")
    return MODELS[name]


def make_model(name: str, device: torch.device, seed: int = 0) -> torch.nn.Module:
    """Return a demo model in evaluation mode; the same seed gives the same weights.

    Raises:
        InputError: there is no such model, or transformers is not installed.
    """
    _, maker = find_model(name)
    try:
        import transformers
    except ModuleNotFoundError:
        raise InputError(
            "the demo's models come from transformers: pip install 'symshape[models]'"
        ) from None
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    model: torch.nn.Module = maker()
    return model.eval().to(device)


def make_inputs(batch: Batch, generator: torch.Generator, device: torch.device) -> Inputs:
    """Return random tokens for a batch, padded on the right to its longest request, with the
    attention mask.
    """
    ids = torch.randint(0, VOCABULARY, (batch.size, batch.longest), generator=generator)
    lengths = torch.tensor(batch.lengths).unsqueeze(1)
    mask = (torch.arange(batch.longest).unsqueeze(0) < lengths).long()
    return Inputs((ids * mask).to(device), mask.to(device))
