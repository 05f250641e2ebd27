"""All that an object holds is compared once it was copied; beyond a bound the copy is refused."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.errors import Reason
from symshape.tracing.state.record import whole
from tests.symshape.tracing.state.recorded import recorded, seen


class _Node:
    def __init__(self, *held: Any) -> None:
        self.held = held


class _Slotted:
    __slots__ = ("k",)


def _leaf() -> Any:
    return SimpleNamespace(k=1)


@pytest.mark.parametrize(
    "around",
    [
        lambda leaf: _Node(leaf),
        lambda leaf: [(1, {"a": leaf})],
        lambda leaf: _Node(_Node([leaf]).held),
        lambda leaf: frozenset([_Node(leaf)]),
    ],
)
def test_objects_inside_are_compared(around: Any) -> None:
    leaf = _leaf()
    value = around(leaf)
    copy.deepcopy(value)  # the first copy sets an attribute of a class
    assert seen(lambda: copy.deepcopy(value), lambda: setattr(leaf, "k", 2))


def test_an_unset_slot_is_compared() -> None:
    value = _Slotted()
    copy.copy(value)
    assert seen(lambda: copy.copy(value), lambda: setattr(value, "k", 2))


def test_a_cycle_ends() -> None:
    value = _Node()
    value.held = (value,)
    copy.copy(value)
    assert seen(lambda: copy.deepcopy(value), lambda: setattr(value, "k", 2))


def test_too_many_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "_MOST_OBJECTS", 10)
    value = [_leaf() for _ in range(11)]
    with pytest.raises(UnsupportedError, match="holds more than 10 objects") as error:
        recorded(lambda: copy.deepcopy(value))
    assert error.value.reason is Reason.UNCOMPARED
    recorded(lambda: copy.copy(value))


def test_the_first_copy_of_a_class_is_no_write_of_the_program() -> None:
    class First:
        k = 1

    value = First()
    compiled = symshape.compile(lambda x: x * copy.copy(value).k, fullgraph=True)
    compiled(torch.ones(2))
    del First.__slotnames__  # type: ignore[attr-defined]
    assert compiled(torch.ones(2)).tolist() == [1, 1]
    assert compiled.stats().traces == 2
