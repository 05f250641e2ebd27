"""What classes answer, past whatever they do about look-ups."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from symshape.tracing.state.record import class_lookups
from symshape.tracing.state.record.places import MISSING, Answer, Attribute


class Base:
    """A class with a slot and a method."""

    __slots__ = ("depth",)

    def method(self) -> None: ...


class Derived(Base):
    """A class that lies about its attributes."""

    __slots__ = ("__dict__", "width")
    number = 1
    computed = property(lambda self: 1)

    def __getattribute__(self, name: str) -> Any:
        raise AttributeError(name)

    def __add__(self, other: Any) -> Any: ...


def test_attributes_are_found_past_the_class() -> None:
    thing = Derived()
    object.__setattr__(thing, "own", 1)
    assert class_lookups.attributes_of(thing) == {"own": 1}
    assert class_lookups.attributes_of(Base()) is None
    assert class_lookups.attributes_of(3) is None


def test_what_stands_in_classes() -> None:
    assert class_lookups.static(Derived, "method") is vars(Base)["method"]
    assert class_lookups.static(Derived, "computed") is vars(Derived)["computed"]
    assert class_lookups.static(Derived, "nothing") is MISSING


def test_slots_of_all_classes_in_order() -> None:
    assert class_lookups.slots_of(Derived) == ("width", "depth")
    assert class_lookups.slots_of(OrderedDict) == ()


def test_a_look_up_is_asked_in_the_quickest_way_that_answers_what_stands_there() -> None:
    for key, kind in (
        ("method", Attribute),
        ("number", Attribute),
        ("computed", Answer),
        ("nothing", Answer),
    ):
        found = class_lookups.static(Derived, key)
        place = class_lookups.place_of(Derived, key, found, key)
        assert type(place) is kind
        assert place.read() is found


def test_a_metaclass_that_answers_itself_is_passed() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            return "mine" if name == "number" else super().__getattribute__(name)

    class Made(metaclass=Meta):
        number = 1

    place = class_lookups.place_of(Made, "number", 1, "number")
    assert place.read() == 1
    type.__setattr__(Made, "number", 2)
    assert place.read() == 2


def test_functions_that_python_calls_by_itself() -> None:
    def told(kind: type, everything: bool) -> set[str]:
        found: set[str] = set()
        class_lookups.functions_of(kind, everything, lambda value, name: found.add(name))
        return found

    assert told(Derived, False) == {"Derived.__getattribute__", "Derived.__add__"}
    assert told(Derived, True) == {
        "Derived.__getattribute__",
        "Derived.__add__",
        "Derived.computed",
    }
    assert "Sequential.__getitem__" in told(nn.Sequential, False)
    assert not {"Sequential.__init__", "Sequential.forward"} & told(nn.Sequential, False)


def test_classes_of_libraries() -> None:
    assert class_lookups.is_of_library(torch.nn.Linear)
    assert not class_lookups.is_of_library(Derived)
