"""What a part changes in Python's state is seen, wherever its function reaches."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.record.reads import Namespace
from symshape.tracing.state.undo.effects import Effects

FIRST = """
import sys, warnings, torch, symshape
from torch._higher_order_ops import scan, while_loop

def scaled(total, x):
    return torch.cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c - x, (total, x)), total * 1

PROGRAMS = {
    "scan": lambda x: scan(scaled, x[0] * 0, x)[0],
    "while_loop": lambda x: (
        while_loop(lambda x: x.sum() < 99, lambda x: (scaled(x, x)[0],), (x,))[0]
    ),
    "cond": lambda x: scaled(x, x)[0],
}
fn, x = PROGRAMS[sys.argv[1]], torch.rand(4, 3) + 1
found = symshape.compile(fn, fullgraph=True)(x)
print("right" if torch.equal(found, fn(x)) else "wrong")
"""
KEPT: dict[str, Any] = {
    "list": [1],
    "deque": deque([1]),
    "set": {1},
    "object": SimpleNamespace(a=1),
    "number": 1,
}


def _of(change: Callable[[], object]) -> Callable[[torch.Tensor], torch.Tensor]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        def one() -> torch.Tensor:
            change()
            return x + 1

        return torch.cond(x.sum() > 0, one, lambda: x * 2)  # type: ignore[no-any-return]

    return fn


def _local(
    make: Callable[[], Any], change: Callable[[Any], object]
) -> Callable[[torch.Tensor], torch.Tensor]:
    def fn(x: torch.Tensor) -> torch.Tensor:
        kept = make()
        return _of(functools.partial(change, kept))(x)

    return fn


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "item": _of(lambda: KEPT.update(number=2)),
    "append": _of(lambda: KEPT["list"].append(2)),
    "deque": _of(lambda: KEPT["deque"].append(2)),
    "set": _of(lambda: KEPT["set"].add(2)),
    "attribute": _of(lambda: setattr(KEPT["object"], "a", 2)),
    "local list": _local(lambda: [1], lambda kept: kept.append(2)),
    "local dictionary": _local(dict, lambda kept: kept.update(a=2)),
    "deep": _local(lambda: ([{"a": [1]}],), lambda kept: kept[0][0]["a"].append(2)),
    "local object": _local(lambda: SimpleNamespace(a=1), lambda kept: setattr(kept, "a", 2)),
    "tensor's attribute": _local(lambda: torch.zeros(3) + 1, lambda kept: setattr(kept, "mine", 2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_seen(name: str) -> None:
    before = {key: str(value) for key, value in KEPT.items()}
    with pytest.raises(
        UnsupportedError, match="which would happen only in calls that run this function"
    ):
        symshape.compile(CHANGES[name], fullgraph=True)(torch.rand(3))
    assert {key: str(value) for key, value in KEPT.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scan", "while_loop", "cond"])
def test_a_branch_as_the_first_thing_of_a_process(name: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", FIRST, name], capture_output=True, text=True, check=False
    )
    assert found.stdout == "right\n", found.stderr


def test_reading_changes_nothing() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        local, table = [1, 2], {"a": x * 1}

        def one() -> torch.Tensor:
            made = [each for each in local if each > 1]
            made.append(KEPT["number"])
            return table["a"] * sum(made) + len(KEPT["list"]) + KEPT["object"].a

        return torch.cond(x.sum() > 0, one, lambda: x * 2)  # type: ignore[no-any-return]

    x = torch.rand(3)
    assert torch.equal(symshape.compile(fn, fullgraph=True)(x), x * 3 + 1 + 1)


class Made(OrderedDict[str, Any]):
    """Answers a new object each time that it is asked, as the table of activations of transformers
    does.
    """

    asked = 0

    def __getitem__(self, key: str) -> Any:
        Made.asked += 1
        return SimpleNamespace(by=super().__getitem__(key))


def test_a_table_that_makes_what_it_answers_is_not_asked() -> None:
    table = Made(two=2, three=3)
    recorder: Any = SimpleNamespace(containers=[], cells=[], slots={}, stored=set())
    recorder.namespaces = {id(table): Namespace("table", table, own=True)}
    effects = Effects(recorder, lambda: None)
    assert list(effects.since()) == []
    OrderedDict.__setitem__(table, "two", 4)
    assert list(effects.since()) == ["sets table.two"]
    assert not Made.asked
