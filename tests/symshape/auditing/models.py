"""Audits of padding on models of transformers, tiny and with random weights, each with the verdict
that it has to reach.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs
import torch

import symshape

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
SMALL |= {"vocab_size": 50, "max_position_embeddings": 64}
DECODER: dict[str, Any] = {**SMALL, "num_key_value_heads": 1, "head_dim": 8, "use_cache": False}
GPT: dict[str, Any] = {
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 50,
    "n_positions": 64,
    "use_cache": False,
}
TWO: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
}
TWO |= {
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 50,
}
TWO |= {"max_position_embeddings": 64, "use_cache": False, "pad_token_id": 1}
T5: dict[str, Any] = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": 50,
}
SPEECH: dict[str, Any] = {
    **SMALL,
    "conv_dim": (16, 16),
    "conv_stride": (2, 2),
    "conv_kernel": (3, 3),
}
SPEECH |= {
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
MODERN: dict[str, Any] = {
    **SMALL,
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
}
MODERN |= {"eos_token_id": 2, "global_attn_every_n_layers": 2, "local_attention": 4}

ENCODERS = {
    **dict.fromkeys(("Bert", "Ernie", "MegatronBert", "RoFormer", "LayoutLM"), SMALL),
    **{name: {**SMALL, "pad_token_id": 1} for name in ("Roberta", "XLMRoberta", "MPNet")},
    **{name: {**SMALL, "embedding_size": 8} for name in ("Albert", "Electra")},
    "RoCBert": {**SMALL, "pronunciation_vocab_size": 20, "shape_vocab_size": 20},
    "ModernBert": MODERN,
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50},
}
DECODERS = {
    **dict.fromkeys(
        ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "StableLm", "Starcoder2"), DECODER
    ),
    "Phi3": {**DECODER, "pad_token_id": 0},
    "OPT": {**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 16, "use_cache": False},
    "GPTNeoX": {**SMALL, "use_cache": False},
    "GPT2": GPT,
    "GPTJ": {**GPT, "rotary_dim": 4},
    "Bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "use_cache": False},
}
WHISPER: dict[str, Any] = {
    **TWO,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 32,
}
WHISPER |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
NEIGHBOURS: dict[str, Any] = {
    **SMALL,
    "embedding_size": 16,
    "intra_bottleneck_size": 16,
    "num_feedforward_networks": 1,
    "true_hidden_size": 16,
}
EXPERTS: dict[str, Any] = {**DECODER, "num_local_experts": 4}
PICTURES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 8,
}


def build(name: str, config: dict[str, Any], suffix: str = "Model") -> Any:
    """Return a model of transformers in eval mode, with the weights of a fixed seed."""
    import transformers

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = getattr(transformers, f"{name}Config")(**config)
        return getattr(transformers, f"{name}{suffix}")(made).eval()


def tokens(length: int, seed: int) -> torch.Tensor:
    """Return two texts."""
    return torch.randint(3, 50, (2, length), generator=torch.Generator().manual_seed(seed))


def mask_of(length: int, valid: int, side: str) -> torch.Tensor:
    """Return the mask of two texts, the second of which has padding on one side."""
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, slice(valid, None) if side == "right" else slice(0, length - valid)] = 0
    return mask


def audit(
    model: Any, arguments: Any, padded: Any, valid: Any = "attention_mask"
) -> symshape.PaddingAudit:
    """Return the report of an audit, without gradients and the model's warnings."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symshape.audit_padding(model, arguments, padded, valid)


@attrs.frozen(eq=False)
class Question:
    """A model, an example with padding, what is padded, and the verdict to be reached: the worst of
    its outputs'.
    """

    model: Any
    arguments: Mapping[str, Any]
    padded: Mapping[str, Mapping[int, str]]
    valid: Any = "attention_mask"
    verdict: str = "proven"

    def audit(self) -> symshape.PaddingAudit:
        """Return the report of an audit."""
        return audit(self.model, self.arguments, self.padded, self.valid)


def worst(found: symshape.PaddingAudit) -> str:
    """Return ``leaks`` if any output leaks, else ``unknown`` if any is unknown, else ``proven``."""
    verdicts = {each.verdict for each in found.outputs}
    return next(each for each in ("leaks", "unknown", "proven") if each in verdicts)


