"""Attention keeps its batch and lengths dynamic on a device, whichever kernel torch chooses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import symshape
from symshape.runtime.runners.padded import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison

WIDTH, HEADS = 128, 2
KERNELS = (
    None,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
)


class Attention(nn.Module):
    """Queries, keys and values as transformers' encoders lay them out: views whose heads lie inside the sequence."""

    def __init__(self, causal: bool, scale: float | None) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.causal, self.scale = causal, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (each(x).view(*x.shape[:-1], HEADS, -1).transpose(1, 2) for each in self.project)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=self.scale)
        return mixed.transpose(1, 2).reshape(x.shape)


def _traced(model: nn.Module, kernel: SDPBackend | None) -> symshape.Traced:
    def run(x: torch.Tensor) -> torch.Tensor:
        if kernel is None:
            return model(x)
        with sdpa_kernel(kernel):
            return model(x)

    x = torch.randn(3, 40, WIDTH, device="cuda", dtype=torch.bfloat16)
    return symshape.trace(run, x, dynamic={"x": {0: symshape.Dim("batch"), 1: symshape.Dim("length")}})


@pytest.mark.parametrize("scale", [None, 0.125])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: each.name if each else "torch's choice")
def test_no_kernel_fixes_batch_or_length(
    kernel: SDPBackend | None, grad: bool, causal: bool, scale: float | None
) -> None:
    """A fixed dimension is an error of the trace, which tells the guard, the op that asked and the line."""
    model = Attention(causal, scale).to("cuda", torch.bfloat16)
    with torch.set_grad_enabled(grad):
        traced = _traced(model, kernel)
    fixed = [str(guard) for guard in traced.guards if "==" in str(guard.term)]
    assert not fixed, fixed


@pytest.mark.parametrize("name", ["BERT", "ViT"])
@pytest.mark.parametrize("grad", [False, True])
def test_encoders_of_transformers(name: str, grad: bool) -> None:
    hf = pytest.importorskip("transformers")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS, "intermediate_size": WIDTH}
    if name == "BERT":
        model: nn.Module = hf.BertModel(hf.BertConfig(vocab_size=50, **sizes), add_pooling_layer=False)
        x = torch.randint(0, 50, (3, 40), device="cuda")
        dims = {0: symshape.Dim("batch"), 1: symshape.Dim("length")}
    else:
        model = hf.ViTModel(hf.ViTConfig(image_size=32, patch_size=8, **sizes), add_pooling_layer=False)
        x = torch.randn(3, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
        dims = {0: symshape.Dim("batch")}
    model = model.eval().to("cuda", torch.bfloat16)

    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x).last_hidden_state

    with torch.set_grad_enabled(grad):
        traced = symshape.trace(run, x, dynamic={"x": dims})
    assert len(traced.symbols) == len(dims)


def _step(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``(batch, 512), (batch, keys, 512), (batch, keys, 512) -> (batch, 512)``, as a step of decoding attends."""
    rest = (each.view(*each.shape[:2], 8, 64).transpose(1, 2) for each in (keys, values))
    return scaled_dot_product_attention(query.view(-1, 8, 1, 64), *rest).reshape(-1, 512)


def test_one_query_over_many_keys() -> None:
    """Padded keys are hidden from cuDNN's kernel by a mask, whatever they hold."""
    compiled = symshape.compile(_step, dynamic=True, runner="padded")
    sizes = [(40, 700), (44, 720), (48, 760), (37, 690), (3, 30), (48, 768), (41, 1), (48, 705)]
    with torch.no_grad():
        for number, (batch, keys) in enumerate(sizes):
            for entry in compiled.entries:
                assert isinstance(entry.runner, PaddedRunner)
                for bucket in entry.runner.buckets:
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            shapes = (batch, 512), (batch, keys, 512), (batch, keys, 512)
            given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
            assert_same(compiled(*given), _step(*given), str((batch, keys)), 2e-2)
    found = []
    for entry in compiled.entries:
        assert isinstance(entry.runner, PaddedRunner)
        found += [str(node.op) for bucket in entry.runner.buckets for node in bucket._padded.graph.nodes]
    assert any("cudnn" in each for each in found), found
