"""Attention keeps its batch and lengths dynamic on a device, whichever kernel torch chooses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import symshape
from symshape.frontends import dynamo
from symshape.runtime.runners.padded.runner import PaddedRunner
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
    """Queries, keys and values as transformers' encoders lay them out: views whose heads lie inside
    the sequence.
    """

    def __init__(self, causal: bool, scale: float | None) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.causal, self.scale = causal, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            each(x).view(*x.shape[:-1], HEADS, -1).transpose(1, 2) for each in self.project
        )
        mixed = scaled_dot_product_attention(
            query, key, value, is_causal=self.causal, scale=self.scale
        )
        return mixed.transpose(1, 2).reshape(x.shape)


def _traced(model: nn.Module, kernel: SDPBackend | None) -> symshape.Traced:
    def run(x: torch.Tensor) -> torch.Tensor:
        if kernel is None:
            return model(x)
        with sdpa_kernel(kernel):
            return model(x)

    x = torch.randn(3, 40, WIDTH, device="cuda", dtype=torch.bfloat16)
    return symshape.trace(
        run, x, dynamic={"x": {0: symshape.Dim("batch"), 1: symshape.Dim("length")}}
    )


@pytest.mark.parametrize("scale", [None, 0.125])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "kernel", KERNELS, ids=lambda each: each.name if each else "torch's choice"
)
def test_no_kernel_fixes_batch_or_length(
    kernel: SDPBackend | None, grad: bool, causal: bool, scale: float | None
) -> None:
    """A fixed dimension is an error of the trace, which tells the guard, the op that asked and the
    line.
    """
    model = Attention(causal, scale).to("cuda", torch.bfloat16)
    with torch.set_grad_enabled(grad):
        traced = _traced(model, kernel)
    fixed = [str(guard) for guard in traced.guards if "==" in str(guard.term)]
    assert not fixed, fixed


@pytest.mark.parametrize("name", ["BERT", "ViT"])
@pytest.mark.parametrize("grad", [False, True])
def test_encoders_of_transformers(name: str, grad: bool) -> None:
    hf = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "intermediate_size": WIDTH,
    }
    if name == "BERT":
        model: nn.Module = hf.BertModel(
            hf.BertConfig(vocab_size=50, **sizes), add_pooling_layer=False
        )
        x = torch.randint(0, 50, (3, 40), device="cuda")
        dims = {0: symshape.Dim("batch"), 1: symshape.Dim("length")}
    else:
        model = hf.ViTModel(
            hf.ViTConfig(image_size=32, patch_size=8, **sizes), add_pooling_layer=False
        )
        x = torch.randn(3, 3, 32, 32, device="cuda", dtype=torch.bfloat16)
        dims = {0: symshape.Dim("batch")}
    model = model.eval().to("cuda", torch.bfloat16)

    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x).last_hidden_state

    with torch.set_grad_enabled(grad):
        traced = symshape.trace(run, x, dynamic={"x": dims})
    assert len(traced.symbols) == len(dims)


def _step(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``(batch, 512), (batch, keys, 512), (batch, keys, 512) -> (batch, 512)``, as a step of
    decoding attends.
    """
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
        found += [
            str(node.op) for bucket in entry.runner.buckets for node in bucket._padded.graph.nodes
        ]
    assert any("cudnn" in each for each in found), found


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    dynamo.alive.clear()
    yield
    torch._dynamo.reset()


class Masked(Attention):
    """With a bias that is learnt, which hides some keys besides; queries and keys of different
    numbers.
    """

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, keep: torch.Tensor | None = None
    ) -> torch.Tensor:
        query, key, value = (
            each(of).view(*of.shape[:-1], HEADS, -1).transpose(1, 2)
            for each, of in zip(self.project, (x, y, y), strict=True)
        )
        mixed = scaled_dot_product_attention(
            query, key, value, keep, is_causal=self.causal, scale=self.scale
        )
        return mixed.transpose(1, 2).reshape(x.shape)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("way", ["causal", "plain", "mask", "bias"])
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
        (SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16),
        (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
        (SDPBackend.FLASH_ATTENTION, torch.float16),
        (SDPBackend.CUDNN_ATTENTION, torch.bfloat16),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_gradients_of_each_kernel(kernel: SDPBackend, dtype: torch.dtype, way: str) -> None:
    """Forward and backward are padded whole, whatever lies in their buffers, and gradients are
    eager's.
    """
    masked = way in ("mask", "bias")
    if masked and kernel is SDPBackend.FLASH_ATTENTION:
        pytest.skip("takes no mask")
    if way == "bias" and kernel is SDPBackend.CUDNN_ATTENTION:
        pytest.skip("has no gradient of a bias")
    torch.manual_seed(0)
    model = Masked(way == "causal", None).to("cuda", dtype)

    def run(*args: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(kernel):
            return model(*args)

    compiled = torch.compile(
        run, backend=dynamo.symshape_backend, options={"runner": "padded"}, dynamic=True
    )
    for number, (batch, length, keys) in enumerate(
        [(3, 40, 24), (4, 33, 70), (2, 64, 31), (5, 7, 65), (3, 41, 40), (2, 3, 5)]
    ):
        keys = length if way == "causal" else keys
        for graph in dynamo.alive:
            for entry in graph.entries:
                if isinstance(entry.runner, PaddedRunner):
                    for bucket in entry.runner.buckets:
                        for buffer in bucket.buffers:
                            poison(buffer, number)
        x, y = (
            torch.randn(batch, n, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
            for n in (length, keys)
        )
        given = [x, y]
        if masked:
            keep = torch.rand(batch, 1, length, keys, device="cuda") < 0.6
            keep[..., 0] = True
            bias = torch.randn(keep.shape, device="cuda", dtype=dtype)
            given.append(keep if way == "mask" else bias.requires_grad_())
        weight = torch.randn(batch, length, WIDTH, device="cuda", dtype=dtype)
        found = []
        for each in (run, compiled):
            leaves = [*(leaf for leaf in given if leaf.requires_grad), *model.parameters()]
            found.append(torch.autograd.grad((each(*given) * weight).sum(), leaves))
        for mine, theirs in zip(found[1], found[0], strict=True):
            assert_same(
                mine, theirs, str((batch, length, keys)), 1e-3 if dtype is torch.float32 else 4e-2
            )
    text = str(symshape.backend_report())
    for graph in dynamo.alive:
        (entry,) = graph.entries
        assert isinstance(entry.runner, PaddedRunner), text
        assert entry.runner.buckets, text
        assert entry.runner.instead is None, text
        assert not entry.runner.refusals, text
