"""``x.__dict__.get(name)`` reads one attribute: others may change, come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape


class Plain:
    scale: float
    others: list[int]


class Asking(Plain):
    """Asks its own dictionary at each look-up, as configurations of transformers do."""

    def __getattribute__(self, key: str) -> Any:
        found = super().__getattribute__("__dict__").get("_instead")
        return found[key] if found is not None and key in found else super().__getattribute__(key)


class Slotted:
    __slots__ = ("__dict__", "scale")


class Masked(Plain):
    @property
    def __dict__(self) -> dict[str, float]:  # type: ignore[override]
        return {"scale": 3.0 + len(type(self).__name__)}


def traces(fn: Callable[..., Any], *steps: Callable[[], object]) -> list[int]:
    """How many traces there were after each step; every call is held to eager."""
    compiled = symshape.compile(fn)
    found = []
    for step in (lambda: None, *steps):
        step()
        assert torch.equal(compiled(torch.ones(3)), fn(torch.ones(3)))
        assert torch.equal(compiled(torch.ones(3)), fn(torch.ones(3)))
        found.append(compiled.stats().traces)
    assert compiled.stats().fallbacks == 0
    return found


@pytest.fixture
def thing() -> Plain:
    made = Plain()
    made.scale, made.others = 2.0, [1]
    return made


def setting(thing: Any, name: str, value: Any) -> Callable[[], object]:
    return lambda: setattr(thing, name, value)


def test_what_is_asked_for_counts_and_nothing_else(thing: Plain) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.__dict__.get("scale", 1.0) + thing.__dict__.get("more", 0)

    changes = (
        setting(thing, "others", [2]),
        setting(thing, "new", 4),
        setting(thing, "scale", 3.0),
    )
    assert traces(fn, *changes, setting(thing, "more", 5), lambda: delattr(thing, "scale")) == [
        1,
        1,
        1,
        2,
        3,
        4,
    ]


def test_items_and_what_is_there(thing: Plain) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if "more" not in thing.__dict__ and "scale" in thing.__dict__:
            return x * thing.__dict__["scale"]
        return x + len(thing.__dict__["others"])

    changes = (
        setting(thing, "others", [2, 3]),
        setting(thing, "new", 4),
        setting(thing, "scale", 3.0),
    )
    assert traces(fn, *changes, setting(thing, "more", 5), setting(thing, "others", [5, 6, 7])) == [
        1,
        1,
        1,
        2,
        3,
        4,
    ]


def test_what_is_remembered_by_hand() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if "table" not in self.__dict__:
                self.__dict__["table"] = torch.arange(3.0)
            return x * self.__dict__["table"]

    net = Net()
    compiled = symshape.compile(net.forward)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(3)), torch.arange(3.0))
    assert compiled.stats().traces <= 2
    net.__dict__["table"] = torch.ones(3)
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))


def test_items_that_are_missing(thing: Plain) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.__dict__["nothing"]

    with pytest.raises(KeyError, match="nothing"):
        symshape.compile(fn)(torch.ones(2))


def test_classes_that_ask_at_each_look_up() -> None:
    thing = Asking()
    thing.scale, thing.others = 2.0, [1]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.scale

    changes = (
        setting(thing, "others", [2]),
        setting(thing, "scale", 3.0),
        setting(thing, "_instead", {"scale": 7.0}),
    )
    assert traces(fn, *changes) == [1, 1, 2, 3]


def test_a_module_that_asks_its_dictionary() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.__dict__.get("scale", 2.0)

    net = Net()
    assert traces(net.forward, setting(net, "label", "a"), setting(net, "scale", 3.0)) == [1, 1, 2]


def test_all_of_it_where_more_than_one_entry_is_taken(thing: Plain) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        attributes = thing.__dict__
        return x * attributes.get("scale")

    def either(x: torch.Tensor) -> torch.Tensor:
        return x * (thing.__dict__ if x.ndim else {}).get("scale", 1.0)

    for each in (fn, either):
        assert traces(each, setting(thing, "new", 1), setting(thing, "new", 2))[-1] > 1
        thing.__dict__.pop("new", None)


def test_get_of_other_dictionaries(thing: Plain) -> None:
    table: dict[str, Any] = {"scale": 4.0}

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * ({"scale": 5.0} if x.ndim > 1 else table).get("scale") + Masked().__dict__.get(
            "scale", 0.0
        )

    assert traces(fn, lambda: table.update(scale=6.0)) == [1, 2]


def test_slots_beside_a_dictionary() -> None:
    thing = Slotted()
    thing.scale = 2.0

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.scale + thing.__dict__.get("scale", 10.0)

    changes = (
        setting(thing, "other", 1.0),
        setting(thing, "scale", 3.0),
        lambda: thing.__dict__.update(scale=1.0),
    )
    assert traces(fn, *changes) == [1, 1, 2, 3]


def test_what_the_program_itself_writes(thing: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        thing.scale = x.sum()
        thing.__dict__["made"] = 3.0
        return x * thing.__dict__.get("scale") + thing.__dict__.get("made", 0.0)

    compiled = symshape.compile(fn)
    for n in (3, 5):
        x = torch.randn(n)
        assert torch.equal(compiled(x), fn(x))
        assert torch.equal(thing.scale, x.sum())
        assert thing.made == 3.0


@pytest.mark.parametrize("args", [(), (1, 2, 3), ([],)])
def test_errors_are_pythons(args: tuple[Any, ...], thing: Plain) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.__dict__.get(*args)

    with pytest.raises(TypeError) as expected:
        fn(torch.ones(2))
    with pytest.raises(TypeError) as found:
        symshape.compile(fn)(torch.ones(2))
    assert str(found.value) == str(expected.value)


def test_keys_that_are_no_names(thing: Any) -> None:
    class Name(str):
        __slots__ = ()

    thing.__dict__[1] = 2.0

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * thing.__dict__.get(1) + thing.__dict__.get(Name("scale"))

    assert traces(fn, lambda: thing.__dict__.update({1: 5.0}), setting(thing, "scale", 9.0))[0] == 1
