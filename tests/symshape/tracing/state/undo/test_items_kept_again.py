"""Containers that each call makes and keeps as items of a dictionary outside: few programs for all
calls, and values and names as in eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape


class Keeper(torch.nn.Module):
    """A module that keeps containers by ``step``."""

    def __init__(self, step: Callable[[Keeper, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step = step
        self.table: dict[str, Any] = {}
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def alone(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    m.table["k"] = {"n": x.shape[0]}
    return x * 2


def twice_in_one(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    made = {"n": x.shape[0]}
    m.table["k"], m.table["j"] = made, made
    return x * 2


def beside_an_attribute(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    made = {"t": x * 2, "n": x.shape[0]}
    m.table["k"], m.last = made, made
    return x * 2


def in_a_list_too(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    made = [x.shape[0], x + 1]
    m.table["k"], m.last = made, (made, [made])
    return x * 2


def that_reads_the_old_one(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    old = m.table.get("k", {"n": 0})
    m.table["k"] = {"n": x.shape[0] + 1, "old": old["n"]}
    return x + old["n"]


def that_writes_into_the_old_one(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    old = m.table.get("k")
    if old is not None:
        old["n"] = x.shape[0] + 5
        m.last = old
    m.table["k"] = {"n": x.shape[0]}
    return x * 2


def kept_under_the_last_name(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    m.last = m.table.get("k")
    m.table["k"] = {"n": x.shape[0]}
    return x + (0 if m.last is None else m.last["n"])


def that_reads_another_name(m: Keeper, x: torch.Tensor) -> torch.Tensor:
    before = 0 if m.last is None else m.last["n"]
    made = {"n": x.shape[0]}
    m.table["k"], m.last = made, made
    return x + before


STEPS = [
    alone,
    twice_in_one,
    beside_an_attribute,
    in_a_list_too,
    that_reads_the_old_one,
    that_writes_into_the_old_one,
    kept_under_the_last_name,
    that_reads_another_name,
]


def plain(value: Any, seen: dict[int, int]) -> Any:
    """A value with numbers for its containers: one number for one object."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (dict, list, tuple)):
        if id(value) in seen:
            return seen[id(value)]
        seen[id(value)] = len(seen)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return type(value).__name__, [(key, plain(each, seen)) for key, each in items]
    assert value is None or type(value) in (int, str)
    return value


@pytest.mark.parametrize("step", STEPS)
def test_values_and_names_are_those_of_eager(step: Any) -> None:
    eager, ours = Keeper(step), Keeper(step)
    compiled = symshape.compile(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for n in (3, 4, 5, 5, 3, 9, 0, 1, 7):
            x = torch.ones(n)
            assert torch.equal(compiled(x), eager(x))
            assert plain([ours.table, ours.last], {}) == plain([eager.table, eager.last], {})


@pytest.mark.parametrize("step", STEPS[:4])
def test_few_programs_serve_all_calls(step: Any) -> None:
    compiled = symshape.compile(Keeper(step), fullgraph=True)
    for n in (3, 4, 5, 6, 7, 8):
        compiled(torch.ones(n))
    assert symshape.compiled_of(compiled).stats().traces <= 3


def test_the_old_object_by_a_name_of_the_caller() -> None:
    """The caller holds the container that was kept, and the program reads it there."""
    held: list[Any] = [{"n": 0}]

    def step(m: Keeper, x: torch.Tensor) -> torch.Tensor:
        m.table["k"] = {"n": x.shape[0]}
        return x + held[0]["n"]

    eager, ours = Keeper(step), Keeper(step)
    compiled = symshape.compile(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for n in (3, 4, 5, 6, 3, 8):
            x = torch.ones(n)
            assert torch.equal(compiled(x), eager(x))
            held[0] = ours.table["k"]
            held[0]["n"] += 1
            eager.table["k"]["n"] += 1
