"""Mixtures of experts on a device: their sort is as good as a stable one, and a CUDA graph serves a
range of sizes.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symshape
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison

EXPERTS, WIDTH = 4, 32


class Experts(nn.Module):
    """The rows of each expert in one product of groups, as libraries write it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(WIDTH, EXPERTS))
        self.weights = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH, dtype=torch.bfloat16) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share, chosen = (x.float() @ self.gate).softmax(-1).topk(2)
        ids, order = torch.sort(chosen.reshape(-1))
        ends = torch.histc(ids.int(), bins=EXPERTS, min=0, max=EXPERTS - 1).cumsum(
            0, dtype=torch.int32
        )
        rows = torch._grouped_mm(x[order // 2], self.weights, offs=ends) * share.reshape(-1)[
            order
        ].unsqueeze(1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.size(0), device=x.device)
        return rows[back].view(x.size(0), 2, -1).sum(1)


def test_experts() -> None:
    torch.manual_seed(0)
    model = Experts().cuda()
    compiled = symshape.compile(model, dynamic=True, runner="padded")
    with torch.no_grad():
        for number, rows in enumerate((9, 12, 10, 11, 33, 40, 35, 300, 280)):
            for entry in symshape.compiled_of(compiled).entries:
                assert isinstance(entry.runner, PaddedRunner)
                for bucket in entry.runner.buckets:
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            x = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
            assert_same(compiled(x), model(x), f"{rows} rows", tolerance=5e-2)
    (entry,) = symshape.compiled_of(compiled).entries
    assert isinstance(entry.runner, PaddedRunner)
    assert entry.runner.padding().padded == ("s0",)
    assert len(entry.runner.buckets) == 3


def test_experts_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    # as in a process that has not asked for it yet
    monkeypatch.setattr(torch.cuda, "_cached_device_count", None)
    config = transformers.MixtralConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=EXPERTS,
        num_experts_per_tok=2,
    )
    model = transformers.MixtralForCausalLM(config).eval().to("cuda", torch.bfloat16)

    def run(tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=tokens, use_cache=False).logits
        return logits

    compiled = symshape.compile(run, dynamic=True, runner="padded", fullgraph=True)
    with torch.no_grad():
        for batch, length in ((3, 9), (3, 12), (4, 33), (5, 40), (3, 10)):
            tokens = torch.randint(0, 128, (batch, length), device="cuda")
            assert_same(compiled(tokens), run(tokens), f"({batch}, {length})", tolerance=5e-2)
    runners = [entry.runner for entry in compiled.entries]
    assert all(isinstance(each, PaddedRunner) and each.buckets for each in runners), (
        compiled.report()
    )
