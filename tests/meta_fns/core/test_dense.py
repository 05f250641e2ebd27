"""Layouts without gaps: exactly eager's on ints; on symbols what is provable, and an order where it
matters.
"""

from __future__ import annotations

import itertools
import random

import torch

from meta_fns.core import dense
from meta_fns.core.layout import contiguous_strides
from meta_fns.core.tensor_iterator import output_strides
from tests.meta_fns.core.test_layout import tensors
from tests.meta_fns.eager import odd_sizes, odd_tensor, overlapping
from tests.meta_fns.symbolic import guards_at, symbols

FORMATS = (None, torch.preserve_format, torch.contiguous_format)


def test_like_strides_are_those_of_empty_like() -> None:
    kept = 0
    for tensor in tensors(3000):
        sizes, strides = tuple(tensor.size()), tensor.stride()
        for given in FORMATS:
            expected = torch.empty_like(
                tensor, memory_format=given or torch.preserve_format
            ).stride()
            assert dense.like_strides(sizes, strides, given) == expected, (sizes, strides, given)
            kept += expected == strides != contiguous_strides(sizes)
    assert kept > 200


def test_is_dense_is_what_eager_answers() -> None:
    answers = []
    for tensor in tensors():
        sizes, strides = tuple(tensor.size()), tensor.stride()
        answers.append(dense.is_dense(sizes, strides))
        assert answers[-1] is torch.ops.aten.is_non_overlapping_and_dense(tensor), (sizes, strides)
    assert answers.count(True) > 500
    assert answers.count(False) > 300


def test_dense_order_is_an_order_in_memory() -> None:
    rng = random.Random(0)
    found = 0
    for _ in range(500):
        sizes = [size or 1 for size in odd_sizes(rng)]
        tensor = overlapping(rng, sizes) if rng.random() < 0.3 else odd_tensor(rng, sizes)
        order = dense.dense_order(sizes, tensor.stride())
        assert (order is not None) is (
            torch.ops.aten.is_non_overlapping_and_dense(tensor) or len(sizes) == 0
        )
        if order is not None:
            assert sorted(order) == list(range(len(sizes)))
            assert tensor.permute(order[::-1]).is_contiguous()
            found += 1
    assert found > 200


def test_symbols_of_a_dense_layout_ask_nothing() -> None:
    env, (a, b, c) = symbols(2, 3, 4)
    # b outermost, then c, then a
    strides = (1, a.at_least_one() * c.at_least_one(), a.at_least_one())
    assert dense.dense_order((a, b, c), strides) == [0, 2, 1]
    assert dense.is_dense((a, b, c), strides)
    assert dense.like_strides((a, b, c), strides, None) is strides
    assert not dense.is_dense((a, b), (b * 2, 1))
    assert not env.guards


def test_compare_asks_only_what_is_not_provable() -> None:
    env, (a, b) = symbols(2, 3)
    assert dense.compare(2, 3, 4, 4) == -1
    assert dense.compare(a, a, 4, 4) == 0
    assert dense.compare(a + 1, a, 4, 4) == 1
    assert dense.compare(a, a * 2, 4, 4) == -1  # unequal but at 0, where nothing is addressed
    assert not env.guards
    assert dense.compare(a, b, 4, 4) == -1
    assert guards_at(env, 2, 3)
    assert not guards_at(env, 3, 2)


def test_compare_asks_whether_strides_are_equal_unless_one_spans_the_other_dimension() -> None:
    env, (a, b) = symbols(4, 1)
    env.declare(b.term >= 1, "layout")
    assert dense.compare(b, 1, 4, 1) == 1  # the other dimension has one element
    assert dense.compare(a.at_least_one() * 3, 3, 4, a) == 1  # it spans the other dimension
    assert len(env.guards) == 1
    assert dense.compare(b, 1, 4, 4) == 0  # elements share memory
    assert guards_at(env, 4, 1)
    assert not guards_at(env, 4, 2)


def test_strides_that_are_equal_are_ordered_by_sizes() -> None:
    """Windows that overlap by all but one (a stride of 1 in both dimensions)."""
    for sizes in ((4, 3), (3, 4), (4, 4)):
        env, (a, b, stride) = symbols(*sizes, 1)
        env.declare(stride.term >= 1, "layout")
        tensor = torch.zeros(8).as_strided(sizes, (1, 1))
        eager = (tensor * 2).stride()
        found = output_strides((a, b), [((a, b), (1, stride))])
        assert tuple(each if type(each) is int else each.hint for each in found) == eager
        assert guards_at(env, *sizes, 1)
        assert not guards_at(env, *sizes, 2)
        assert torch.empty_like(tensor).stride() == dense.like_strides(sizes, (1, 1), None)


def test_order_known_never_asks() -> None:
    env, (a, b) = symbols(2, 3)
    for left, right in itertools.product((0, 1, 2), repeat=2):
        assert dense.order_known(left, right) == (left > right) - (left < right)
    assert dense.order_known(a + 1, a) == 1
    assert dense.order_known(a, a + 1) == -1
    assert dense.order_known(a, a) == dense.order_known(a, b) == dense.order_known(b, 1) == 0
    assert not env.guards


def test_larger_lets_sizes_of_one_be() -> None:
    env, (a, b) = symbols(5, 3)
    assert not dense.larger(a, 1)
    assert not dense.larger(1, a)
    assert not dense.larger(a, a)
    assert dense.larger(a + 1, a)
    assert dense.larger(3, 2)
    assert not env.guards
    assert dense.larger(a, b)
    assert guards_at(env, 5, 3)
    assert not guards_at(env, 3, 5)
