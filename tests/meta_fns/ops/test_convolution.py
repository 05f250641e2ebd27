"""Convolution against eager."""

from __future__ import annotations

import random
from itertools import product

import torch

import meta_fns
from guards.sets import sources
from guards.terms import fold
from symshape.dims import Policy
from symshape.tracing.symbolic.env import ShapeEnv
from tests.meta_fns.eager import check_call, odd_tensor, overlapping


def test_convolution() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(1500):
        n = rng.choice((1, 1, 2, 2, 2, 3))
        groups = rng.choice((1, 1, 1, 2, 3))
        transposed = rng.random() < 0.25
        out, channels = groups * rng.randint(1, 2), groups * rng.randint(1, 3)
        kernel = [rng.randint(1, 3) for _ in range(n)]
        spatial = [rng.randint(1, 7) for _ in range(n)]
        batch = [rng.choice((0, 1, 2, 3))] if rng.random() < 0.9 else []
        dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
        weight = (
            [channels, out // groups, *kernel] if transposed else [out, channels // groups, *kernel]
        )
        if rng.random() < 0.05:
            weight[rng.randrange(2)] += 1
        tensor = odd_tensor(rng, [*batch, channels, *spatial], dtype)
        bias = torch.ones(out, dtype=dtype) if rng.random() < 0.5 else None
        stride, dilation = ([rng.randint(1, 2) for _ in range(n)] for _ in range(2))
        padding, extra = [rng.randint(0, 2) for _ in range(n)], [0] * n
        pieces = zip(spatial, stride, padding, dilation, kernel, strict=True)
        if transposed and any((s - 1) * t - 2 * p + d * (k - 1) < 0 for s, t, p, d, k in pieces):
            continue  # An empty output: some of eager's backends refuse it and some do not.
        args = (stride, padding, dilation, transposed, extra, groups)
        accepted += check_call(
            "aten.convolution.default", tensor, odd_tensor(rng, weight, dtype), bias, *args
        )
    assert accepted > 700


def test_channels_last_convolution() -> None:
    rng = random.Random(0)
    for _ in range(300):
        sizes = [rng.randint(1, 3), rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 6)]
        kernel = [rng.randint(1, 4), sizes[1], rng.randint(1, 2), rng.randint(1, 2)]
        tensor, weight = torch.ones(sizes), torch.ones(kernel)
        which = rng.randint(0, 2)
        if which != 0:
            tensor = tensor.to(memory_format=torch.channels_last)
        if which != 1:
            weight = weight.to(memory_format=torch.channels_last)
        check_call(
            "aten.convolution.default",
            tensor,
            weight,
            None,
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
        )


def test_sequence_first_convolution() -> None:
    """A (batch, time, channels) tensor seen as (batch, channels, time): eager takes it for channels
    last.
    """
    for batch, time, channels, out in (
        (2, 5, 3, 4),
        (1, 5, 3, 4),
        (2, 5, 1, 4),
        (2, 5, 3, 1),
        (2, 1, 3, 4),
    ):
        for layout in (0, 1):
            tensor = torch.ones(batch, time, channels).transpose(1, 2)
            weight = (
                torch.ones(out, channels, 1)
                if layout
                else torch.ones(out, 1, channels).transpose(1, 2)
            )
            check_call(
                "aten.convolution.default", tensor, weight, None, [1], [0], [1], False, [0], 1
            )


def test_convolution_of_windows() -> None:
    """An input whose elements share memory, as ``unfold`` gives."""
    rng = random.Random(0)
    for _ in range(600):
        n = rng.choice((1, 2, 2, 3))
        sizes = [rng.randint(1, 4) for _ in range(n + 2)]
        dtype = rng.choice((torch.float32, torch.float32, torch.float64))
        weight = odd_tensor(
            rng, [rng.randint(1, 3), sizes[1], *[rng.randint(1, size) for size in sizes[2:]]], dtype
        )
        args = ([1] * n, [0] * n, [1] * n, False, [0] * n, 1)
        check_call("aten.convolution.default", overlapping(rng, sizes, dtype), weight, None, *args)


def test_convolution_of_nothing_takes_any_dtypes() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(800):
        dtypes = [
            rng.choice((torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64))
            for _ in "iwb"
        ]
        channels = rng.choice((0, 1, 3))
        n = rng.choice((1, 2, 3))
        sizes = [0 if channels else 2, channels, *[rng.choice((1, 2, 4)) for _ in range(n)]]
        weight = torch.ones(
            [rng.choice((1, 3)), channels, *[rng.choice((1, 2)) for _ in range(n)]], dtype=dtypes[1]
        )
        bias = torch.ones(weight.size(0), dtype=dtypes[2]) if rng.random() < 0.5 else None
        args = ([1] * n, [0] * n, [1] * n, False, [0] * n, 1)
        tensor = torch.ones(sizes, dtype=dtypes[0])
        accepted += check_call("aten.convolution.default", tensor, weight, bias, *args)
    assert accepted > 300


def test_spatial_sizes_must_not_be_empty() -> None:
    """Unless there are no samples or no channels; padding or a transposed convolution do not
    help.
    """
    for batch in (0, 2):
        for channels in (0, 3):
            for size in (0, 1, 2):
                for transposed in (False, True):
                    for padding in (0, 1):
                        weight = torch.ones(
                            3 if not transposed else channels,
                            channels if not transposed else 3,
                            1,
                            1,
                        )
                        args = ([1, 1], [padding] * 2, [1, 1], transposed, [0, 0], 1)
                        tensor = torch.ones(batch, channels, size, 4)
                        if min(size - 2 * padding, 4 - 2 * padding) > 0 or not transposed:
                            check_call("aten.convolution.default", tensor, weight, None, *args)


def test_spatial_sizes_by_symbols() -> None:
    for transposed in (False, True):
        env = ShapeEnv()
        length = env.new_symbol("s0", 3, sources.Size("x", 0), Policy.DYNAMIC)
        tensor = meta_fns.TensorSpec.contiguous((5, 3, length))
        weight = meta_fns.TensorSpec.contiguous((3, 3, 2))
        args = ([1], [1], [1], transposed, [0], 1)
        meta_fns.infer("aten.convolution.default", (tensor, weight, None, *args))
        assert not all(fold.evaluate(guard.term, {"s0": 0}) for guard in env.guards)
        assert all(fold.evaluate(guard.term, {"s0": 2}) for guard in env.guards)


def test_a_convolution_without_output_channels_is_refused() -> None:
    """Eager refuses weights without output channels, whatever the input: so no unused one may be
    dropped silently.
    """
    for transposed in (False, True):
        for batch in (0, 2):
            for channels in (0, 3):
                weight = torch.ones([channels, 0, 3, 3] if transposed else [0, channels, 3, 3])
                tensor = torch.ones(batch, channels, 5, 5)
                args = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)
                assert not check_call("aten.convolution.default", tensor, weight, None, *args)


def test_an_empty_kernel_is_refused() -> None:
    """Unless there are no channels; a transposed convolution refuses it then, too."""
    accepted = 0
    for batch, channels, kernel in product((0, 2), (0, 3), ((0,), (0, 1), (2, 0))):
        tensor = torch.ones(batch, channels, *[5] * len(kernel))
        for padding, transposed in product((0, 1), (False, True)):
            weight = torch.ones((channels, 2, *kernel) if transposed else (2, channels, *kernel))
            args = ([1], [padding], [1], transposed, [0], 1)
            accepted += check_call("aten.convolution.default", tensor, weight, None, *args)
    assert accepted == 12
