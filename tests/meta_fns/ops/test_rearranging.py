"""Rolled tensors against eager."""

from __future__ import annotations

import random

from tests.meta_fns.eager import check_call, odd_tensor
from tests.meta_fns.ops.test_joining import last


def test_roll() -> None:
    rng = random.Random(0)
    for _ in range(600):
        sizes = [rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(rng.choice((0, 1, 2, 4, 4, 5)))]
        plain = rng.random() < 0.5 or len(sizes) < 4
        tensor = odd_tensor(rng, sizes) if plain else last(sizes)
        dims = [rng.randint(-len(sizes), max(len(sizes) - 1, 0)) for _ in range(rng.randint(0, 3))]
        shifts = [rng.randint(-5, 5) for _ in (dims or [0])]
        check_call("aten.roll.default", tensor, shifts, dims)
