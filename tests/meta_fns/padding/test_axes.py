"""Axes: normal form, agreement, and views against the positions of every element."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch

from guards.terms.arithmetic import symbol
from meta_fns.padding.axes import agree, capacity_of, is_padded, length, normal, prefix, regroup
from meta_fns.padding.refusals import Refuse
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.results import amount
from tests.meta_fns.padding.poison import narrower

A, B = symbol("a"), symbol("b")


def _region(a: int = 6, b: int = 8) -> Region:
    return Region([], {}, {"a": a, "b": b})


def test_normal_form() -> None:
    region = _region()
    a, b = region.size(A), region.size(B)
    assert normal((1, 1)) == ()
    assert normal((2, 3)) == (6,)
    assert [str(size) for size in normal((2, a, 1, 3, b, 2))] == ["2", "3*a", "2*b"]
    assert agree(normal((a, 2)), normal((a * 2,)))
    assert not agree(normal((a,)), normal((b,)))
    assert is_padded(normal((2, a)))
    assert not is_padded(normal((2, 3)))
    assert capacity_of(normal((a, b))) == 48
    assert str(length(normal((a, b)))) == "a*b"


def test_a_prefix_is_one_size() -> None:
    region = _region()
    a, b = region.size(A), region.size(B)
    assert str(prefix(normal((a, 4)))) == "4*a"
    for axis in (normal((a, b)), normal((2, a))):
        with pytest.raises(Refuse, match="do not come first") as caught:
            prefix(axis)
        assert caught.value.remedy


def _shape(rng: random.Random, region: Region) -> list[Any]:
    sizes = [A, B, A * 2, B * 3, A + 1]
    return [
        region.size(rng.choice(sizes)) if rng.random() < 0.5 else rng.choice((1, 2, 3, 4, 6))
        for _ in range(3)
    ]


def _other_shape(rng: random.Random, shape: list[Any]) -> list[Any]:
    """The same elements under other sizes: merged, split, with ones, or (now and then) wrongly
    so.
    """
    sizes = list(shape)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(sizes))
        if rng.random() < 0.5 and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif isinstance(sizes[at], int) and sizes[at] % 2 == 0:
            sizes[at : at + 1] = [sizes[at] // 2, 2] if rng.random() < 0.5 else [2, sizes[at] // 2]
        elif rng.random() < 0.3:
            sizes.insert(at, 1)
        elif rng.random() < 0.2:
            rng.shuffle(sizes)
    return sizes


def test_views_keep_every_element_where_it_belongs() -> None:
    rng = random.Random(0)
    kept = 0
    for _ in range(600):
        region = _region(rng.randint(2, 5), rng.randint(2, 5))
        shape = _shape(rng, region)
        other = _other_shape(rng, shape)
        axes = tuple(normal((size,)) for size in shape)
        try:
            viewed = regroup(axes, other)
        except Refuse:
            continue
        kept += 1
        values = {name: rng.randint(0, cap) for name, cap in region.caps.items()}
        true = [amount(size, values) for size in shape]
        expected = torch.arange(math.prod(true)).reshape(true)
        memory = torch.full(list(map(capacity_of, axes)), -1)
        narrower(axes, values)(memory).copy_(expected)
        mine = narrower(viewed, values)(memory.reshape(list(map(capacity_of, viewed))))
        assert torch.equal(mine, expected.reshape([amount(size, values) for size in other])), (
            shape,
            other,
            values,
        )
    assert kept > 200


def test_a_view_that_cuts_through_a_padded_size_is_refused() -> None:
    region = _region()
    a, b = region.size(A), region.size(B)
    rows = regroup((normal((a,)), normal((4,))), (a * 2, 2))
    assert [str(size) for axis in rows for size in axis] == ["2*a", "2"]
    for old, new in (((a, b), (b, a)), ((a, b), (2, a, b)), ((a + 1,), (2, a))):
        with pytest.raises(Refuse):
            regroup(tuple(normal((size,)) for size in old), new)
