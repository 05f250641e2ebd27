"""The generated function that nests results, against torch's own walk over the structure."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls.building import nesting

Pair = namedtuple("Pair", "left right")


def _nested(random: random.Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.3:
        return random.randrange(100)
    items = [_nested(random, depth - 1) for _ in range(random.randrange(4))]
    names: list[Any] = random.sample(["a", "b", 'a "quoted" key', 3, (1, 2), None], len(items))
    made: list[Any] = [
        tuple(items),
        items,
        dict(zip(names, items, strict=True)),
        OrderedDict(zip(names, items, strict=True)),
        defaultdict(list, zip(names, items, strict=True)),
        deque(items, maxlen=9),
        Pair(items, tuple(items)),
    ]
    return random.choice(made)


def _kinds(value: Any) -> Any:
    """The classes in a nested value, with the order of keys."""
    if isinstance(value, dict):
        return type(value), [(key, _kinds(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), [_kinds(each) for each in value]
    return type(value)


@pytest.mark.parametrize("seed", range(100))
def test_as_torch_nests(seed: int) -> None:
    value = _nested(random.Random(seed), 4)
    flat, tree = pytree.tree_flatten(value)
    nest = nesting(tree)
    assert nest is not None
    other = [each + 1000 for each in flat]
    made, expected = nest(other), pytree.tree_unflatten(other, tree)
    assert made == expected
    assert _kinds(made) == _kinds(expected)


def test_a_size_comes_back_as_one() -> None:
    flat, tree = pytree.tree_flatten([torch.Size([2, 3]), 4])
    nest = nesting(tree)
    assert nest is not None
    assert type(nest(flat)[0]) is torch.Size


def test_each_call_makes_containers_of_its_own() -> None:
    _, tree = pytree.tree_flatten([[], {}])
    nest = nesting(tree)
    assert nest is not None
    assert nest([])[0] is not nest([])[0]


def test_what_is_too_deep_to_be_written_is_not() -> None:
    value: Any = 1
    for _ in range(120):
        value = [value]
    assert nesting(pytree.tree_structure(value)) is None
