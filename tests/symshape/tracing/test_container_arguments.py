"""The containers that a function was called with: what is told of them where no call is served by
what is traced.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.errors import Reason
from symshape.tracing.argument_writes import Given


def given(*args: Any, **kwargs: Any) -> Given:
    return Given(args, kwargs)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a["list"].append(1),
        lambda a: a["list"].__setitem__(0, 2.5),
        lambda a: a["inner"]["deep"].clear(),
        lambda a: a.update(new=1),
        lambda a: a.pop("list"),
    ],
)
def test_a_change_is_told(change: Any) -> None:
    argument: dict[str, Any] = {"list": [1.5], "inner": {"deep": [2.5]}}
    one = given(argument)
    assert one.changes(None) == []
    change(argument)
    (problem,) = one.changes(None)
    assert "changes a list or dictionary among its arguments" in problem.text
    assert "return the new values instead" in problem.text
    assert problem.reason is Reason.STATE


def test_an_equal_item_in_the_place_of_another_is_a_change() -> None:
    argument = [torch.ones(2)]
    one = given(argument)
    argument[0] = torch.ones(2)
    assert one.changes(None)


def test_a_keyword_counts_too() -> None:
    argument = [1.5]
    one = given(items=argument)
    argument.append(2.5)
    assert one.changes(None)


@pytest.mark.parametrize("make", [lambda: [1.5], lambda: {"a": 1.5}, lambda: deque([1.5])])
def test_an_argument_that_is_given_back_is_told(make: Any) -> None:
    argument = make()
    one = given({"outer": argument})
    for result in (argument, (argument, 1), {"x": [argument]}):
        (problem,) = one.changes(result)
        assert "return a copy of it" in problem.text
        assert problem.reason is Reason.OBJECTS
    assert one.changes((type(argument)(argument), 1)) == []


def test_traces_refuse_both_and_put_nothing_into_the_callers_list() -> None:
    items = [torch.ones(2)]

    def grows(items: list[Any]) -> Any:
        items.append(items[0] + 1)
        return items[0]

    with pytest.raises(UnsupportedError, match="changes a list or dictionary among its arguments"):
        symshape.trace(grows, items)
    assert len(items) == 1
    with pytest.raises(UnsupportedError, match="that is an argument"):
        symshape.trace(lambda items: items, items)
    assert torch.equal(symshape.trace(lambda items: list(items), items)(items)[0], items[0])
