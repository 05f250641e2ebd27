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
from symshape.tracing.state.compare import dict_versions

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
    watch, written = dict_versions.DictWatch(dicts), dict_versions.noted(dicts)
    assert watch.unchanged()
    write(dicts[position])
    assert not watch.unchanged()
    assert [i for i, each in enumerate(written()) if each] == [position]


@needs_versions
def test_writes_never_make_up_for_each_other() -> None:
    """Numbers of dictionaries only grow: no other write brings their sum back."""
    dicts = _dicts()
    watch = dict_versions.DictWatch(dicts)
    for round_ in range(5):
        for each in dicts:
            each["a"] = round_
            assert not watch.unchanged()
        for each in reversed(dicts):
            each.clear()
            assert not watch.unchanged()


@needs_versions
def test_a_dictionary_may_be_watched_twice() -> None:
    one: dict[str, int] = {}
    watch, written = dict_versions.DictWatch([one, {}, one]), dict_versions.noted([one, {}, one])
    assert watch.unchanged()
    assert written() == [False] * 3
    one["a"] = 1
    assert not watch.unchanged()
    assert written() == [True, False, True]


@needs_versions
def test_other_dictionaries_do_not_count() -> None:
    dicts, others = _dicts(), _dicts()
    watch = dict_versions.DictWatch(dicts)
    for each in others:
        each["c"] = 2
    del others
    assert watch.unchanged()


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
