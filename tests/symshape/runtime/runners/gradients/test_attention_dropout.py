"""Whole models with dropout in their attention: forward and backward in tied buckets drop the same
elements.

The kernels are stand-ins for those of a device; ``tests/gpu`` has the kernels themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import symshape
from tests.symshape.runtime.runners.gradients.fused_attention import attention, fused_attention
from tests.symshape.runtime.runners.gradients.test_runner import divided

transformers: Any = pytest.importorskip("transformers")
masks: Any = pytest.importorskip("transformers.masking_utils")
transformers.AttentionInterface.register("stand_in", attention)
transformers.AttentionMaskInterface.register("stand_in", masks.sdpa_mask)

SIZES = [(3, 17), (5, 12), (8, 16), (5, 19), (3, 7), (7, 20), (2, 5), (1, 9), (4, 11), (1, 18)]
WIDTH, LAYERS, WORDS = 16, 2, 40
SHARE = 0.3


def bert(attention: str = "stand_in") -> nn.Module:
    """A BERT of two layers with dropout in its attention alone."""
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=SHARE,
        num_labels=5,
        attn_implementation=attention,
    )
    model: nn.Module = transformers.BertForTokenClassification(config)
    return model


def gpt2(attention: str = "stand_in") -> nn.Module:
    """A GPT-2, likewise."""
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_positions=64,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=SHARE,
        attn_implementation=attention,
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


MODELS: dict[str, Callable[..., nn.Module]] = {"bert": bert, "gpt2": gpt2}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[request.param]().double().train()


def loss_of(model: nn.Module) -> Any:
    def loss(tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = model(input_ids=tokens, attention_mask=mask).logits
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())

    return loss


def arguments(sizes: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Return tokens, a mask that leaves out the end of some rows, and labels."""
    tokens = torch.randint(1, WORDS, sizes)  # 0 is padding to BERT, without a gradient
    lengths = torch.randint(sizes[1] // 2 + 1, sizes[1] + 1, sizes[:1])
    mask = (torch.arange(sizes[1]) < lengths[:, None]).long()
    return tokens, mask, torch.randint(0, 5, sizes)


def buckets(fn: Any) -> int:
    return min(len(runner.buckets) for _, runner in divided(fn).halves)  # type: ignore[attr-defined]


def test_gradients_are_eagers_where_it_drops_the_same(model: nn.Module) -> None:
    theirs = copy.deepcopy(model)
    with fused_attention("by place") as kernels:
        mine = symshape.compile(loss_of(model), runner="padded")
        eager = loss_of(theirs)
        for sizes in SIZES:
            given = arguments(sizes)
            for each, fn in ((model, mine), (theirs, eager)):
                each.zero_grad()
                fn(*given).backward()
            for (name, one), other in zip(
                model.named_parameters(), theirs.parameters(), strict=True
            ):
                torch.testing.assert_close(one.grad, other.grad, msg=lambda m, n=name: f"{n}: {m}")
        assert min(kernels.calls.values()) >= LAYERS * 2 * len(SIZES)
        assert buckets(mine) > 1


def test_backward_drops_what_forward_dropped(model: nn.Module) -> None:
    """The gradient is the difference of two losses with the same elements dropped."""
    step = 1e-5
    with fused_attention("by order"):
        mine = symshape.compile(loss_of(model), runner="padded")
        for sizes in SIZES[:2]:  # the sizes that change are known, and the buckets are there
            mine(*arguments(sizes)).backward()
        parameters = list(model.parameters())
        for sizes in SIZES:
            given = arguments(sizes)
            found = torch.autograd.grad(mine(*given), parameters)
            way = [torch.randn_like(each) for each in parameters]
            losses = []
            for sign in (1, -1):
                with torch.no_grad():
                    for each, moved in zip(parameters, way, strict=True):
                        each += sign * step * moved
                losses.append(mine(*given).item())
                with torch.no_grad():
                    for each, moved in zip(parameters, way, strict=True):
                        each -= sign * step * moved
            expected = (losses[0] - losses[1]) / (2 * step)
            along = sum((a * b).sum().item() for a, b in zip(found, way, strict=True))
            assert along == pytest.approx(expected, rel=1e-5, abs=1e-7)
        assert buckets(mine) > 1


def test_the_kernels_are_torchs_again() -> None:
    with fused_attention("by order"):
        pass
    query = torch.randn(1, 1, 2, 4)
    with pytest.raises(NotImplementedError):
        torch.ops.aten._scaled_dot_product_efficient_attention(query, query, query, None, True)
