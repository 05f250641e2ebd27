"""Rules against eager on CUDA: op_db's calls on the device, and the ops that only CUDA calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.meta_fns.opdb import GAPS, Call, in_another_layout, judge, record

aten = torch.ops.aten
HALF = torch.float16


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def heads_inside(*sizes: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    """``(b, h, s, d)`` that lies in memory as ``(b, s, h, d)``."""
    b, h, s, d = sizes
    return randn(b, s, h, d, dtype=dtype).transpose(1, 2)


def last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last)


def attention_calls() -> Iterator[tuple[Any, ...]]:
    flash = aten._scaled_dot_product_flash_attention.default
    efficient = aten._scaled_dot_product_efficient_attention.default
    cudnn = aten._scaled_dot_product_cudnn_attention.default
    for make in (lambda *s: randn(*s, dtype=HALF), heads_inside):
        q, k = make(2, 4, 40, 64), make(2, 4, 56, 64)
        yield flash, q, k, k
        yield flash, q, q, q, 0.0, True
        yield flash, q, k, k, 0.1
        yield efficient, q, k, k, None, True
        yield efficient, q, k, k, None, False
        yield efficient, q, k, k, None, True, 0.1
        yield efficient, q, k, k, randn(2, 4, 40, 56, dtype=HALF), True
        yield efficient, q, k, make(2, 4, 56, 32), None, True
        yield cudnn, q, k, k, None, True
        yield cudnn, q, k, k, None, False
        yield cudnn, q, k, make(2, 4, 56, 32), None, True
    for sizes in ((1, 1, 1, 8), (1, 2, 128, 128), (3, 1, 7, 32)):
        q = randn(*sizes, dtype=torch.bfloat16)
        yield flash, q, q, q
        yield efficient, q, q, q, None, True
    x = randn(2, 40, 4, 64, dtype=HALF)
    yield aten._flash_attention_forward.default, x, x, x, None, None, 40, 40, 0.0, False, False
    yield (
        aten._efficient_attention_forward.default,
        x,
        x,
        x,
        None,
        None,
        None,
        None,
        None,
        0.0,
        0,
        True,
    )


def attention_backward_calls() -> Iterator[tuple[Any, ...]]:
    for make in (lambda *s: randn(*s, dtype=HALF), heads_inside):
        q, k = make(2, 4, 40, 64), make(2, 4, 56, 64)
        out, lse, cq, ck, mq, mk, seed, unused, _ = aten._scaled_dot_product_flash_attention(
            q, k, k, 0.0, False
        )
        yield (
            aten._scaled_dot_product_flash_attention_backward.default,
            *(torch.ones_like(out), q, k, k, out, lse, cq, ck, mq, mk, 0.0, False, seed, unused),
        )
        bias = randn(2, 4, 40, 56, dtype=HALF)
        for given in (None, bias):
            out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(
                q, k, k, given, True
            )
            mask = [True, True, True, given is not None]
            yield (
                aten._scaled_dot_product_efficient_attention_backward.default,
                *(torch.ones_like(out), q, k, k, given, out, lse, seed, offset, 0.0, mask),
            )


def other_calls() -> Iterator[tuple[Any, ...]]:
    x = randn(4, 6, 8, 8)
    for t in (x, last(x), x[:, ::2], randn(4, 6).t()):
        yield aten.native_dropout.default, t, 0.5, True
        yield aten.native_dropout.default, t, 0.5, False
    for dtype in (torch.float32, HALF, torch.bfloat16):
        t = randn(3, 5, 16, dtype=dtype)
        w = randn(16, dtype=dtype)
        yield aten.native_layer_norm.default, t, [16], w, w, 1e-5
        out, mean, rstd = aten.native_layer_norm(t, [16], w, w, 1e-5)
        yield (
            aten.native_layer_norm_backward.default,
            out,
            t,
            [16],
            mean,
            rstd,
            w,
            w,
            [True, True, True],
        )
        yield aten._fused_rms_norm.default, t, [16], w, 1e-5
        yield aten._softmax.default, t, -1, False
        c = randn(4, 6, 8, 8, dtype=dtype)
        for image in (c, last(c)):
            kernel = randn(5, 6, 3, 3, dtype=dtype)
            options = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
            yield aten.convolution.default, image, kernel, None, *options
            yield aten.convolution.default, image, last(kernel), None, *options
            yield (
                aten.convolution_backward.default,
                aten.convolution(image, kernel, None, *options),
                image,
                kernel,
                [5],
                *(*options, [True, True, True]),
            )
            stat = torch.ones(6, device="cuda")
            yield aten.native_batch_norm.default, image, stat, stat, stat, stat, True, 0.1, 1e-5
            yield aten.native_batch_norm.default, image, stat, stat, stat, stat, False, 0.1, 1e-5
            yield aten.cudnn_batch_norm.default, image, stat, stat, stat, stat, True, 0.1, 1e-5
            yield (
                aten.native_group_norm.default,
                image,
                stat.to(dtype),
                stat.to(dtype),
                4,
                6,
                64,
                2,
                1e-5,
            )
    yield aten._softmax.default, randn(3, 5, dtype=HALF), -1, True
    for shape in ((10,), (6, 10), (6, 4, 10)):
        z = torch.randn(*shape, device="cuda", dtype=torch.complex64)
        yield aten._fft_c2c.default, z, [len(shape) - 1], 0, True
        yield aten._fft_c2c.default, z, [0], 0, True
        yield aten._fft_r2c.default, z.real.contiguous(), [len(shape) - 1], 0, True
    x, indices = (
        last(randn(2, 3, 4, 5)),
        last(torch.arange(120, device="cuda").view(2, 3, 4, 5) % 20),
    )
    for t in (x, x.permute(3, 0, 1, 2)):
        yield aten.roll.default, t, [1], [1]
        yield aten.roll.default, t, [1, 2], [1, 0]
        yield aten.native_batch_norm.default, t, None, None, None, None, True, 0.1, 1e-5
        yield aten.native_dropout_backward.default, t, t > 0, 2.0
        yield aten.reflection_pad2d.default, t, [1, 1, 1, 1]
        yield (
            aten.reflection_pad2d_backward.default,
            t[..., :-1, :-1],
            t[..., :-2, :-2],
            [1, 0, 1, 0],
        )
        yield aten.reflection_pad3d.default, t, [1, 1, 1, 1, 1, 1]
        yield aten.replication_pad2d.default, t, [1, 1, 1, 1]
        yield aten.replication_pad3d.default, t, [1, 1, 1, 1, 1, 1]
    yield aten.native_batch_norm.default, randn(4, 6).t(), None, None, None, None, True, 0.1, 1e-5
    yield aten.max_unpool2d.default, x, indices, [4, 5]
    for t in (last(randn(2, 6, 8, 8)), randn(2, 8, 6, 8).transpose(1, 2)):
        yield aten.channel_shuffle.default, t, 3
    w = randn(2, 2, 4, 5)
    for more in ([2, 3], [1, 1]):
        options = ([3, 2], [1, 2], [4, 4], True, more, 2)
        yield aten.convolution.default, last(randn(2, 2, 4, 4)), w, None, *options
    real = randn(3, 4, 5, 6)
    for t in (real, real.permute(3, 1, 0, 2), randn(3, 4, 5, 7)[..., 1:]):
        for dims in ([3], [0, 1], [0, 1, 2], [1, 3], [3, 1], [2, 1, 0], [3, 2, 1, 0], [1, 2, 3, 0]):
            yield aten._fft_r2c.default, t, dims, 0, True
            yield aten._fft_r2c.default, t, dims, 0, False
            z = torch.complex(t, t)
            yield aten._fft_c2c.default, z, dims, 0, True
            yield aten._fft_c2r.default, z, dims, 0, 2 * t.size(dims[-1]) - 1
    b = randn(32, 16, dtype=torch.bfloat16)
    offs = torch.tensor([8, 16, 24, 32], device="cuda", dtype=torch.int32)
    yield aten._grouped_mm.default, b, randn(4, 16, 24, dtype=torch.bfloat16), offs
    yield aten.log_sigmoid_forward.default, randn(4, 6).t()


@pytest.mark.parametrize("calls", [attention_calls, attention_backward_calls, other_calls])
def test_cuda_ops(calls: Any) -> None:
    wrong = []
    tally: Counter[str] = Counter()
    for op, *args in calls():
        verdict = judge(Call(op, tuple(args), {}))
        tally[verdict.label] += 1
        if not verdict.fine:
            wrong.append(f"{verdict.label}: {verdict.detail}")
    assert not wrong, "\n".join(wrong)
    # the rest: what eager refuses too on this device
    assert tally["right"] >= 0.9 * tally.total(), tally


def _relaid(call: Call, rng: random.Random) -> Iterator[Call]:
    """The call with each of its tensors in another layout."""
    if str(call.op) in GAPS:
        return
    for at, leaf in enumerate(tree_leaves((call.args, call.kwargs))):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.dim() > 1:
            yield in_another_layout(call, at, rng)


@pytest.mark.parametrize(("first", "step", "most", "relays"), [(1, 5, 6, False), (3, 15, 3, True)])
def test_recorded_calls_on_the_device(first: int, step: int, most: int, relays: bool) -> None:
    tally: Counter[str] = Counter()
    wrong = []
    rng = random.Random(first)
    for call in record(first=first, step=step, most=most, device="cuda"):
        for each in (call, *(_relaid(call, rng) if relays else ())):
            verdict = judge(each)
            tally[verdict.label] += 1
            if not verdict.fine:
                wrong.append(f"{verdict.label}: {verdict.detail}")
    assert not wrong, "\n".join(wrong[:40])
    assert tally["right"] > 500
