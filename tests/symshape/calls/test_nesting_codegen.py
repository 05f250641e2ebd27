"""Nested arguments: quick from the second call on, as torch's flattening has them, and never
mistaken for others.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls.call_key import FLAT
from symshape.calls.constant_keys import Nesting
from symshape.calls.nesting_codegen import KnownNestings


class Pair(NamedTuple):
    a: Any
    b: Any


Other = collections.namedtuple("Other", "a b")


@dataclasses.dataclass
class Batch:
    a: Any
    b: Any


class Node:
    """Registered without keys."""

    def __init__(self, a: Any, b: Any, name: str = "") -> None:
        self.a, self.b, self.name = a, b, name


pytree.register_dataclass(Batch)
pytree.register_pytree_node(
    Node, lambda n: ([n.a, n.b], n.name), lambda x, name: Node(*x, name=name)
)


def _default(a: Any, b: Any) -> Any:
    return collections.defaultdict(list, a=a, b=b)


MAKE: list[Any] = [
    lambda a, b: (a, b),
    lambda a, b: [a, b],
    lambda a, b: {"a": a, "b": b},
    lambda a, b: {"b": a, "a": b},
    lambda a, b: {0: a, True: b},
    lambda a, b: {1: a, "1": b},
    lambda a, b: collections.OrderedDict(a=a, b=b),
    _default,
    lambda a, b: collections.deque([a, b]),
    lambda a, b: collections.deque([a, b], 2),
    Pair,
    Other,
    Batch,
    Node,
    lambda a, b: Node(a, b, "named"),
]


def _random(rng: random.Random, depth: int = 0) -> Any:
    if depth and rng.random() < 0.6:
        return rng.choice([torch.randn(rng.randint(0, 3)), rng.randint(-3, 3), None, "text", True])
    return rng.choice(MAKE)(_random(rng, depth + 1), _random(rng, depth + 1))


def _same(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, torch.Tensor) and one == other)


@pytest.mark.parametrize("seed", range(60))
def test_leaves_are_those_of_torch(seed: int) -> None:
    rng = random.Random(seed)
    nests, value, kwargs = KnownNestings(), _random(rng), {"k": _random(rng, 1)}
    if not nests.learn((value, 3), kwargs):
        assert len(pytree.tree_leaves(((value, 3), kwargs))) > 15
        return
    *leaves, nest = nests.flat((value, 3), kwargs) or ()
    assert type(nest) is Nesting
    assert all(map(_same, leaves, pytree.tree_leaves(((value, 3), kwargs))))
    for _ in range(30):
        other = _random(rng)
        found = nests.flat((other, 3), kwargs)
        alike = pytree.tree_structure(other) == pytree.tree_structure(value)
        # a container where a leaf stood has no key
        if found is None or FLAT.makers[len(found)](found, {}) is None:
            continue
        assert alike
        assert all(map(_same, found, pytree.tree_leaves(((other, 3), kwargs))))
    assert nests.flat((value,), kwargs) is None
    assert nests.flat((value, 3), {}) is None
    assert nests.flat((value, 3), {"l": kwargs["k"]}) is None


def _sum(value: Any, name: str = "") -> Any:
    if isinstance(value, torch.Tensor):
        return value.sum()
    if isinstance(value, dict):
        found = sum(i * _sum(each) for i, each in enumerate(value.values(), 1))
        return found * (1 + len((getattr(value, "default_factory", None) and "list") or "")) + len(
            str([*value])
        )
    if isinstance(value, (Batch, Node)):
        return _sum(value.a) + 3 * _sum(value.b) + len(getattr(value, "name", ""))
    return sum(i * _sum(each) for i, each in enumerate(value, 1)) + (
        getattr(value, "maxlen", 0) or 0
    )


@pytest.mark.parametrize("make", MAKE)
def test_calls_are_served_as_eager_serves_them(make: Any) -> None:
    compiled = symshape.compile(_sum, fullgraph=True)
    for n in (3, 4, 5, 5, 6):
        value = make(torch.randn(n), torch.randn(2, n))
        torch.testing.assert_close(compiled(value), _sum(value))
    assert compiled.stats().traces == 2


def test_kinds_that_only_look_alike() -> None:
    compiled = symshape.compile(_sum)
    for _ in range(3):
        for make in MAKE:
            value = make(torch.randn(3), torch.randn(3))
            torch.testing.assert_close(compiled(value), _sum(value))


def test_one_container_in_two_places() -> None:
    def grow(a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
        a.append(a[0] + 1)
        return b[-1] * len(b)

    compiled = symshape.compile(grow)
    for n in (3, 4, 5):
        for _ in range(2):
            x = torch.randn(n)
            apart, own = ([x], [x * 2]), ([x], [x * 2])
            torch.testing.assert_close(compiled(*apart), grow(*own))
            assert [len(each) for each in apart] == [2, 1]
            one: list[torch.Tensor] = [x]
            other: list[torch.Tensor] = [x]
            torch.testing.assert_close(compiled(one, one), grow(other, other))
            assert len(one) == 2


def test_what_is_written_to_a_container_is_written_at_each_call() -> None:
    def fill(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        batch["b"] = batch["a"] * 2
        return batch["b"].sum()

    compiled = symshape.compile(fill)
    for n in (3, 4, 5, 5, 5):
        batch = {"a": torch.ones(n), "b": torch.zeros(n)}
        assert compiled(batch) == 2 * n
        assert torch.equal(batch["b"], torch.full((n,), 2.0))


def test_one_tensor_in_two_places() -> None:
    def add(pair: Pair) -> torch.Tensor:
        pair.a.add_(1)
        return pair.b * 2

    compiled = symshape.compile(add)
    for _ in range(3):
        x, y = torch.ones(3), torch.ones(3)
        assert torch.equal(compiled(Pair(x, y)), torch.full((3,), 2.0))
        assert torch.equal(compiled(Pair(x, x)), torch.full((3,), 6.0))


def test_keys_of_another_class() -> None:
    def kind(table: dict[str, torch.Tensor]) -> torch.Tensor:
        return next(iter(table.values())) * (2 if type(next(iter(table))) is str else 3)

    compiled = symshape.compile(kind)
    for _ in range(3):
        for key in ("a", np.str_("a")):
            table = {key: torch.ones(2)}
            assert torch.equal(compiled(table), kind(table))


def test_a_nested_call_is_looked_up_as_quickly_as_a_flat_one() -> None:
    compiled = symshape.compile(lambda batch: batch["a"] + batch["b"])
    batch = {"a": torch.ones(3), "b": torch.ones(3)}
    compiled(batch)
    compiled(batch)
    slow: list[int] = []
    find = compiled._dispatcher.search
    compiled._dispatcher.search = lambda *args: slow.append(1) or find(*args)  # type: ignore[func-returns-value]
    for _ in range(5):
        compiled(batch)
    assert not slow
