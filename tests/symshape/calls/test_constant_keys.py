"""Constants share a key only where no program can tell them apart."""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import enum
import fractions
import gc
import itertools
import pathlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls.constant_keys import EqualityKey, constant_key, nesting_key, shared_containers
from symshape.calls.outputs import unflatten


@dataclass(frozen=True)
class Compared:
    a: Any
    b: Any = field(default=0, compare=False)


@attrs.frozen
class Unequal:
    a: Any
    b: Any = attrs.field(default=0, eq=False)


@dataclass(frozen=True)
class WithMore:
    a: Any


class Number(int):
    pass


class Colour(enum.IntEnum):
    RED = 1


ZONE = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
EQUAL_BUT_NOT_ALIKE: list[tuple[Any, ...]] = [
    (
        1,
        True,
        1.0,
        1 + 0j,
        decimal.Decimal(1),
        fractions.Fraction(1),
        np.int64(1),
        np.float32(1),
        Number(1),
        Colour.RED,
    ),
    (0.0, -0.0),
    (complex(0, 0.0), complex(0, -0.0)),
    ("a", np.str_("a")),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (range(0, 3, 2), range(0, 4, 2)),
    (slice(0, 2), slice(False, 2), slice(0.0, 2)),
    (frozenset({1}), frozenset({True}), {1}),
    ((1, 2), [1, 2], torch.Size((1, 2)), (True, 2)),
    ({1: 5}, {True: 5}, {1.0: 5}, collections.OrderedDict({1: 5})),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (NOON, NOON.astimezone(ZONE), NOON.replace(fold=1)),
    (Compared(1), Compared(1.0), Compared(1, 2), Compared(1, 2.0)),
    (Unequal(1), Unequal(True), Unequal(1, 2), Unequal(1, 2.0)),
    (pathlib.PurePosixPath("a"), pathlib.Path("a")),
    (b"a", bytearray(b"a")),
]


@pytest.mark.parametrize("values", EQUAL_BUT_NOT_ALIKE)
def test_what_a_program_can_tell_apart(values: tuple[Any, ...]) -> None:
    for one, other in itertools.combinations(values, 2):
        assert constant_key(one) != constant_key(other), (one, other)
        assert constant_key((1, [one])) != constant_key((1, [other])), (one, other)
        assert constant_key(Compared(0, one)) != constant_key(Compared(0, other)), (one, other)


ALIKE = [each for values in EQUAL_BUT_NOT_ALIKE for each in values if type(each) not in (Number,)]


@pytest.mark.parametrize("value", ALIKE, ids=repr)
def test_a_copy_is_alike(value: Any) -> None:
    assert constant_key(copy.deepcopy(value)) == constant_key(value)
    hash(constant_key(value))


def test_nan_is_alike() -> None:
    assert constant_key(float("nan")) == constant_key(float("nan")) != constant_key(-float("nan"))


def test_objects_that_may_be_more_than_their_parts_are_known_by_identity() -> None:
    more = WithMore(1)
    object.__setattr__(more, "b", 2)
    for one, other in (
        (Number(1), Number(1)),
        (more, WithMore(1)),
        (object(), object()),
        (torch.ones(2),) * 2,
    ):
        assert constant_key(one) == constant_key(one)
        assert (constant_key(one) == constant_key(other)) is (one is other)
    assert constant_key(WithMore(1)) == constant_key(WithMore(1))


def test_a_value_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert constant_key(endless) == constant_key(endless)


def test_nesting() -> None:
    def key(value: Any) -> Any:
        return nesting_key(pytree.tree_structure(value))

    nested = [
        {1: 5},
        {True: 5},
        {1.0: 5},
        (5,),
        [5],
        torch.Size([5]),
        collections.deque([5], 2),
        collections.deque([5]),
    ]
    for one, other in itertools.combinations(nested, 2):
        assert key(one) != key(other), (one, other)
    for each in nested:
        assert key(each) == key(copy.copy(each))
        assert hash(key(each)) == hash(key(copy.copy(each)))
    assert EqualityKey([1]) == EqualityKey([1]) != EqualityKey((1,))


def test_containers_that_are_one_come_back_as_one() -> None:
    a: list[Any] = [1, {"k": 2}]
    value = ([a, a], {"b": a[1], "c": [3]}, (4,), (4,))
    shared = shared_containers(value)
    flat, tree = pytree.tree_flatten(value)
    made = unflatten([each + 10 for each in flat], tree, shared)
    assert made == ([[11, {"k": 12}]] * 2, {"b": {"k": 12}, "c": [13]}, (14,), (14,))
    assert made[0][0] is made[0][1]
    assert made[0][0][1] is made[1]["b"]
    assert shared_containers(([1], [1])) == ()


@pytest.mark.parametrize(
    "value", [lambda x: (x,), lambda x: [[x], {"k": x}]], ids=["a tuple", "nested"]
)
def test_containers_are_let_go_without_a_collection(value: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(3)
    known, collects = weakref.ref(x), gc.isenabled()
    gc.disable()
    try:
        shared_containers(value(x))
        del x
        assert known() is None
    finally:
        if collects:
            gc.enable()
