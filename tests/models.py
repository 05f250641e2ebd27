"""Real architectures in small, from transformers, with random weights: what tracing is tested and
measured on.

``MODELS`` has the seven of the main job, two of them once more with an attention mask.
``Model.call(batch, size)`` makes keyword arguments; what ``size`` means to a model (sequence
length, or image size) stands in its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

VOCABULARY = 100
_LANGUAGE = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "num_attention_heads": 4}

Arguments = dict[str, torch.Tensor]


@attrs.frozen
class Model:
    """One architecture: how to make it, and how to call it with a batch of inputs of some size."""

    name: str
    make: Callable[[], Any]
    call: Callable[[int, int], Arguments]
    sizes: str = "batch, sequence"

    def build(self, seed: int = 0) -> torch.nn.Module:
        """The model in evaluation mode; the same seed gives the same weights."""
        import transformers

        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
        built: torch.nn.Module = self.make().eval()
        return built


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def _plain(batch: int, length: int) -> Arguments:
    return {"input_ids": ids(batch, length)}


def _masked(batch: int, length: int) -> Arguments:
    return {
        "input_ids": ids(batch, length),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
    }


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCABULARY, "n_positions": 128, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    return LlamaForCausalLM(LlamaConfig(**_LANGUAGE, **sizes, use_cache=False))


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(**_LANGUAGE, hidden_size=64, intermediate_size=128, max_position_embeddings=128)
    )


def _t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 4,
    }
    return T5ForConditionalGeneration(T5Config(**sizes, use_cache=False, decoder_start_token_id=0))


def _vit() -> Any:
    from transformers import ViTConfig, ViTModel

    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    return ViTModel(ViTConfig(**sizes, image_size=32, patch_size=8))


def _resnet() -> Any:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(
        ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1])
    )


def _whisper() -> Any:
    from transformers import WhisperConfig, WhisperModel

    sizes = {"num_mel_bins": 16, "d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
    layers = {
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_layers": 1,
        "decoder_attention_heads": 4,
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(
        vocab_size=VOCABULARY, max_source_positions=64, **sizes, **layers, **tokens
    )
    return WhisperModel(config).encoder


MODELS: tuple[Model, ...] = (
    Model("gpt2", _gpt2, _plain),
    Model("gpt2, mask", _gpt2, _masked),
    Model("llama", _llama, _plain),
    Model("llama, mask", _llama, _masked),
    Model("bert", _bert, _masked),
    Model(
        "t5",
        _t5,
        lambda batch, length: {
            "input_ids": ids(batch, length),
            "decoder_input_ids": ids(batch, length // 2 + 1),
        },
        "batch, sequence (the decoder's is half of it and one more)",
    ),
    Model(
        "vit",
        _vit,
        lambda batch, _: {"pixel_values": torch.randn(batch, 3, 32, 32)},
        "batch; images are 32 by 32",
    ),
    Model(
        "resnet",
        _resnet,
        lambda batch, size: {"pixel_values": torch.randn(batch, 3, 32 + 2 * size, 32 + size)},
        "batch, and images of 32 + 2*size by 32 + size",
    ),
    Model(
        "whisper encoder",
        _whisper,
        lambda batch, _: {"input_features": torch.randn(batch, 16, 128)},
        "batch; 128 frames",
    ),
)
