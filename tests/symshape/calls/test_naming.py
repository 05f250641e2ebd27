"""Paths and constants in messages: one short line, without values of tensors and without a ``repr``
of the user's.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import symshape
from symshape import events
from symshape.calls.arguments import flatten_call
from symshape.calls.naming import (
    LONGEST,
    Naming,
    brief,
    distinct,
    item_name,
    nesting_text,
    tensor_names,
)

SECRET = 0.62831


class Loud:
    """An object whose ``repr`` is long, has many lines and tells what it holds."""

    def __repr__(self) -> str:
        return f"Loud({SECRET})\n" * 100

    __str__ = __repr__


class LoudText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"LoudText({SECRET})\n" * 100

    __str__ = __repr__


class Colour(enum.Enum):
    RED = 1

    def __str__(self) -> str:
        return f"{SECRET}\n" * 100


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    weights: Any


class Hash(np.ndarray):
    """An array that can be the key of a dictionary."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 1

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return self is other


KEYS: dict[str, Any] = {
    "tensor": torch.full((3, 3), SECRET),
    "parameter": nn.Parameter(torch.full((64, 64), SECRET)),
    "array": np.full((3, 3), SECRET).view(Hash),
    "object": Loud(),
    "text of a class": LoudText("x"),
    "member": Colour.RED,
    "configuration": Config(0.5, nn.Parameter(torch.full((4,), SECRET))),
    "tuple": (torch.full((3,), SECRET), Loud(), "x" * 1000),
    "nested": ((((torch.full((2,), SECRET),),),),),
    "long text": "ab\n" * 1000,
    "terminal escape": "\x1b]0;title\x07",
    "lone surrogate": "\ud800",
    "long bytes": b"\x00\x1b" * 1000,
    "large integer": 10**6000,
    "set": frozenset({torch.full((2,), SECRET)}),
    "function": lambda: 0,
    "class": Loud,
    "path": pathlib.Path("/" + "x\n" * 500),
}


def _is_quiet(text: str) -> bool:
    printable = text.isprintable() and str(SECRET)[:5] not in text
    return printable and len(text) < 2 * LONGEST and bool(text.encode())


@pytest.mark.parametrize("kind", KEYS)
def test_no_key_prints_what_it_holds(kind: str) -> None:
    key = KEYS[kind]
    assert _is_quiet(brief(key)), brief(key)
    assert _is_quiet(item_name("d", key))
    assert _is_quiet(item_name("d", key, {}))
    call = flatten_call(lambda d: d, ({key: torch.ones(2)},), {})
    assert call.paths[0].startswith("d[")
    assert _is_quiet(call.paths[0])
    assert _is_quiet(nesting_text(call.tree)), nesting_text(call.tree)


def test_keys_of_the_same_text_have_paths_of_their_own() -> None:
    keys = ["x" * 500 + end for end in "abc"] + [nn.Parameter(torch.ones(1)) for _ in range(3)]
    keys += [(nn.Parameter(torch.ones(1)), 1) for _ in range(2)]
    call = flatten_call(lambda d: d, (dict.fromkeys(keys, 2),), {})
    assert len(set(call.paths)) == len(keys)
    assert call.paths[3:6] == ("d[Parameter 0]", "d[Parameter 1]", "d[Parameter 2]")


def test_numbers_behind_equal_texts_are_new_texts() -> None:
    assert distinct(["x", "x", "x (2)", "x"]) == ("x", "x (3)", "x (2)", "x (4)")


def test_names_of_usual_keys_stay_as_they_are_written() -> None:
    call = flatten_call(
        lambda d: d, ({"mask": 1, 2: 3, (4, "b"): 5, None: 6, torch.float32: 7},), {}
    )
    assert call.paths == ("d['mask']", "d[2]", "d[(4, 'b')]", "d[None]", "d[torch.float32]")


def test_a_constant_is_told_without_its_tensors() -> None:
    call = flatten_call(
        lambda config: 0, (Config(0.5, (nn.Parameter(torch.full((4,), SECRET)), "relu")),), {}
    )
    shown = [str(key) for key in call.keys]
    assert any("rate" in text or "0.5" in text or "object" in text for text in shown)
    assert all(map(_is_quiet, shown)), shown


def test_a_key_of_a_users_container_is_cut() -> None:
    class Key:
        def __str__(self) -> str:
            return ".part\n" * 100

    assert _is_quiet(Naming().path("batch", [Key()]))


class TestNamesOfTensors:
    def test_by_the_only_module(self) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))

        def step(x: torch.Tensor) -> torch.Tensor:
            return model(x)

        names = tensor_names(step, {})
        assert names[id(model[0].weight)] == "0.weight"
        assert names[id(model[1].running_mean)] == "1.running_mean"

    def test_by_the_variable_where_two_modules_have_the_name(self) -> None:
        ours, theirs = nn.Linear(2, 2), nn.Linear(2, 2)
        names = tensor_names(lambda x: ours(theirs(x)), {})
        assert names[id(ours.weight)] == "ours.weight"
        assert names[id(theirs.bias)] == "theirs.bias"

    def test_of_an_argument_a_method_and_a_container(self) -> None:
        class Trainer:
            def __init__(self) -> None:
                self.models = {"a": nn.Linear(2, 2)}

            def step(self, extra: nn.Module) -> None: ...

        trainer, extra = Trainer(), nn.Conv1d(1, 1, 1, bias=False)
        names = tensor_names(trainer.step, {"extra": extra})
        assert names[id(trainer.models["a"].bias)] == "bias"
        assert names[id(extra.weight)] == "extra.weight"

    def test_of_modules_that_hold_one_another(self) -> None:
        outer = nn.Module()
        outer.inner, outer.tied = nn.Linear(2, 2), nn.Linear(2, 2)
        outer.inner.back, outer.tied.weight = outer, outer.inner.weight
        names = tensor_names(lambda: outer, {})
        assert names[id(outer.tied.bias)] == "tied.bias"
        assert names[id(outer.inner.weight)] in ("inner.weight", "tied.weight")


def _training_step() -> Callable[..., Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_everything_that_is_told_of_a_training_step_names_the_optimizers_state_by_parameter() -> (
    None
):
    step = _training_step()
    seen: list[str] = []
    compiled = symshape.compile(step)
    unsubscribe = events.subscribe(lambda event: seen.append(str(event)))
    try:
        for length in (3, 5, 7):
            compiled(torch.randn(length, 16))
    finally:
        unsubscribe()
    told = [str(compiled.explain_miss()), str(compiled.report()), *seen]
    page = symshape.explore(compiled).html()
    assert "Parameter containing" not in page
    assert "state[0.weight]" in page
    assert any("optimizer.state[0.weight]['exp_avg']" in text for text in told)
    assert "optimizer.param_groups[0]['params'][0].grad" in str(compiled.report())
    for text in told:
        assert "tensor(" not in text
        assert "Parameter containing" not in text
        assert len(text) < 20_000
