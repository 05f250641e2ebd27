"""Models of transformers with random tiny configurations: right padding, left padding, two
sequences, sound.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch

import symshape

transformers: Any = pytest.importorskip("transformers")

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
    **dict.fromkeys(("Bert", "Ernie", "MegatronBert", "RoFormer", "LayoutLM", "RoCBert"), SMALL),
    **{name: {**SMALL, "pad_token_id": 1} for name in ("Roberta", "XLMRoberta", "MPNet")},
    **{name: {**SMALL, "embedding_size": 8} for name in ("Albert", "Electra")},
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


def build(name: str, config: dict[str, Any], suffix: str = "Model") -> Any:
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = getattr(transformers, f"{name}Config")(**config)
        return getattr(transformers, f"{name}{suffix}")(made).eval()


def tokens(length: int, seed: int) -> torch.Tensor:
    return torch.randint(3, 50, (2, length), generator=torch.Generator().manual_seed(seed))


def mask_of(length: int, valid: int, side: str) -> torch.Tensor:
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, slice(valid, None) if side == "right" else slice(0, length - valid)] = 0
    return mask


def audit(
    model: Any, arguments: Any, padded: Any, valid: Any = "attention_mask"
) -> symshape.PaddingAudit:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symshape.audit_padding(model, arguments, padded, valid)


def one(model: Any, side: str) -> symshape.PaddingAudit:
    mask = mask_of(9, 5, side)
    arguments = {"input_ids": tokens(9, 0), "attention_mask": mask}
    if side == "left" and "position_ids" in inspect.signature(model.forward).parameters:
        arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return audit(model, arguments, {"input_ids": {1: "length"}})


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_with_padding_on_the_right(name: str) -> None:
    found = one(build(name, ENCODERS[name]), "right")
    assert found.proven, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_with_padding_on_the_left(name: str) -> None:
    found = one(build(name, DECODERS[name]), "left")
    assert found.proven, str(found)


@pytest.mark.parametrize("name", ["Bart", "T5"])
def test_two_sequences(name: str) -> None:
    model = build(name, TWO if name == "Bart" else {**T5, "use_cache": False})
    arguments = {"input_ids": tokens(9, 0), "attention_mask": mask_of(9, 5, "right")}
    arguments |= {
        "decoder_input_ids": tokens(6, 1),
        "decoder_attention_mask": mask_of(6, 4, "right"),
    }
    found = audit(
        model,
        arguments,
        {"input_ids": {1: "length"}, "decoder_input_ids": {1: "target"}},
        {"length": "attention_mask", "target": "decoder_attention_mask"},
    )
    assert found.proven, str(found)


def test_pooling_of_bert() -> None:
    model = build("Bert", SMALL)

    def wrong(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return model(input_ids, attention_mask).last_hidden_state.mean(1)  # type: ignore[no-any-return]

    def right(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = model(input_ids, attention_mask).last_hidden_state
        return (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)  # type: ignore[no-any-return]

    assert one(right, "right").proven
    found = one(wrong, "right")["result"]
    assert found.verdict == "leaks"
    assert found.step is not None
    assert found.step.op == "aten.mean.dim"
    assert found.path[0].op == "aten.embedding.default"
    without = one(lambda input_ids, attention_mask: model(input_ids).last_hidden_state, "right")[
        "result"
    ]
    assert without.verdict == "leaks"
    assert "attention" in without.repair


def test_loss_of_a_classifier_of_tokens() -> None:
    model = build("Bert", SMALL, "ForTokenClassification")
    mask = mask_of(9, 5, "right")
    arguments = {"input_ids": tokens(9, 0), "attention_mask": mask}
    for labels, verdict in (
        (torch.where(mask.bool(), 1, -100), "proven"),
        (torch.ones_like(mask), "leaks"),
    ):
        padded = {"input_ids": {1: "length"}, "labels": {1: "length"}}
        with torch.no_grad():
            found = symshape.audit_padding(
                model,
                {**arguments, "labels": labels},
                padded,
                "attention_mask",
                fixed={"labels": int(labels[1, -1])},
            )
        assert found["['loss']"].verdict == verdict, str(found)


WHISPER: dict[str, Any] = {
    **TWO,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 32,
}
WHISPER |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}


def test_padded_texts_of_a_speech_model() -> None:
    sound = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    arguments = {"input_features": sound, "decoder_input_ids": tokens(9, 0)}
    arguments["decoder_attention_mask"] = mask_of(9, 5, "right")
    found = audit(
        build("Whisper", WHISPER),
        arguments,
        {"decoder_input_ids": {1: "target"}},
        "decoder_attention_mask",
    )
    assert found.proven, str(found)


def test_padded_sound_of_a_speech_model_leaks() -> None:
    """Whisper's encoder has no mask: it is trained on sound that is filled up with silence."""
    sound = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    arguments = {
        "input_features": sound,
        "decoder_input_ids": tokens(9, 0),
        "attention_mask": mask_of(40, 24, "right"),
    }
    found = audit(build("Whisper", WHISPER), arguments, {"input_features": {2: "length"}})
    assert {each.verdict for each in found.outputs} == {"leaks"}


