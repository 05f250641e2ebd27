"""cat, stack and repeat against eager."""

from __future__ import annotations

import random

import torch

from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor, values


def test_cat() -> None:
    rng = random.Random(0)
    for _ in range(1500):
        sizes = odd_sizes(rng)
        dim = rng.randint(-len(sizes) - 1, len(sizes))
        tensors = []
        for _ in range(rng.randint(0, 3)):
            mine = list(sizes)
            if mine and -len(mine) <= dim < len(mine):
                mine[dim] = rng.randint(0, 3)
            if rng.random() < 0.1:
                mine = rng.choice(([0], [2], odd_sizes(rng)))
            dtype = torch.float32 if rng.random() < 0.8 else rng.choice(ALL_DTYPES)
            tensors.append(odd_tensor(rng, mine, dtype))
        check_call("aten.cat.default", tensors, dim)


def test_cat_channels_last() -> None:
    last = values([2, 3, 4, 5], torch.float32).to(memory_format=torch.channels_last)
    plain = values([2, 3, 4, 5], torch.float32)
    for tensors in ([last, last], [last, plain], [plain, last], [last, last[:, :1]]):
        for dim in range(3):
            check_call("aten.cat.default", tensors, dim)


def test_stack() -> None:
    rng = random.Random(0)
    for _ in range(600):
        sizes = odd_sizes(rng, (0, 1, 2, 3))
        tensors = []
        for _ in range(rng.randint(0, 3)):
            mine = sizes if rng.random() < 0.95 else odd_sizes(rng)
            tensors.append(
                odd_tensor(
                    rng, mine, torch.float32 if rng.random() < 0.8 else rng.choice(ALL_DTYPES)
                )
            )
        check_call("aten.stack.default", tensors, rng.randint(-len(sizes) - 2, len(sizes) + 1))


def test_repeat() -> None:
    rng = random.Random(0)
    for _ in range(600):
        tensor = odd_tensor(rng, odd_sizes(rng))
        counts = [
            rng.choice((0, 1, 1, 2, 3, -1 if rng.random() < 0.1 else 1))
            for _ in range(tensor.dim() + rng.randint(-1, 2))
        ]
        check_call("aten.repeat.default", tensor, counts)


def last(sizes: list[int]) -> torch.Tensor:
    """A channels-last tensor."""
    form = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
    return values(sizes, torch.float32).to(memory_format=form)


def test_stack_channels_last() -> None:
    """Eager joins along an existing dimension and takes that apart, so that the format stays."""
    rng = random.Random(0)
    for _ in range(300):
        sizes = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.choice((4, 4, 5)))]
        tensors = [last(sizes) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            tensors.append(odd_tensor(rng, sizes))
        check_call("aten.stack.default", tensors, rng.randint(-len(sizes) - 1, len(sizes)))
    # of 4 dimensions only with the new one, as the last
    for sizes in ([2, 3, 4], [2, 1, 4], [1, 1, 4]):
        turned = values([sizes[0], sizes[2], sizes[1]], torch.float32).transpose(1, 2)
        for dim in range(4):
            check_call("aten.stack.default", [turned, turned], dim)
