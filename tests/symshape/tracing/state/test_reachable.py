"""What a function can read besides its arguments: found through closures, globals, defaults, objects, modules."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from symshape.tracing.state.reachable import MISSING, Cell, Container, Reachable, items_of, only_appends

NUMBER = 3
TABLE = {"a": 1}


class Config:
    width = 4

    def __init__(self) -> None:
        self.depth = 2
        self.unread = 7


CONFIG = Config()


def names(found: Reachable) -> set[str]:
    return {cell.name for cell in found.cells}


def reads_globals(x: torch.Tensor) -> Any:
    return x * NUMBER + TABLE["a"] + CONFIG.depth


def test_globals_containers_and_attributes_that_the_code_names() -> None:
    found = Reachable(reads_globals)
    assert {"NUMBER", "CONFIG", "CONFIG.depth"} <= names(found)
    assert "CONFIG.unread" not in names(found)
    assert [container.owner for container in found.containers] == [TABLE]
    assert found.codes == [reads_globals.__code__]
    assert any(value is CONFIG for value in found.named)


def test_closures_partials_and_methods() -> None:
    inner = 5

    def closed(x: torch.Tensor, config: Any = CONFIG) -> Any:
        return x * inner * config.depth

    assert "a default of closed.depth" in names(Reachable(closed))
    (cell,) = [cell for cell in Reachable(closed).cells if cell.name == "inner"]
    assert cell.read() == 5
    inner = 6
    assert cell.read() == 6
    assert "inner" in names(Reachable(functools.partial(closed, config=None)))

    class Model:
        def __init__(self) -> None:
            self.gain = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.gain

    assert "self.gain" in names(Reachable(Model().forward))


def test_modules_with_their_parameters_and_flags() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
    found = Reachable(model)
    assert [name for name, _ in found.modules.values()] == ["", "0", "1"]
    assert {"0.weight", "0.bias", "1.p", "training", "1.training"} <= names(found)


def test_a_library_is_not_followed() -> None:
    found = Reachable(lambda x: json.dumps(x))
    assert not [code for code in found.codes if code.co_filename == json.__file__]
    assert not [name for name in names(found) if "default_encoder" in name]


def test_functions_that_ask_for_kinds_of_numbers() -> None:
    assert Reachable(reads_globals).asking == {}
    asking: Callable[..., Any] = lambda x: isinstance(x.size(0), int)  # noqa: E731
    assert list(Reachable(asking).asking.values()) == [globals()]


def test_a_place_that_is_gone() -> None:
    owner = {"a": 1}
    cell = Cell(owner, "a", 1, "a")
    assert cell.read() == 1
    del owner["a"]
    assert cell.read() is MISSING


@pytest.mark.parametrize("make", [lambda: [1, 2, 3], lambda: {1: "a", 2: "b"}, lambda: {1, 2}])
def test_containers_get_their_items_back(make: Callable[[], Any]) -> None:
    owner = make()
    container = Container(owner, items_of(owner), "owner")
    owner.clear()
    assert container.read() == ()
    container.put_back()
    assert owner == make()


@pytest.mark.parametrize(
    ("source", "only"),
    [
        ("log.append(1)", True),
        ("log.extend([1]); log.append(2)", True),
        ("seen.append(len(log))", False),
        ("log.append(len(log))", False),
        ("log.pop()", False),
        ("def f():\n    return log[0]", False),
        ("other.append(1)", True),
    ],
)
def test_code_that_only_adds(source: str, only: bool) -> None:
    assert only_appends([compile(source, "", "exec")], "log") is only
    assert not only_appends([compile(source, "", "exec")], "log[0]")
