"""Lists and dictionaries among the arguments: written and given back as eager does, to the caller's
own objects.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.calls.container_arguments import at, paths_of

Tensor = torch.Tensor


def _show(value: Any) -> Any:
    return torch.utils._pytree.tree_map(
        lambda each: each.tolist() if isinstance(each, Tensor) else each, value
    )


def _new_key(d: dict[str, Any], x: Tensor) -> Tensor:
    d["k"] = x * 2
    return x + 1


def _append(items: list[Any], x: Tensor) -> Any:
    items.append(x + 1)
    items.append(items[0])
    return items


def _count(d: dict[str, Any], x: Tensor) -> Any:
    d["n"] = d.get("n", 0) + x.shape[0]
    d.setdefault("history", []).append(x.sum())
    return x


def _pop(d: dict[str, Any], x: Tensor) -> Tensor:
    old = d.pop("k", None)
    d["z"] = x
    return x if old is None else x + old


def _into_another(items: list[Any], d: dict[str, Any], x: Tensor) -> Any:
    items.extend([x, d])
    return {"items": items, "y": x * 2}


def _in_place(items: list[Any], x: Tensor) -> Any:
    items[0] += 1
    items[-1] = items[-1] * x
    return items[-1]


def _order(items: list[Any], x: Tensor) -> Any:
    items.sort(key=lambda each: -each)
    items.insert(0, "s")
    del items[1]
    return x


def _every(d: dict[str, Any], x: Tensor) -> Any:
    for key in list(d):
        d[key] = d[key] + x
    return d, d


def _inner(d: dict[str, Any], x: Tensor) -> Any:
    d["inner"].append(x * 2)
    return d["inner"][0]


def _cleared(x: Tensor, *, out: dict[str, Any]) -> None:
    out.clear()
    out.update(a=x, b=[x * 2, (x, 1)])


Make = Callable[[Tensor], tuple[Any, ...]]
CASES: dict[str, tuple[Callable[..., Any], Make]] = {
    "a new key": (_new_key, lambda x: ({}, x)),
    "of an ordered dictionary": (_new_key, lambda x: (OrderedDict(q=1), x)),
    "of one with a default": (_new_key, lambda x: (defaultdict(list, k=x), x)),
    "appended, and given back": (_append, lambda x: ([x], x)),
    "counted": (_count, lambda x: ({}, x)),
    "counted on": (_count, lambda x: ({"n": 3, "history": [x]}, x)),
    "popped": (_pop, lambda x: ({"k": x, "b": 2}, x)),
    "one into another": (_into_another, lambda x: ([1], {"x": x}, x)),
    "items of a list": (_in_place, lambda x: ([1, x], x)),
    "another order": (_order, lambda x: ([2, 3, 1], x)),
    "every item, given back twice": (_every, lambda x: ({"a": x, "b": x * 2}, x)),
    "inside": (_inner, lambda x: ({"inner": deque([x], maxlen=2)}, x)),
}


@pytest.mark.parametrize("name", CASES)
def test_written_as_in_eager(name: str) -> None:
    fn, make = CASES[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 2):
        x = torch.arange(4.0 * n).reshape(n, 4)
        mine, theirs = make(x), make(x)
        before = mine[0].get("b", x) if isinstance(mine[0], dict) else mine[0][-1]
        got, expected = compiled(*mine), fn(*theirs)
        assert _show(got) == _show(expected)
        assert _show(mine) == _show(theirs)
        assert list(map(type, mine)) == list(map(type, theirs))
        assert (got is mine[0]) == (expected is theirs[0])
        if name == "appended, and given back":
            assert mine[0][0] is before is mine[0][2], "what was there is another object now"
    assert compiled.stats().traces == 2


def test_by_keyword() -> None:
    compiled = symshape.compile(_cleared, fullgraph=True)
    out: dict[str, Any] = {"old": 1}
    compiled(torch.ones(3), out=out)
    assert _show(out) == {"a": [1.0] * 3, "b": [[2.0] * 3, ([1.0] * 3, 1)]}


def test_a_list_that_grows_through_one_object_twice() -> None:
    def fn(a: list[Any], b: list[Any], x: Tensor) -> int:
        a.append(x)
        return len(b)

    compiled = symshape.compile(fn, fullgraph=True)
    shared: list[Any] = []
    assert compiled([], [], torch.ones(2)) == 0
    assert compiled(shared, shared, torch.ones(2)) == 1
    assert len(shared) == 1


KEPT: list[Any] = []


def test_one_that_the_program_also_reads_elsewhere_runs_as_it_is() -> None:
    def fn(items: list[Any], x: Tensor) -> Tensor:
        items.append(x)
        return x * len(KEPT)

    compiled = symshape.compile(fn, fullgraph=True)
    KEPT.clear()
    assert compiled([], torch.ones(2)).tolist() == [0.0, 0.0]
    assert compiled(KEPT, torch.ones(2)).tolist() == [1.0, 1.0]
    assert len(KEPT) == 1


def test_gradients_flow_through_what_was_written() -> None:
    compiled = symshape.compile(_new_key, fullgraph=True)
    for n in (2, 3):
        x = torch.ones(n, requires_grad=True)
        d: dict[str, Any] = {}
        compiled(d, x)
        (gradient,) = torch.autograd.grad(d["k"].sum(), x)
        assert gradient.tolist() == [2.0] * n


class Hundred(torch.autograd.Function):
    """Has a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The square."""
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """A hundred times."""
        return gradient * 100


@pytest.mark.parametrize("outside", [False, True])
def test_a_custom_gradient_of_what_is_written_is_not_lost(outside: bool) -> None:
    KEPT[:] = [None]

    def fn(items: list[Any], x: Tensor) -> Tensor:
        (KEPT if outside else items)[0] = Hundred.apply(x)
        return x

    with pytest.raises(UnsupportedError, match=r"the autograd\.Function Hundred"):
        symshape.compile(fn, fullgraph=True)([None], torch.ones(2, requires_grad=True))


def test_what_no_graph_can_make_is_refused() -> None:
    def fn(items: list[Any], x: Tensor) -> Any:
        new = [x]
        items.append(new)
        return new

    with pytest.raises(
        UnsupportedError,
        match="returns a list or dictionary that it also stores in a list among its arguments",
    ):
        symshape.compile(fn, fullgraph=True)([], torch.ones(2))


def test_paths() -> None:
    inner: list[Any] = [1]
    args, kwargs = ({"a": (2, inner)},), {"k": deque([3])}
    found = dict(paths_of((args, kwargs)))
    assert found == {(0, 0): args[0], (0, 0, "a", 1): inner, (1, "k"): kwargs["k"]}
    assert all(at(args, kwargs, path) is each for path, each in found.items())
