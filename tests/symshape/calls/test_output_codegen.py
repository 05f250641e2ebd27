"""The generated function that nests results, against torch's own walk over the structure."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls.object_arguments import (
    ArgumentReference,
    HeldClass,
    MadeObject,
    MadeReference,
    ObjectWrite,
    Outcome,
)
from symshape.calls.outputs import _finished, finishing, nesting, unflatten
from tests.symshape.calls.test_object_kinds import assert_same

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


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    b: Any


NUMBERS = itertools.count()


class Own:
    """Whose constructor is not called, nor its ``__setattr__``."""

    def __init__(self) -> None:
        raise AssertionError

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError


def _with_stand_ins(
    random: random.Random, depth: int, made: list[int], given: tuple[int, ...] = (3,)
) -> Any:
    """What stands for a result with objects in it, as programs have it."""
    kind = random.randrange(9 if depth else 3)
    if kind < 2:
        return random.randrange(100)
    if kind == 2:
        return random.choice(
            [
                ArgumentReference(random.choice(given)),
                HeldClass(int),
                MadeReference(random.choice(made)) if made else 1,
            ]
        )
    items = [_with_stand_ins(random, depth - 1, made, given) for _ in range(2)]
    if kind < 5:
        return random.choice([tuple(items), items, {"b": items[0], 3: items[1]}])
    its_class = random.choice([Frozen, Slotted, Own, list, dict, types.SimpleNamespace])
    names = (0, 1) if its_class is list else random.choice([("a", "b"), ("b", "a")])
    made.append(next(NUMBERS))
    return MadeObject(its_class, names, made[-1], items)


@pytest.mark.parametrize("seed", range(100))
def test_objects_are_made_given_back_and_written(seed: int) -> None:
    # no object holds itself: what is written gives back the last leaf
    rng, numbers = (random.Random(seed), list[int]())
    result = _with_stand_ins(rng, 4, [], (0, 1, 2, 3))
    kinds = (Frozen, Slotted, list)
    writes = [
        ObjectWrite(
            at,
            kind,
            (0, 1) if kind is list else ("b", "a"),
            [_with_stand_ins(rng, 2, numbers) for _ in range(2)],
        )
        for at, kind in enumerate(kinds)
        if rng.random() < 0.5
    ]
    flat, tree = pytree.tree_flatten(Outcome(result, writes))
    finish = finishing(tree)
    assert finish is not None
    leaves = [Frozen(1, 2), Slotted(3, 4), [5, 6], [7]]
    others = copy.deepcopy(leaves)
    assert_same(finish(flat, leaves), _finished(tree, flat, others))
    assert_same(leaves, others)
    if not any(isinstance(each, ArgumentReference) for each in _all(result)):
        flat, tree = pytree.tree_flatten(result)
        nest = nesting(tree)
        assert nest is not None
        assert_same(nest(flat), unflatten(flat, tree))


def _all(value: Any) -> Any:
    yield value
    inside = (
        value.values
        if isinstance(value, MadeObject)
        else value.values()
        if isinstance(value, dict)
        else value
    )
    if isinstance(inside, (tuple, list)) or isinstance(value, dict):
        for each in inside:
            yield from _all(each)
