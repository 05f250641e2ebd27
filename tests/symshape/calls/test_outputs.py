"""From flat outputs to the program's own structure."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls.outputs import builder

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        1,
        (1,),
        [1],
        (1, 2),
        [1, 2],
        (),
        [],
        {"b": 1, "a": 2},
        Point(1, [2, (3,)]),
        OrderedDict(b=1, a=2),
        ([1, (2, {"x": [3]})], 4),
        torch.Size([1, 2]),
    ],
)
def test_what_was_taken_apart_is_put_together(value: Any) -> None:
    flat, tree = pytree.tree_flatten(value)
    again = builder(tree)(flat)
    assert again == value
    assert type(again) is type(value)
    if isinstance(value, dict):
        assert list(again) == list(value)


def test_a_new_container_in_each_call() -> None:
    f = symshape.compile(lambda x: {"list": [x + 1, []], "pair": (x, 1)})
    first, second = f(torch.ones(2)), f(torch.ones(2))
    first["list"].append("mine")
    first["list"][1].append("mine")
    assert len(second["list"]) == 2
    assert second["list"][1] == []
    assert len(f(torch.ones(2))["list"]) == 2


def test_results_of_every_kind() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        found: defaultdict[str, list[Any]] = defaultdict(list)
        found["a"].append(x * n)
        return found, Point(x.shape[0] * n, x.dtype), x.shape, n > 3, n / 2, "text", slice, None

    f = symshape.compile(lambda x, n: fn(x, n)[:6], dynamic=True)
    for size, n in ((2, 3), (5, 4), (0, 9)):
        now, then = f(torch.ones(size), n), fn(torch.ones(size), n)[:6]
        assert str(now) == str(then)
        assert [type(each) for each in now] == [type(each) for each in then]
    with pytest.raises(symshape.UnsupportedError, match="result"):
        symshape.compile(lambda x: object(), fullgraph=True)(torch.ones(1))