def gradients(model: Any, names: str, side: str, labels: Any) -> symshape.PaddingAudit:
    """The audit of a step of training, with labels of -100 at padding; no dropout."""
    parameters = list(model.parameters())

    def step(loss: torch.Tensor) -> Any:
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return loss, [each for each in found if each is not None]

    made: dict[str, Any] = {"model": model, "step": step}
    given = ", ".join(f"{name}={name}" for name in names.split(", "))
    exec(f"def train({names}, labels):\n    return step(model({given}, labels=labels).loss)", made)
    mask = mask_of(9, 5, side)
    known = {
        "input_ids": tokens(9, 0),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
    }
    arguments = {name: known[name] for name in names.split(", ")} | {
        "labels": torch.where(mask.bool(), labels, -100)
    }
    padded = {"input_ids": {1: "length"}, "labels": {1: "length"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symshape.audit_padding(
            made["train"], arguments, padded, "attention_mask", fixed={"labels": -100}
        )


TRAINED = {
    "Bert": (SMALL, "ForTokenClassification"),
    "Roberta": (ENCODERS["Roberta"], "ForMaskedLM"),
    "ModernBert": (MODERN, "ForMaskedLM"),
    "GPT2": (GPT, "LMHeadModel"),
    "Llama": ({**DECODER, "num_key_value_heads": 2}, "ForCausalLM"),
    "Qwen3": (DECODER, "ForCausalLM"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_fused_attention(name: str) -> None:
    config, suffix = TRAINED[name]
    labels = tokens(9, 3) % 2 if suffix == "ForTokenClassification" else tokens(9, 3)
    found = gradients(build(name, config, suffix), "input_ids, attention_mask", "right", labels)
    assert found.proven, str(found)
    assert len(found.outputs) > 15


def test_the_first_token_is_predicted_from_padding_on_the_left() -> None:
    """Labels are shifted: the position before the first token is padding, and has a label unless
    that is ignored.
    """
    model = build("GPT2", {**GPT, "n_layer": 1}, "LMHeadModel")
    found = gradients(model, "input_ids, attention_mask, position_ids", "left", tokens(9, 3))
    assert found.outputs[0].verdict == "leaks"
    assert found.outputs[0].step is not None
    assert "nll_loss" in found.outputs[0].step.op


@pytest.mark.parametrize("name", ["Wav2Vec2", "Hubert"])
def test_group_norm_over_padded_sound_leaks(name: str) -> None:
    mask = mask_of(64, 40, "right")
    sound = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    found = audit(
        build(name, SPEECH),
        {"input_values": sound, "attention_mask": mask},
        {"input_values": {1: "length"}},
    )
    assert found["['last_hidden_state']"].verdict == "leaks"


def test_tokens_that_read_their_neighbours_leak() -> None:
    config = {
        **SMALL,
        "embedding_size": 16,
        "intra_bottleneck_size": 16,
        "num_feedforward_networks": 1,
    }
    found = one(build("MobileBert", {**config, "true_hidden_size": 16}), "right")
    assert found["['last_hidden_state']"].verdict == "leaks"


def test_routing_of_experts_is_unknown() -> None:
    found = one(build("Mixtral", {**DECODER, "num_local_experts": 4}), "left").outputs[0]
    assert found.verdict == "unknown"
    assert found.step is not None
    assert "sort" in found.step.op
