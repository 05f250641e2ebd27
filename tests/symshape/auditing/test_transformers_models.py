"""Models of transformers with random tiny configurations: right padding, left padding, two
sequences, sound.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import symshape
from tests.symshape.auditing.models import (
    DECODER,
    ENCODERS,
    GPT,
    MODERN,
    QUESTIONS,
    SMALL,
    build,
    mask_of,
    of_tokens,
    tokens,
    worst,
)

pytest.importorskip("transformers")

QUICK = ("Bart", "T5", "Whisper, padded texts", "Whisper, padded sound", "Wav2Vec2", "Mixtral")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in QUESTIONS],
)
def test_verdicts(name: str) -> None:
    question = QUESTIONS[name]()
    found = question.audit()
    assert worst(found) == question.verdict, str(found)


def test_pooling_of_bert() -> None:
    model = build("Bert", SMALL)

    def wrong(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return model(input_ids, attention_mask).last_hidden_state.mean(1)  # type: ignore[no-any-return]

    def right(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = model(input_ids, attention_mask).last_hidden_state
        return (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)  # type: ignore[no-any-return]

    assert of_tokens(right, "right").audit().proven
    found = of_tokens(wrong, "right").audit()["result"]
    assert found.verdict == "leaks"
    assert found.step is not None
    assert found.step.op == "aten.mean.dim"
    assert found.path[0].op == "aten.embedding.default"
    without = of_tokens(
        lambda input_ids, attention_mask: model(input_ids).last_hidden_state, "right"
    ).audit()["result"]
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


def test_routing_of_experts_is_unknown_at_its_sort() -> None:
    found = QUESTIONS["Mixtral"]().audit().outputs[0]
    assert found.step is not None
    assert "sort" in found.step.op
