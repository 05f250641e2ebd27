"""Copies and fills against eager."""

from __future__ import annotations

import random

import pytest
import torch

import meta_fns
from tests.meta_fns.eager import ALL_DTYPES, check_call, odd_sizes, odd_tensor


def test_copy() -> None:
    rng = random.Random(0)
    for _ in range(400):
        tensor = odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES))
        source = [rng.choice((s, s, 1)) for s in tensor.shape]
        if rng.random() < 0.2:
            source = odd_sizes(rng)
        check_call("aten.copy_.default", tensor, odd_tensor(rng, source, rng.choice(ALL_DTYPES)))
        check_call("aten.fill_.Scalar", tensor, 1)
        check_call("aten.fill_.Tensor", tensor, odd_tensor(rng, rng.choice(([], [1]))))
        check_call("aten.zero_.default", tensor)


def test_copy_into_elements_that_share_memory() -> None:
    """Refused; but from a tensor that looks the same it may be the same, which eager lets pass."""
    wide = torch.ones(1, 3).expand(2, 3)
    for source in (
        torch.ones(2, 3),
        torch.ones(3),
        torch.ones(()),
        wide.double(),
        torch.ones(1, 3),
    ):
        assert not check_call("aten.copy_.default", wide, source)
    with pytest.raises(meta_fns.UnsupportedOp):
        meta_fns.infer("aten.copy_.default", (wide, wide))
    for sizes in ((0, 3), (1, 3), (2, 0)):
        fine = torch.ones(1, sizes[1]).expand(sizes)
        assert check_call("aten.copy_.default", fine, fine)
        assert check_call("aten.copy_.default", fine, torch.ones(sizes))
