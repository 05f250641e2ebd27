"""A list or dictionary that stands in two places of a result is one object there, as in eager."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import UnsupportedError
from tests.worlds.world import look

Tensor = torch.Tensor


def _nested(x: Tensor) -> Any:
    inner = [x * 2]
    table = {"list": inner, "size": x.shape[0], 3: inner}
    return inner, table, (table, {"again": inner})


def _empty(x: Tensor) -> Any:
    nothing: list[Any] = []
    return nothing, [nothing], x + 1


def _of_types(x: Tensor) -> Any:
    made = {"kind": torch.float32, "shape": x.shape, "pair": (x, [x])}
    return [made, made]


def _one_tensor(x: Tensor) -> Any:
    y = x * 2
    return [y], [y], (y,)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], int]]:
    """Each list and dictionary in a value: the way to it, and its id."""
    found = [(path, id(value))] if type(value) in (list, dict) else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, (list, tuple))
        else ()
    )
    return found + [each for key, item in items for each in _places(item, (*path, key))]


def _alike(value: Any) -> list[Any]:
    """Which of the containers in a value are one."""
    places = _places(value)
    first: dict[int, Any] = {}
    return [(path, first.setdefault(key, path)) for path, key in places]


@pytest.mark.parametrize(
    "how", [{}, {"dynamic": True}, {"runner": "padded"}], ids=["plain", "dynamic", "padded"]
)
@pytest.mark.parametrize("fn", [_nested, _empty, _of_types, _one_tensor])
def test_it_is_one_object(fn: Callable[[Tensor], Any], how: dict[str, Any]) -> None:
    compiled: Any = symshape.compile(fn, fullgraph=True, **how)
    for n in (3, 4, 5, 4):
        x = torch.randn(n)
        found, expected = compiled(x), fn(x)
        assert look(found) == look(expected)
        assert _alike(found) == _alike(expected)
    assert compiled.stats().traces <= 2


def test_another_call_has_others() -> None:
    compiled: Any = symshape.compile(lambda x: (made := [x * 2], made), fullgraph=True)
    one, other = compiled(torch.ones(3)), compiled(torch.ones(3))
    assert one[0] is one[1]
    assert one[0] is not other[0]


def test_one_that_was_given_is_that_one() -> None:
    def fn(x: Tensor, held: list[Tensor]) -> Any:
        held.append(x + 1)
        return {"one": held, "other": held}

    compiled: Any = symshape.compile(fn, fullgraph=True)
    for n in (3, 4):
        held: list[Tensor] = []
        found = compiled(torch.ones(n), held)
        assert found["one"] is found["other"] is held


def test_other_containers_are_refused() -> None:
    def fn(x: Tensor) -> Any:
        made = collections.deque([x])
        return made, made

    with pytest.raises(UnsupportedError, match="the same deque in two places"):
        symshape.compile(fn, fullgraph=True)(torch.ones(3))


@dataclasses.dataclass
class Holder:
    """An argument that is written to."""

    x: Tensor
    held: Any = None


def test_one_that_is_returned_and_written_to_an_argument() -> None:
    def fn(holder: Holder) -> Any:
        made = [holder.x * 2]
        holder.held = {"made": made}
        return made

    compiled: Any = symshape.compile(fn, fullgraph=True)
    for n in (3, 4, 5):
        holder = Holder(torch.ones(n))
        found = compiled(holder)
        assert holder.held["made"] is found


def test_one_that_is_written_to_an_argument_and_kept_is_refused() -> None:
    kept: dict[str, Any] = {"it": None}

    def fn(holder: Holder) -> Any:
        holder.held = kept["it"] = [holder.x * 2]
        return holder.x

    with pytest.raises(
        UnsupportedError, match="stores a list or dictionary that is an argument in"
    ):
        symshape.compile(fn, fullgraph=True)(Holder(torch.ones(3)))
    assert kept == {"it": None}


def test_containers_of_an_argument_in_two_of_its_attributes_stay() -> None:
    queue = collections.deque([1])

    def fn(holder: Holder) -> Any:
        holder.x = holder.x + 1
        return holder.x * len(holder.held[0])

    compiled: Any = symshape.compile(fn)
    for n in (3, 4):
        holder = Holder(torch.ones(n), [queue, queue])
        assert compiled(holder).tolist() == [2.0] * n
        assert holder.held[0] is holder.held[1] is queue
