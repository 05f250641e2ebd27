"""Checks of very many dictionaries and references at once: each single change is seen, whatever its
position.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from symshape.tracing.state import compiled
from symshape.tracing.state.record.dictionary_reads import dict_behind

MANY = 300

needs_versions = pytest.mark.skipif(
    compiled.VERSIONS is None, reason="dictionaries are not watched in C++ here"
)
needs_pointers = pytest.mark.skipif(
    compiled.POINTERS is None, reason="references are not compared in C++ here"
)


def _dicts() -> list[dict[str, int]]:
    return [(OrderedDict if i % 3 else dict)({"a": i} if i % 2 else {}) for i in range(MANY)]


@needs_versions
@pytest.mark.parametrize("position", range(0, MANY, 7))
@pytest.mark.parametrize("write", [lambda d: d.update(b=1), lambda d: (d.update(b=1), d.pop("b"))])
def test_a_write_to_any_dictionary_is_seen(position: int, write: Callable[[Any], Any]) -> None:
    dicts = _dicts()
    watch = compiled.VERSIONS(tuple(dicts))
    assert watch.unchanged(None)
    write(dicts[position])
    assert not watch.unchanged(None)
    assert [i for i, each in enumerate(watch.written()) if each] == [position]


@needs_versions
def test_writes_never_make_up_for_each_other() -> None:
    """Numbers of dictionaries only grow: no other write brings their sum back."""
    dicts = _dicts()
    watch = compiled.VERSIONS(tuple(dicts))
    for round_ in range(5):
        for each in dicts:
            each["a"] = round_
            assert not watch.unchanged(None)
        for each in reversed(dicts):
            each.clear()
            assert not watch.unchanged(None)


@needs_versions
def test_a_dictionary_may_be_watched_twice() -> None:
    one: dict[str, int] = {}
    watch = compiled.VERSIONS((one, {}, one))
    assert watch.unchanged(None)
    assert watch.written() == [False] * 3
    one["a"] = 1
    assert not watch.unchanged(None)
    assert watch.written() == [True, False, True]


@needs_versions
def test_other_dictionaries_do_not_count() -> None:
    dicts, others = _dicts(), _dicts()
    watch = compiled.VERSIONS(tuple(dicts))
    for each in others:
        each["c"] = 2
    del others
    assert watch.unchanged(None)


class _Items:
    """The object whose attribute writes go into a dictionary."""

    def __init__(self, items: Any) -> None:
        object.__setattr__(self, "items", items)

    def __setattr__(self, name: str, value: Any) -> None:
        self.items[name] = value

    def __getattr__(self, name: str) -> Any:
        return self.items[name]

    def __delattr__(self, name: str) -> None:
        del self.items[name]


def _there_and_back(owner: Any, _: Any = None) -> None:
    value, owner.a = owner.a, None
    owner.a = value


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda owner, _: setattr(owner, "a", None),
    "added": lambda owner, _: setattr(owner, "b", 1),
    "deleted": lambda owner, _: delattr(owner, "a"),
    "there and back": _there_and_back,
    "clear": lambda _, attributes: attributes.clear(),
    "update": lambda _, attributes: attributes.update(c=1),
    "setdefault": lambda _, attributes: attributes.setdefault("d", 1),
    "pop": lambda _, attributes: attributes.pop("a"),
    "popitem": lambda _, attributes: attributes.popitem(),
    "or": lambda _, attributes: attributes.__ior__({"e": 1}),
}


@needs_versions
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("name", [*WRITES, "only read"])
def test_each_kind_of_write_is_seen(kind: type, name: str) -> None:
    owner: Any = _One()
    for value in range(20):  # so that the interpreter specialises
        owner.a = value
    attributes: Any = owner.__dict__ if kind is dict else kind(a=19)
    watch = compiled.VERSIONS(({"other": 1}, attributes))
    assert watch.unchanged(None)
    assert watch.unchanged(None)
    write = WRITES.get(name, lambda owner, attributes: (owner.a, attributes.get("b")))
    write(owner if kind is dict else _Items(attributes), attributes)
    assert watch.unchanged(None) is (name == "only read")
    assert watch.written() == [False, name != "only read"]


@needs_versions
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_an_update_of_an_empty_dictionary_is_seen(kind: type) -> None:
    """CPython 3.12 reports it as a copy."""
    empty = kind()
    watch = compiled.VERSIONS(({"other": 1}, empty))
    assert watch.unchanged(None)
    empty.update({"a": 1})
    assert not watch.unchanged(None)


@needs_versions
@pytest.mark.parametrize(
    "write",
    [
        lambda kind: setattr(kind, "a", None),
        lambda kind: setattr(kind, "b", 1),
        lambda kind: delattr(kind, "a"),
        _there_and_back,
        lambda kind: type.__setattr__(kind, "__getattr__", lambda self, name: None),
    ],
)
def test_each_kind_of_write_to_a_class_is_seen(write: Callable[[Any], Any]) -> None:
    class Base:
        a: Any = 19

    class Derived(Base):
        pass

    attributes = dict_behind(Base.__dict__)
    for _ in range(20):  # so that the interpreter specialises
        _ = (Derived.a, Derived().a)
    watch = compiled.VERSIONS(({"other": 1}, attributes))
    assert watch.unchanged(None)
    write(Base)
    assert not watch.unchanged(None)
    assert watch.written() == [False, True]


class _One:
    pass


class _Two:
    pass


@needs_pointers
@pytest.mark.parametrize("position", range(0, MANY, 7))
@pytest.mark.parametrize("key", ["__class__", "__dict__", "__code__"])
def test_another_reference_at_any_place_is_seen(position: int, key: str) -> None:
    def function(i: int) -> Any:
        return types.FunctionType(compile(f"{i}", "f", "eval"), {})

    objects: list[Any] = [function(i) if key == "__code__" else _One() for i in range(MANY)]
    places = tuple((each, key, getattr(each, key)) for each in objects)
    pointers = compiled.POINTERS(places)
    assert pointers.same()
    new = {"__class__": _Two, "__dict__": {}, "__code__": function(-1).__code__}[key]
    old = getattr(objects[position], key)
    setattr(objects[position], key, new)
    assert not pointers.same()
    setattr(objects[position], key, old)
    assert pointers.same()


@needs_pointers
def test_two_objects_that_change_places_are_seen() -> None:
    one, two = _One(), _Two()
    pointers = compiled.POINTERS(((one, "__class__", _One), (two, "__class__", _Two)))
    one.__class__, two.__class__ = _Two, _One  # type: ignore[assignment]
    assert not pointers.same()
