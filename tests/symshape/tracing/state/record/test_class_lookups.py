"""What is looked up in classes: by code, and by Python itself."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.symshape.tracing.state.recorded import names, recorded, seen

STORE = {"level": 1}


class Base:
    """Methods of every kind, which read outside."""

    limit = 1

    def __call__(self) -> Any:
        return STORE["level"]

    def __add__(self, other: Any) -> Any:
        return STORE["level"]

    def __getitem__(self, key: Any) -> Any:
        return STORE["level"]

    def __bool__(self) -> bool:
        return STORE["level"] > 1

    def __enter__(self) -> Any:
        return STORE["level"]

    def __exit__(self, *error: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return STORE["level"]

    @property
    def read(self) -> Any:
        return STORE["level"]

    @functools.cached_property
    def kept(self) -> Any:
        return STORE["level"]

    @staticmethod
    def static() -> Any:
        return STORE["level"]

    @classmethod
    def of_class(cls) -> Any:
        return cls.limit, STORE["level"]

    def never(self) -> Any:
        return OTHER["level"]


OTHER = {"level": 1}


class Derived(Base):
    """A class with nothing of its own."""


THING = Derived()


def _entered() -> Any:
    with THING as found:
        return found


@pytest.mark.parametrize(
    "fn",
    [
        lambda: THING(),
        lambda: THING + 1,
        lambda: THING[0],
        lambda: 1 if THING else 2,
        _entered,
        lambda: THING.of_nobody,
        lambda: THING.read,
        lambda: Derived().kept,
        lambda: THING.static(),
        lambda: THING.of_class(),
        lambda: Derived.of_class(),
        lambda: Derived()(),
    ],
)
def test_methods_that_python_calls_are_seen_into(fn: Any) -> None:
    def change() -> None:
        STORE["level"] = 2

    try:
        assert seen(fn, change)
    finally:
        STORE["level"] = 1
    assert "OTHER" not in names(recorded(fn))


@pytest.mark.parametrize(
    ("fn", "key", "value"),
    [
        (lambda: THING + 1, "__add__", lambda self, other: 0),
        (lambda: THING + 1, "__radd__", lambda self, other: 0),
        (lambda: THING.limit, "__getattribute__", lambda self, name: 0),
        (lambda: 1 if THING else 2, "__len__", lambda self: 0),
        (lambda: THING.read, "read", 3),
        (lambda: THING.of_class(), "limit", 3),
    ],
)
def test_another_method_in_the_class_or_before_it_is_seen(
    fn: Any, key: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen(fn, lambda: monkeypatch.setattr(Derived, key, value, raising=False))


def test_a_method_that_was_not_read_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not seen(lambda: THING.read, lambda: monkeypatch.setattr(Base, "static", None))


def test_attributes_of_a_metaclass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meta(type):
        level = 1

    class Made(metaclass=Meta):
        pass

    assert seen(lambda: Made.level, lambda: monkeypatch.setattr(Meta, "level", 2))
    assert seen(lambda: Made.level, lambda: setattr(Made, "level", 3))


def test_what_was_not_in_a_class() -> None:
    class Config:
        pass

    fn = lambda: getattr(Config, "level", 0)  # noqa: E731
    assert not seen(fn, lambda: setattr(Config, "other", 1))
    assert seen(fn, lambda: setattr(Config, "level", 1))


def test_a_look_up_is_one_place_however_often() -> None:
    def fn() -> None:
        for _ in range(10):
            THING.read  # noqa: B018

    assert [each.name for each in recorded(fn).places].count("Derived.read") == 1


def test_descriptors() -> None:
    class Doubles:
        factor = 2

        def __get__(self, owner: Any, kind: Any) -> Any:
            return self.factor * STORE["level"]

    class Thing:
        level = Doubles()

    thing = Thing()

    def change() -> None:
        STORE["level"] = 2

    try:
        assert seen(lambda: thing.level, change)
    finally:
        STORE["level"] = 1
    assert seen(lambda: thing.level, lambda: setattr(Doubles, "factor", 3))
    assert seen(lambda: thing.level, lambda: setattr(vars(Thing)["level"], "factor", 4))
