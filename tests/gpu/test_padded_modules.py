"""Modules whose ops on a device are others than on the CPU: what is padded there is padded here,
and right.

(In evaluation ``BatchNorm2d`` is ``cudnn_batch_norm``, an ``LSTMCell`` one fused kernel, a
``softmax`` of halves to floats takes a flag.)  Not among them, and refused on a device: an
``InstanceNorm2d`` with parameters in float32, of which cuDNN makes a reserve whose size only a run
can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import symshape
from symshape.runtime.runners.padded.runner import PaddedRunner
from tests.meta_fns.padding.poison import assert_same, poison

SIZES = ((6, 23), (5, 17), (3, 9), (6, 24), (5, 18), (3, 12), (5, 21), (6, 19))
Inputs = Callable[[int, int], tuple[torch.Tensor, ...]]


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.run(*inputs)


def _image(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(b, 6, n, n + 3),)


def _signal(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(b, 6, n),)


def _rows(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(b, n, 8),)


def _states(count: int) -> Inputs:
    return lambda b, n: tuple(torch.randn(b * n, 8) for _ in range(count + 1))


def _narrow(x: torch.Tensor, **more: Any) -> torch.Tensor:
    """Attention whose values are narrower than its keys, as latent attention's (DeepSeek) are."""
    heads = torch.cat([x, x.flip(-1)], -1).unflatten(-1, (2, 8)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads[..., :4] * 1.0, **more)


def _statistics(norm: nn.Module) -> nn.Module:
    for name, each in norm.named_buffers():
        if each.is_floating_point():
            nn.init.uniform_(each, 0.5, 1.5) if "var" in name else nn.init.normal_(each)
    for each in norm.parameters():
        nn.init.normal_(each)
    return norm


MODULES: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "batch norm 1d": (lambda: _statistics(nn.BatchNorm1d(6)), _signal),
    "batch norm 2d": (lambda: _statistics(nn.BatchNorm2d(6)), _image),
    "batch norm without parameters": (lambda: _statistics(nn.BatchNorm2d(6, affine=False)), _image),
    "instance norm": (lambda: nn.InstanceNorm2d(6), _image),
    "group norm": (lambda: _statistics(nn.GroupNorm(3, 6)), _image),
    "layer norm": (lambda: _statistics(nn.LayerNorm(8)), _rows),
    "rms norm": (lambda: _statistics(nn.RMSNorm(8)), _rows),
    "lstm cell": (lambda: nn.LSTMCell(8, 8), lambda b, n: _states(0)(b, n)),
    "gru cell": (lambda: nn.GRUCell(8, 8), _states(1)),
    "rnn cell": (lambda: nn.RNNCell(8, 8), _states(1)),
    "lstm": (lambda: nn.LSTM(8, 12, batch_first=True), _rows),
    "gru": (lambda: nn.GRU(8, 12, 2, batch_first=True), _rows),
    "attention": (lambda: Applied(lambda x: F.scaled_dot_product_attention(x, x, x)), _rows),
    "attention with narrow values": (lambda: Applied(_narrow), _rows),
    "causal attention with narrow values": (
        lambda: Applied(lambda x: _narrow(x, is_causal=True)),
        _rows,
    ),
    "multi-head attention": (lambda: _Itself(nn.MultiheadAttention(8, 2, batch_first=True)), _rows),
    "transformer layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), _rows),
    "softmax": (lambda: Applied(lambda x: x.softmax(1)), _rows),
    "softmax of halves to floats": (
        lambda: Applied(lambda x: F.softmax(x.half(), 1, dtype=torch.float32)),
        _rows,
    ),
    "log softmax of halves to floats": (
        lambda: Applied(lambda x: F.log_softmax(x.bfloat16(), 1, dtype=torch.float32)),
        _rows,
    ),
    "sum of halves to floats": (
        lambda: Applied(lambda x: x.half().sum(1, dtype=torch.float32)),
        _rows,
    ),
    "grid sample": (
        lambda: Applied(lambda x, grid: F.grid_sample(x, grid.tanh(), align_corners=True)),
        lambda b, n: (torch.randn(b, 6, 7, 9), torch.randn(b, n, 5, 2)),
    ),
    "convolution": (lambda: nn.Conv2d(6, 4, 3, 2, 1), _image),
    "depthwise convolution": (lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6), _image),
    "transposed convolution": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1), _image),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), _image),
    "average pool": (lambda: nn.AvgPool2d(2), _image),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d(1), _image),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="nearest"), _image),
    "dropout": (lambda: nn.Dropout(0.5), _rows),
    "prelu": (lambda: nn.PReLU(), _rows),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), _rows),
    "cumsum": (lambda: Applied(lambda x: x.cumsum(1)), _rows),
    "sort": (lambda: Applied(lambda x: x.sort(1)), _rows),
    "topk": (lambda: Applied(lambda x: x.topk(3, 1).values), _rows),
    "argmax": (lambda: Applied(lambda x: x.argmax(1)), _rows),
    "norm": (
        lambda: Applied(
            lambda x: F.normalize(x, dim=1) + torch.linalg.vector_norm(x, dim=1, keepdim=True)
        ),
        _rows,
    ),
    "index add": (
        lambda: Applied(
            lambda x: torch.zeros(8, 8, device=x.device).index_add(
                0, torch.arange(8, device=x.device), x[0, :8]
            )
        ),
        _rows,
    ),
    "cross entropy": (
        lambda: Applied(
            lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=-100)
        ),
        lambda b, n: (torch.randn(b, n, 8), torch.randint(0, 8, (b, n))),
    ),
    "embedding": (lambda: nn.Embedding(20, 8), lambda b, n: (torch.randint(0, 20, (b, n)),)),
}


class _Itself(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, inner: nn.MultiheadAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(x, x, x, need_weights=False)[0]
        return out


def _refused(name: str, device: str) -> set[str]:
    """The sizes that are not padded on a device; every result is compared with eager's."""
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module = make().eval().to(device)
    compiled = symshape.compile(module, dynamic=True, runner="padded")
    with torch.no_grad():
        for number, sizes in enumerate(SIZES):
            for entry in compiled.entries:
                assert isinstance(entry.runner, PaddedRunner)
                for bucket in entry.runner.buckets:
                    for buffer in bucket.buffers:
                        poison(buffer, number)
            given = [each.to(device) for each in inputs(*sizes)]
            mine, theirs = (
                torch.utils._pytree.tree_leaves(each(*given)) for each in (compiled, module)
            )
            for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                assert_same(a, b, f"call {number}, result {place}", tolerance=1e-3)
    runners = [entry.runner for entry in compiled.entries]
    assert all(isinstance(each, PaddedRunner) for each in runners), compiled.report()
    return {
        f"{size}: {refusal.reason}" for each in runners for size, refusal in each.refusals.items()
    }  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODULES)
def test_what_is_padded_on_the_cpu_is_padded_on_a_device(name: str) -> None:
    here, there = _refused(name, "cpu"), _refused(name, "cuda")
    assert not {each.split(":")[0] for each in there} - {each.split(":")[0] for each in here}, there
