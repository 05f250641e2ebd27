"""Matrix products against eager."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import meta_fns
from guards.sets import sources
from guards.terms import fold
from symshape.dims import Policy
from symshape.errors import SymShapeError
from symshape.tracing.symbolic.env import ShapeEnv
from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor


def some(rng: random.Random) -> int:
    return rng.choice((0, 1, 2, 3))


def dtypes(rng: random.Random, count: int) -> list[torch.dtype]:
    first = rng.choice((torch.float32, torch.float32, *ALL_DTYPES))
    return [first if rng.random() < 0.97 else rng.choice(ALL_DTYPES) for _ in range(count)]


def test_mm() -> None:
    rng = random.Random(0)
    for _ in range(600):
        n, k, m = some(rng), some(rng), some(rng)
        a, b = dtypes(rng, 2)
        left = odd_tensor(rng, [n, k] if rng.random() < 0.95 else odd_sizes(rng), a)
        check_call(
            "aten.mm.default", left, odd_tensor(rng, [k if rng.random() < 0.9 else some(rng), m], b)
        )


def test_bmm() -> None:
    rng = random.Random(0)
    for _ in range(800):
        b, n, k, m = some(rng), some(rng), some(rng), some(rng)
        x, y = dtypes(rng, 2)
        left = odd_tensor(rng, [b, n, k] if rng.random() < 0.95 else odd_sizes(rng), x)
        right = odd_tensor(
            rng,
            [b if rng.random() < 0.95 else some(rng), k if rng.random() < 0.95 else some(rng), m],
            y,
        )
        check_call("aten.bmm.default", left, right)


def test_addmm() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        n, k, m = some(rng), some(rng), some(rng)
        c, a, b = dtypes(rng, 3)
        bias = rng.choice(([m], [n, m], [1, m], [n, 1], [1], [], [1, n, m], [some(rng), m]))
        left = odd_tensor(rng, [n, k], a)
        check_call(
            "aten.addmm.default",
            odd_tensor(rng, bias, c),
            left,
            odd_tensor(rng, [k if rng.random() < 0.95 else some(rng), m], b),
        )


@pytest.mark.parametrize("name", ["mm", "bmm"])
def test_products_of_nothing(name: str) -> None:
    """Whether a kernel is missing, and for ``bmm`` whether dtypes differ, is seen where there is
    something to do.
    """
    dtypes = (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64)
    for n, k, m in itertools.product((0, 1, 2), repeat=3):
        for batch in (0, 1, 2) if name == "bmm" else (None,):
            lead = [] if batch is None else [batch]
            for left, right in itertools.product(dtypes, repeat=2):
                a, b = torch.ones([*lead, n, k], dtype=left), torch.ones([*lead, k, m], dtype=right)
                check_call(f"aten.{name}.default", a, b)


def test_dtypes_of_a_product_that_is_empty_by_a_symbol() -> None:
    """A size that is a symbol and 0 in the example: the graph is for no other."""
    for size, fine in ((0, True), (3, False)):
        env = ShapeEnv()
        rows = env.new_symbol("s0", size, sources.Size("x", 0), Policy.DYNAMIC)
        left = meta_fns.TensorSpec.contiguous((1, rows, 2), torch.bool)
        right = meta_fns.TensorSpec.contiguous((1, 2, 4), torch.int64)
        if fine:
            assert meta_fns.infer("aten.bmm.default", (left, right)).dtype is torch.int64
            assert [fold.evaluate(guard.term, {"s0": 3}) for guard in env.guards] == [False]
        else:
            with pytest.raises((meta_fns.ShapeError, SymShapeError)):
                meta_fns.infer("aten.bmm.default", (left, right))
