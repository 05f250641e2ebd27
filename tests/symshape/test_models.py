"""Models as people build them (transformers' classes, random weights): every batch and sequence
size stays a symbol.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape import Policy
from tests.symshape.eager import wrong_specs

transformers = pytest.importorskip("transformers")

Arguments = Callable[..., dict[str, torch.Tensor]]
Sizes = tuple[int, ...]


def ids(*sizes: int) -> torch.Tensor:
    return torch.randint(1, 100, sizes)


def mask(batch: int, sequence: int) -> torch.Tensor:
    """Each row is padded at its end, a few by more; every row keeps a token."""
    lengths = torch.tensor([max(1, sequence - 2 * row) for row in range(batch)])
    return (torch.arange(sequence) < lengths[:, None]).long()


@attrs.frozen
class Case:
    """A model, its arguments at some sizes, and the sizes: to trace at, to reuse the trace at, to
    trace again at.
    """

    build: Callable[[], torch.nn.Module]
    arguments: Arguments
    example: Sizes
    others: Sequence[Sizes]
    dynamic: dict[str, Any]


def gpt2() -> torch.nn.Module:
    small = {"vocab_size": 100, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, use_cache=False))


def llama() -> torch.nn.Module:
    small = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**small, **heads, use_cache=False)
    )


def bert() -> torch.nn.Module:
    small = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.BertModel(
        transformers.BertConfig(**small, intermediate_size=64, max_position_embeddings=64)
    )


def t5() -> torch.nn.Module:
    small = {
        "vocab_size": 100,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
    }
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**small, use_cache=False, decoder_start_token_id=0)
    )


def vit() -> torch.nn.Module:
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    return transformers.ViTModel(transformers.ViTConfig(**small, image_size=32, patch_size=8))


def resnet() -> torch.nn.Module:
    return transformers.ResNetModel(
        transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]
        )
    )


def whisper_encoder() -> torch.nn.Module:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    encoder = {
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "max_source_positions": 32,
    }
    decoder = {"decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
    config = transformers.WhisperConfig(
        vocab_size=100, num_mel_bins=8, d_model=32, **tokens, **encoder, **decoder
    )
    return transformers.WhisperModel(config).encoder


BATCH_AND_SEQUENCE = {0: Policy.DYNAMIC, 1: Policy.DYNAMIC}
TEXT = ((3, 17), (5, 31), (4, 2), (2, 64), (7, 5))

CASES = {
    "gpt2": Case(
        gpt2, lambda b, s: {"input_ids": ids(b, s)}, (2, 9), TEXT, {"input_ids": BATCH_AND_SEQUENCE}
    ),
    "gpt2 with a mask": Case(
        gpt2,
        lambda b, s: {"input_ids": ids(b, s), "attention_mask": mask(b, s)},
        (2, 9),
        TEXT,
        {"input_ids": BATCH_AND_SEQUENCE, "attention_mask": BATCH_AND_SEQUENCE},
    ),
    "llama": Case(
        llama,
        lambda b, s: {"input_ids": ids(b, s)},
        (2, 9),
        TEXT,
        {"input_ids": BATCH_AND_SEQUENCE},
    ),
    "llama with a mask": Case(
        llama,
        lambda b, s: {"input_ids": ids(b, s), "attention_mask": mask(b, s)},
        (2, 9),
        TEXT,
        {"input_ids": BATCH_AND_SEQUENCE, "attention_mask": BATCH_AND_SEQUENCE},
    ),
    "bert": Case(
        bert,
        lambda b, s: {"input_ids": ids(b, s), "attention_mask": mask(b, s)},
        (2, 9),
        TEXT,
        {"input_ids": BATCH_AND_SEQUENCE, "attention_mask": BATCH_AND_SEQUENCE},
    ),
    "t5": Case(
        t5,
        lambda b, s, t: {"input_ids": ids(b, s), "decoder_input_ids": ids(b, t)},
        (2, 9, 5),
        ((3, 17, 8), (5, 31, 2), (4, 2, 31), (2, 33, 33), (7, 5, 9)),
        {"input_ids": BATCH_AND_SEQUENCE, "decoder_input_ids": BATCH_AND_SEQUENCE},
    ),
    "vit": Case(
        vit,
        lambda b: {"pixel_values": torch.randn(b, 3, 32, 32)},
        (2,),
        ((3,), (5,), (1,), (8,), (4,)),
        {"pixel_values": {0: Policy.DYNAMIC}},
    ),
    "resnet": Case(
        resnet,
        lambda b, h, w: {"pixel_values": torch.randn(b, 3, h, w)},
        (2, 64, 48),
        ((3, 48, 64), (1, 96, 40), (5, 33, 65), (2, 80, 80), (1, 64, 64)),
        {"pixel_values": {0: Policy.DYNAMIC, 2: Policy.DYNAMIC, 3: Policy.DYNAMIC}},
    ),
    "whisper encoder": Case(
        whisper_encoder,
        lambda b: {"input_features": torch.randn(b, 8, 64)},
        (2,),
        ((3,), (5,), (1,), (8,), (4,)),
        {"input_features": {0: Policy.DYNAMIC}},
    ),
}


def outputs_equal(
    model: torch.nn.Module, served: Callable[..., Any], arguments: dict[str, torch.Tensor]
) -> None:
    expected, tree = pytree.tree_flatten(model(**arguments))
    got, got_tree = pytree.tree_flatten(served(**arguments))
    assert got_tree == tree
    for theirs, ours in zip(expected, got, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours, theirs), (ours - theirs).abs().max()


@pytest.mark.parametrize("name", CASES)
def test_model(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build().eval()
    with torch.no_grad():
        # Policy.DYNAMIC: a program that fixed one of these sizes would raise ConstraintViolation.
        traced = symshape.trace(model, dynamic=case.dynamic, **case.arguments(*case.example))
        assert len([s for s in traced.symbols.values() if s.backed]) == sum(
            len(dims) for dims in case.dynamic.values()
        )
        outputs_equal(model, traced, case.arguments(*case.example))
        for sizes in case.others:
            outputs_equal(model, traced, case.arguments(*sizes))
        assert not wrong_specs(traced, **case.arguments(*case.others[0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama with a mask", "bert", "t5"])
def test_batches_and_sequences_of_one_get_a_trace_of_their_own_where_the_program_asks(
    name: str,
) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build().eval()
    compiled = symshape.compile(model, dynamic=True, runner="eager")
    ones = (1,) * len(case.example)
    with torch.no_grad():
        for sizes in (
            case.example,
            ones,
            (1, *case.example[1:]),
            (2, *ones[1:]),
            *case.others[:2],
            ones,
        ):
            outputs_equal(model, compiled, case.arguments(*sizes))
    assert compiled.stats().traces <= 4


def test_training_a_model_gives_the_gradients_of_eager() -> None:
    torch.manual_seed(0)
    model = gpt2().train()  # with dropout
    other = copy.deepcopy(model)
    tokens = ids(2, 9)
    traced = symshape.trace(model, input_ids=tokens, labels=tokens)
    for sizes in ((2, 9), (3, 12)):
        tokens = ids(*sizes)
        torch.manual_seed(1)
        other(input_ids=tokens, labels=tokens).loss.backward()
        torch.manual_seed(1)
        traced(input_ids=tokens, labels=tokens).loss.backward()
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours.grad, theirs.grad)
