"""TensorSpec: what is read off a tensor, and the specs made of it."""

from __future__ import annotations

import random
import re

import attrs
import pytest
import torch

import meta_fns
from meta_fns import TensorSpec
from tests.meta_fns.eager import ALL_DTYPES, describe, odd_sizes, odd_tensor
from tests.meta_fns.symbolic import symbols


def test_of_a_tensor() -> None:
    rng = random.Random(0)
    for _ in range(500):
        tensor = odd_tensor(rng, odd_sizes(rng), rng.choice(ALL_DTYPES))
        spec = TensorSpec.of(tensor)
        assert describe(spec) == describe(tensor)
        assert (spec.dim, spec.numel()) == (tensor.dim(), tensor.numel())
        assert spec.is_contiguous() is tensor.is_contiguous()
        assert spec.canonical() is (tensor.stride() == torch.empty(tensor.size()).stride())
        if tensor.dim() == 4:
            last = torch.channels_last
            assert spec.is_contiguous(last) is tensor.is_contiguous(memory_format=last)
        assert describe(spec.fresh()) == describe(torch.empty(tensor.size(), dtype=tensor.dtype))
        assert describe(spec.fresh((2, 3), torch.int8)) == describe(
            torch.empty(2, 3, dtype=torch.int8)
        )


def test_of_a_sparse_tensor() -> None:
    spec = TensorSpec.of(torch.ones(2, 3).to_sparse())
    assert (spec.sizes, spec.strides, spec.layout) == ((2, 3), (), torch.sparse_coo)


def test_frozen_and_compared_by_identity() -> None:
    spec = TensorSpec.contiguous((2, 3))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.sizes = (3, 2)  # type: ignore[misc]
    assert spec != TensorSpec.contiguous((2, 3))
    env, (n,) = symbols(3)
    a, b = TensorSpec.contiguous((n,)), TensorSpec.contiguous((n + 1,))
    assert a != b
    assert not env.guards


def test_fresh_is_the_spec_itself_where_nothing_changes() -> None:
    spec = TensorSpec.contiguous((2, 3))
    assert spec.fresh() is spec
    assert spec.fresh(None, torch.float32) is spec
    assert spec.fresh(None, torch.float64).dtype is torch.float64
    moved = spec.with_(storage_offset=4)
    assert moved.fresh() is not moved
    assert moved.fresh().storage_offset == 0


def test_changes_forget_what_was_known_of_the_layout() -> None:
    spec = TensorSpec.contiguous((2, 3))
    assert spec.canonical_known
    turned = spec.with_(strides=(1, 2))
    assert turned.canonical_known is None
    assert not turned.canonical()
    assert spec.with_(dtype=torch.int8).canonical_known
    assert not spec.view((3, 2), (1, 3)).canonical()
    assert describe(spec.view((3,), (1,), 2)) == ((3,), (1,), 2, torch.float32, torch.device("cpu"))
    assert spec.with_(storage_offset=5).view((2,), (3,)).storage_offset == 5


def test_text() -> None:
    _, (n,) = symbols(3)
    assert str(TensorSpec.contiguous((n, 4))) == "float32(s0, 4) strides (4, 1) offset 0 on cpu"
    assert "canonical_known" not in repr(TensorSpec.contiguous((2,)))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dtype", "int64", "'int64', a str; write torch.int64"),
        ("dtype", "torch.int64", "'torch.int64', a str; write torch.int64"),
        ("device", "cpu", "'cpu', a str; write torch.device('cpu')"),
        ("layout", "strided", "a str; write torch.strided"),
    ],
)
def test_a_text_in_the_place_of_a_dtype(field: str, value: str, words: str) -> None:
    index = meta_fns.TensorSpec.contiguous((2,), torch.int64).with_(**{field: value})
    for args in ((meta_fns.TensorSpec.contiguous((5, 3)), index), (torch.ones(5, 3), index)):
        with pytest.raises(meta_fns.DtypeError, match=re.escape(words)):
            meta_fns.infer("aten.embedding.default", args)
    with pytest.raises(meta_fns.DtypeError, match=re.escape(words)):
        meta_fns.infer("aten.cat.default", ([index, index],))
