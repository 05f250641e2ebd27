"""Places outside the arguments: read, written, and written again by each call."""

from __future__ import annotations

import collections
import gc
import types
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls.constant_keys import NOTHING
from symshape.calls.variables import (
    ClassAttribute,
    ClosureVariable,
    Contents,
    DictionaryItem,
    InnerContainer,
    OutputReference,
    SlotAttribute,
    Variable,
    Write,
    all_written,
    containers_in,
    writing,
)


class Slotted:
    __slots__ = ("k",)


class Meta(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        raise AssertionError("past this")


class Strange(metaclass=Meta):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("past this")


def _variables() -> list[Variable]:
    return [
        DictionaryItem({}, "k", "entry"),
        DictionaryItem(Strange().__dict__, "k", "attribute"),
        ClassAttribute(Strange, "k", "class"),
        SlotAttribute(Slotted(), "k", "slot"),
        ClosureVariable(types.CellType(), "cell"),
    ]


@pytest.mark.parametrize("variable", _variables(), ids=lambda each: each.name)
def test_one_value(variable: Variable) -> None:
    assert variable.read() is NOTHING
    variable.write(NOTHING)  # nothing is taken away
    for value in (3, None, [1]):
        variable.write(value)
        assert variable.read() is value
    variable.write(NOTHING)
    assert variable.read() is NOTHING


@pytest.mark.parametrize(
    ("owner", "other"),
    [
        ([1, 2], [3]),
        ({"a": 1, "b": 2}, {"b": 3, "a": 4}),
        (collections.OrderedDict(a=1), collections.OrderedDict(b=1, a=2)),
        (collections.defaultdict(int, a=1), collections.defaultdict(int)),
        (collections.deque([1, 2], 2), collections.deque([3, 4])),
    ],
)
def test_contents(owner: Any, other: Any) -> None:
    """The container stays the very same; its order is that of the other."""
    variable = Contents(owner, "c")
    variable.write(other)
    assert variable.read() is owner
    assert list(owner) == list(other)
    assert owner == other
    variable.write(owner)  # itself
    assert owner == other


def test_inner() -> None:
    table: dict[str, Any] = {"a": (1, [1, 2])}
    outer = DictionaryItem({"k": table}, "k", "k")
    inner = InnerContainer(outer, ("a", 1))
    kept = inner.read()
    inner.write([5])
    assert table["a"][1] is kept
    assert kept == [5]
    assert inner.name == "k['a'][1]"


def test_where() -> None:
    """The same place is the same variable, whoever tells of it."""
    owner: dict[str, Any] = {}
    assert DictionaryItem(owner, "a", "x").where == DictionaryItem(owner, "a", "y").where
    wheres = [each.where for each in _variables()]
    assert len(set(wheres)) == len(wheres)


def test_containers_in() -> None:
    value = {"a": [1, (2, [3])], "b": collections.deque([{}])}
    assert [path for path, _ in containers_in(value)] == [(), ("a",), ("a", 1, 1), ("b",), ("b", 0)]
    assert containers_in(torch.ones(3)) == []


def test_a_call_reads_all_outputs_before_it_writes() -> None:
    owner: dict[str, Any] = {}
    leaves, tree = pytree.tree_flatten({"t": (0, 1)})
    assert leaves == [0, 1]
    writes = [
        Write(DictionaryItem(owner, "a", "a"), [OutputReference(1)], pytree.tree_flatten(0)[1]),
        Write(DictionaryItem(owner, "b", "b"), [OutputReference(2), "constant"], tree),
        Write(DictionaryItem(owner, "a", "a"), [NOTHING], pytree.tree_flatten(0)[1]),
    ]
    build = writing(writes, 1, tuple)
    assert build(["result", 5, 6]) == ("result",)
    assert owner == {"b": {"t": (6, "constant")}}


@pytest.mark.slow
def test_places_are_written_as_long_as_a_program_lives_that_writes_them() -> None:
    """Its owner may be gone with it, and the id be another's: parameters of a model, taken for what
    varies.
    """

    def counted() -> tuple[Any, dict[str, int]]:
        state = {"calls": 0}

        def fn(x: torch.Tensor) -> torch.Tensor:
            state["calls"] += 1
            return x + state["calls"]

        return symshape.compile(fn), state

    gc.collect()
    before = all_written()
    mine, state = counted()
    for number in range(4):
        assert mine(torch.zeros(2))[0] == number + 1
    assert (id(state), "calls") in all_written() or (id(state), "") in all_written()
    del mine, state
    gc.collect()
    assert all_written() <= before


def test_gradients_that_a_program_only_reads_vary() -> None:
    weight = torch.ones(3, requires_grad=True)
    mine: Any = symshape.compile(lambda x: x + weight.grad)
    for number in range(5):
        weight.grad = torch.full((3,), float(number))
        assert torch.equal(mine(torch.ones(3)), torch.full((3,), number + 1.0))
    assert mine.stats().traces <= 2