def of_tokens(model: Any, side: str, verdict: str = "proven") -> Question:
    """Return the question of a model of tokens; one padded on the left gets its positions."""
    mask = mask_of(9, 5, side)
    arguments = {"input_ids": tokens(9, 0), "attention_mask": mask}
    if side == "left" and "position_ids" in inspect.signature(model.forward).parameters:
        arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return Question(model, arguments, {"input_ids": {1: "length"}}, verdict=verdict)


def of_two_sequences(name: str) -> Question:
    """Return the question of an encoder and a decoder whose texts are both padded."""
    model = build(name, {**T5, "use_cache": False} if name == "T5" else TWO)
    arguments = {"input_ids": tokens(9, 0), "attention_mask": mask_of(9, 5, "right")}
    arguments |= {
        "decoder_input_ids": tokens(6, 1),
        "decoder_attention_mask": mask_of(6, 4, "right"),
    }
    return Question(
        model,
        arguments,
        {"input_ids": {1: "length"}, "decoder_input_ids": {1: "target"}},
        {"length": "attention_mask", "target": "decoder_attention_mask"},
    )


def _sound(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def of_texts_beside_sound() -> Question:
    """Return the question of Whisper's decoder, whose texts are padded."""
    arguments = {"input_features": _sound(2, 8, 40), "decoder_input_ids": tokens(9, 0)}
    arguments["decoder_attention_mask"] = mask_of(9, 5, "right")
    padded = {"decoder_input_ids": {1: "target"}}
    return Question(build("Whisper", WHISPER), arguments, padded, "decoder_attention_mask")


def of_whispers_sound() -> Question:
    """Return the question of Whisper's encoder, which has no mask: it is trained on sound that is
    filled up with silence.
    """
    arguments = {
        "input_features": _sound(2, 8, 40),
        "decoder_input_ids": tokens(9, 0),
        "attention_mask": mask_of(40, 24, "right"),
    }
    padded = {"input_features": {2: "length"}}
    return Question(build("Whisper", WHISPER), arguments, padded, verdict="leaks")


def of_sound(name: str) -> Question:
    """Return the question of a model that normalises the whole sound by group norm."""
    arguments = {"input_values": _sound(2, 64), "attention_mask": mask_of(64, 40, "right")}
    padded = {"input_values": {1: "length"}}
    return Question(build(name, SPEECH), arguments, padded, verdict="leaks")


def of_rows_of_pictures(name: str) -> Question:
    """Return the question of a model of pictures, of which the last is padding."""
    model = build(name, PICTURES)

    def run(pixel_values: torch.Tensor, valid: torch.Tensor) -> Any:
        return model(pixel_values).last_hidden_state

    arguments = {"pixel_values": _sound(3, 3, 16, 16), "valid": torch.tensor([1, 1, 0])}
    return Question(run, arguments, {"pixel_values": {0: "batch"}}, "valid")


def _questions() -> Iterator[tuple[str, Callable[[], Question]]]:
    for name, config in ENCODERS.items():
        yield name, partial(_of_text, name, config, "right")
    for name, config in DECODERS.items():
        yield name, partial(_of_text, name, config, "left")
    for name in ("Bart", "T5"):
        yield name, partial(of_two_sequences, name)
    yield "Whisper, padded texts", of_texts_beside_sound
    yield "Whisper, padded sound", of_whispers_sound
    for name in ("Wav2Vec2", "Hubert"):
        yield name, partial(of_sound, name)
    for name in ("ViT", "DeiT"):
        yield f"{name}, rows", partial(of_rows_of_pictures, name)
    yield "MobileBert", partial(_of_text, "MobileBert", NEIGHBOURS, "right", "leaks")
    yield "Mixtral", partial(_of_text, "Mixtral", EXPERTS, "left", "unknown")


def _of_text(name: str, config: dict[str, Any], side: str, verdict: str = "proven") -> Question:
    return of_tokens(build(name, config), side, verdict)


QUESTIONS: dict[str, Callable[[], Question]] = dict(_questions())
"""By the model's name; each makes its model when it is called."""
