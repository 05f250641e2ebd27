"""Each kind of place is read again, and compared by identity, or by value where it is a plain
value.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from types import CellType
from typing import Any

import numpy
import pytest

from symshape.tracing.state.record.places import (
    MISSING,
    Answer,
    Attribute,
    Cell,
    Container,
    Keys,
    items_of,
    same,
    same_items,
)


def test_a_place_that_is_gone() -> None:
    owner = {"a": 1}
    cell = Cell(owner, "a", 1, "a")
    assert cell.read() == 1
    del owner["a"]
    assert cell.read() is MISSING
    variable = CellType(1)
    assert Cell(variable, "", 1, "").read() == 1
    del variable.cell_contents
    assert Cell(variable, "", 1, "").read() is MISSING
    assert Attribute(owner, "a", 1, "").read() is MISSING
    assert callable(Attribute(owner, "pop", 1, "").read())


def test_an_answer_is_asked_again() -> None:
    answers = [1]
    place = Answer(lambda: answers[-1], 1, "")
    assert place.holds()
    answers.append(2)
    assert not place.holds()
    assert place.read() == 2


def test_keys_are_compared_in_their_order() -> None:
    owner = {"a": 1, "b": 2}
    place = Keys(owner, ("a", "b"), "")
    owner["a"] = 3
    assert place.holds()
    owner["a"] = owner.pop("a")
    assert not place.holds()
    assert place.read() == ("b", "a")


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, 2, 3],
        lambda: {1: "a", 2: "b"},
        lambda: OrderedDict(a=1, b=2),
        lambda: {1, 2},
        lambda: deque([1, 2], 5),
        lambda: bytearray(b"ab"),
    ],
)
def test_containers_get_their_items_back(make: Callable[[], Any]) -> None:
    owner = make()
    container = Container(owner, items_of(owner), "owner")
    assert same_items(container.read(), container.items)
    owner.clear()
    assert not same_items(container.read(), container.items)
    container.put_back()
    assert owner == make()
    assert same_items(container.read(), container.items)


def test_arrays_get_their_bytes_back() -> None:
    owner = numpy.arange(6.0).reshape(2, 3)
    container = Container(owner, items_of(owner), "owner")
    owner[1, 2] = 9
    assert not same_items(container.read(), container.items)
    container.put_back()
    assert numpy.array_equal(owner, numpy.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ("ab", "".join(["a", "b"]), True),
        ([], [], False),
        ((1,), tuple(iter([1])), False),
        (MISSING, None, False),
    ],
)
def test_plain_values_are_the_same_by_value(now: Any, then: Any, expected: bool) -> None:
    assert same(now, then) is expected
    assert same(now, now)


def test_a_dictionary_that_reads_in_its_own_way_is_not_asked() -> None:
    class Own(dict[str, int]):
        def items(self) -> Any:
            raise AssertionError

    assert items_of(Own(a=1)) == ("a", 1)
