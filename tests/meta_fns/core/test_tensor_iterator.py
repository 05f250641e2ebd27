"""TensorIterator's outputs: sizes, strides and device, against eager's `add` and `where` in odd
layouts.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from meta_fns import DtypeError, TensorSpec
from meta_fns.core import tensor_iterator
from tests.meta_fns.eager import (
    ALL_DTYPES,
    broadcastable,
    describe,
    odd_sizes,
    odd_tensor,
    overlapping,
)
from tests.meta_fns.symbolic import at, guards_at, symbols


def test_two_operands() -> None:
    rng = random.Random(0)
    kept = 0
    for _ in range(2500):
        sizes = odd_sizes(rng)
        make = overlapping if rng.random() < 0.2 else odd_tensor
        a, b = (make(rng, broadcastable(rng, sizes)) for _ in range(2))
        expected = torch.add(a, b)
        found = tensor_iterator.iterate((TensorSpec.of(a), TensorSpec.of(b)), torch.float32)
        assert describe(found) == describe(expected), (describe(a), describe(b))
        kept += not expected.is_contiguous()
    assert kept > 100


def test_three_operands() -> None:
    rng = random.Random(1)
    for _ in range(1500):
        sizes = odd_sizes(rng)
        tensors = [odd_tensor(rng, broadcastable(rng, sizes)) for _ in range(3)]
        found = tensor_iterator.iterate([TensorSpec.of(t) for t in tensors], torch.float32)
        assert describe(found) == describe(torch.addcmul(*tensors)), [describe(t) for t in tensors]


def test_operands_are_cast_before_their_strides_are_seen() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        sizes = odd_sizes(rng)
        tensors = [
            odd_tensor(rng, broadcastable(rng, sizes), rng.choice((torch.float32, torch.int64)))
            for _ in range(2)
        ]
        common = torch.result_type(*tensors)
        found = tensor_iterator.iterate([TensorSpec.of(t) for t in tensors], common, common)
        assert describe(found) == describe(torch.mul(*tensors)), [describe(t) for t in tensors]


def test_numbers_count_as_operands() -> None:
    rng = random.Random(3)
    for _ in range(1000):
        tensor = odd_tensor(rng, odd_sizes(rng))
        found = tensor_iterator.iterate((TensorSpec.of(tensor),), torch.float32, numbers=True)
        assert describe(found) == describe(tensor * 2), describe(tensor)


def test_laid_out_like() -> None:
    rng = random.Random(4)
    for _ in range(1000):
        tensor = odd_tensor(rng, odd_sizes(rng))
        spec = TensorSpec.of(tensor)
        dtype = rng.choice((None, *ALL_DTYPES))
        assert describe(tensor_iterator.laid_out_like(spec, dtype)) == describe(
            torch.empty_like(tensor, dtype=dtype)
        )


def test_devices() -> None:
    cuda, other = torch.device("cuda", 0), torch.device("cuda", 1)
    tensor, number = TensorSpec.contiguous((2,), device=cuda), TensorSpec.contiguous(())
    vector = TensorSpec.contiguous((2,))
    for operands in itertools.permutations((tensor, number, number)):
        assert tensor_iterator.common_device(operands) == cuda
    assert tensor_iterator.common_device((number, number)) == torch.device("cpu")
    assert tensor_iterator.common_device((number, number.with_(device=cuda))) == cuda
    for wrong in (
        (tensor, vector),
        (vector, tensor),
        (tensor, number.with_(device=other)),
        (number, vector, tensor),
    ):
        with pytest.raises(DtypeError, match="two devices"):
            tensor_iterator.common_device(wrong)


def test_contiguous_symbols_ask_nothing() -> None:
    env, (n, m) = symbols(3, 4)
    spec = TensorSpec.contiguous((n, m))
    result = tensor_iterator.iterate(
        (spec, TensorSpec.contiguous((m,)), TensorSpec.contiguous((n, 1))), torch.float32
    )
    assert result.sizes is spec.sizes
    assert result.strides is spec.strides
    assert result.canonical_known
    turned = spec.view((m, n), spec.strides[::-1])
    assert tensor_iterator.iterate((turned, turned), torch.float32).strides == turned.strides
    assert not env.guards


def test_a_turned_operand_beside_a_plain_one() -> None:
    """The first operand that tells two dimensions apart decides; at all values that the guards let
    through.
    """
    for hints in ((3, 4), (1, 4), (3, 1)):
        env, (n, m) = symbols(*hints)
        turned = TensorSpec((n, m), (1, n.at_least_one()))
        found = tensor_iterator.iterate((turned, TensorSpec.contiguous((n, m))), torch.float32)
        for a, b in itertools.product((1, 2, 3, 4, 5), repeat=2):
            if guards_at(env, a, b):
                eager = torch.ones(b, a).t() + torch.ones(a, b)
                mine = at(found, {"s0": a, "s1": b})
                assert mine.sizes == tuple(eager.size())
                strides = zip(eager.size(), eager.stride(), mine.strides, strict=True)
                assert all(theirs == ours for size, theirs, ours in strides if size != 1)
