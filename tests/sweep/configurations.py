"""Tiny models of transformers, with random weights: a configuration made small, its parts too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, Callable[[int, int], Mapping[str, Any]]]

_WIDTH = (
    "hidden_size d_model n_embd dim embedding_size emb_dim attention_hidden_size embed_dim "
    "hidden_dim backbone_out"
)
_LAYERS = """
    num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_encoder_layers
    num_decoder_layers depth num_blocks hidden_num_layers
"""
_HEADS = """
    num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads
    num_key_value_heads decoder_num_key_value_heads
"""
_INNER = "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim inner_dim"
_POSITIONS = "max_position_embeddings n_positions n_ctx max_seq_len"
TINY: dict[str, Any] = {
    **dict.fromkeys(_WIDTH.split(), 32),
    **dict.fromkeys(_LAYERS.split(), 2),
    **dict.fromkeys(_HEADS.split(), 4),
    **dict.fromkeys(_INNER.split(), 64),
    **dict.fromkeys(_POSITIONS.split(), 64),
    "vocab_size": 100,
    "head_dim": 8,
    "rotary_dim": 4,
    "d_kv": 8,
    "image_size": 32,
    "patch_size": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "pad_token_id": 0,
    "shared_expert_intermediate_size": 32,
    "use_cache": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "embedding_dim": 32,
    "state_size": 8,
    "attention_types": [[["global", "local"], 1]],
    "num_mel_bins": 16,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "projection_dim": 16,
}
_LISTS: dict[str, Callable[[int], list[int]]] = {
    **dict.fromkeys(
        ("hidden_sizes", "embed_dims", "embed_dim", "encoder_hidden_sizes", "neck_hidden_sizes"),
        lambda k: [16 * (i + 1) for i in range(k)],
    ),
    **dict.fromkeys(("depths", "num_blocks"), lambda k: [1] * k),
    **dict.fromkeys(("num_heads", "num_attention_heads"), lambda k: [2] * k),
}


def _tiny(config_class: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that make a configuration of this class small, with those of its parts."""
    parts: Mapping[str, Any] = getattr(config_class, "sub_configs", {})
    known = set(inspect.signature(config_class.__init__).parameters) | set(
        getattr(config_class, "attribute_map", {})
    )
    try:
        default = vars(config_class())
    except Exception:  # some cannot be made without arguments
        default = {}
    mapped = getattr(config_class, "attribute_map", {})
    found: dict[str, Any] = {}
    for name, value in TINY.items():
        here = default.get(mapped.get(name, name))
        if (name not in known and name not in default) or (
            "depths" in default and name in _LAYERS.split()
        ):
            continue
        if isinstance(value, int) and isinstance(here, (list, tuple)):
            continue
        found[name] = value
    for name, make in _LISTS.items():
        if isinstance(default.get(name), (list, tuple)):
            found[name] = make(len(default[name]))
    for name, value in default.items():
        if ("dropout" in name or "layerdrop" in name or "drop_path" in name) and isinstance(
            value, float
        ):
            found[name] = 0.0
    own = {name: value for name, value in more.items() if name not in parts}
    for name, part in parts.items():
        if isinstance(part, type) and part.__name__ != "AutoConfig":
            found[name] = _tiny(part, more.get(name, {}))
        elif name in more:
            found[name] = more[name]
    return {**found, **own}


def built(name: str, more: Mapping[str, Any], model_class: str = "") -> nn.Module:
    """A model by the name of its architecture, in evaluation mode."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    config_class = CONFIG_MAPPING[name]
    config = config_class(**_tiny(config_class, more))
    model = (
        getattr(transformers, model_class)(config)
        if model_class
        else transformers.AutoModel.from_config(config)
    )
    made: nn.Module = model.eval()
    return made


def ids(b: int, n: int) -> torch.Tensor:
    return torch.randint(3, 100, (b, n))


def mask(b: int, n: int) -> torch.Tensor:
    """Each row is padded at its end, a few by more."""
    lengths = torch.tensor([max(1, n - 2 * row) for row in range(b)])
    return (torch.arange(n) < lengths[:, None]).long()


def text(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(b, n)}


def masked(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(b, n), "attention_mask": mask(b, n)}


def pair(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(b, n), "decoder_input_ids": ids(b, n // 2)}


def masked_pair(b: int, n: int) -> dict[str, torch.Tensor]:
    return {
        **masked(b, n),
        "decoder_input_ids": ids(b, n // 2),
        "decoder_attention_mask": mask(b, n // 2),
    }


def image(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(b, 3, 32, 32)}


def any_image(b: int, n: int) -> dict[str, torch.Tensor]:
    """Images whose size follows the length."""
    return {"pixel_values": torch.randn(b, 3, 32 + 4 * n, 64 + 4 * n)}


def wave(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(b, 400 + 100 * n)}


def frames(b: int, n: int) -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(b, 16, 128)}


def both(b: int, n: int) -> dict[str, torch.Tensor]:
    return {**masked(b, n), **image(b, n)}


def masked_wave(b: int, n: int) -> dict[str, torch.Tensor]:
    return {
        **wave(b, n),
        "attention_mask": torch.cat(
            [mask(b, n).repeat_interleave(100, 1), torch.zeros(b, 400).long()], 1
        ),
    }
