"""Generated functions: in linecache while they live, and only then."""

from __future__ import annotations

import gc
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from guards.terms.generated import generated_function

FAILS = "def fail(values):\n    return values[0] // 0\n"


def test_source_stays_as_long_as_the_function() -> None:
    function = generated_function(FAILS, "fail", "test", {})
    filename = function.__code__.co_filename
    assert inspect.getsource(function) == FAILS
    # what debuggers call: there is no such file, but the entry says so itself
    linecache.checkcache()
    assert filename in linecache.cache
    del function
    gc.collect()
    assert linecache.getlines(filename) == []


@pytest.mark.slow
def test_a_function_that_dies_leaves_its_name_to_the_next() -> None:
    names = set()
    before = len(linecache.cache)
    for number in range(9):
        function = generated_function(
            f"def made():\n    return {number}\n", "made", "test of names", {}
        )
        names.add(function.__code__.co_filename)
        assert inspect.getsource(function).endswith(f"return {number}\n")
        del function
        gc.collect()
    assert len(names) == 1
    assert len(linecache.cache) <= before + 1


def test_names_of_many_dead_functions_go_once_nobody_can_be_walking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linecache, "cache", {})
    many = [generated_function(FAILS, "fail", "many", {}) for _ in range(500)]
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None, 2: None})
    many.clear()
    gc.collect()
    generated_function(FAILS, "fail", "many", {})
    assert len(linecache.cache) == 500
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: None})
    function = generated_function(FAILS, "fail", "many", {})
    assert len(linecache.cache) <= 65
    assert inspect.getsource(function) == FAILS


def test_functions_may_die_while_the_line_cache_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the garbage collector runs in ``checkcache``, which every printed traceback
    calls.
    """
    cache: dict[str, Any] = {}
    monkeypatch.setattr(linecache, "cache", cache)
    # a file of the disk, about which the walk asks before it comes to the others
    linecache.getlines(__file__)
    functions = [generated_function(FAILS, "fail", "test", {}) for _ in range(3)]
    names = [function.__code__.co_filename for function in functions]
    assert all(map(linecache.getlines, names))
    asked = []

    def collecting(path: str, stat: Callable[[str], os.stat_result] = os.stat) -> os.stat_result:
        functions.clear()
        gc.collect()
        asked.append(path)
        return stat(path)

    monkeypatch.setattr("os.stat", collecting)
    linecache.checkcache()
    monkeypatch.undo()
    assert asked == [__file__]
    assert [cache[name][2] for name in names] == [[]] * 3


def test_each_has_a_file_of_its_own() -> None:
    one, other = (generated_function(FAILS, "fail", "test", {}) for _ in range(2))
    names = {each.__code__.co_filename for each in (one, other)}
    assert len(names) == 2
    assert all(name.startswith("<test ") for name in names)


def test_a_traceback_shows_the_line() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        generated_function(FAILS, "fail", "test", {})((1,))
    assert "return values[0] // 0" in "".join(traceback.format_exception(raised.value))


def test_the_namespace_is_what_it_sees_and_where_it_lands() -> None:
    space = {"limit": 7, "__builtins__": {}}
    function = generated_function("def test(v0):\n    return v0 <= limit\n", "test", "test", space)
    assert (function(7), function(8)) == (True, False)
    assert space["test"] is function
    with pytest.raises(NameError):
        generated_function(
            "def test(v0):\n    return len(v0)\n", "test", "test", {"__builtins__": {}}
        )([])


def test_nothing_is_left_of_source_that_does_not_run() -> None:
    before = set(linecache.cache)
    with pytest.raises(SyntaxError):
        generated_function("def (", "f", "test", {})
    with pytest.raises(KeyError):
        generated_function("x = 1\n", "f", "test", {})
    assert not {name for name in set(linecache.cache) - before if name.startswith("<test")}


def test_the_same_source_is_compiled_once_and_runs_in_each_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the generator has its own code
    source = "def scaled(values):\n    return [*(factor * each for each in values)]\n"
    one = generated_function(source, "scaled", "test", {"factor": 2})
    with monkeypatch.context() as patch:
        patch.setattr("builtins.compile", None)  # which is not asked again
        other = generated_function(source, "scaled", "test", {"factor": 3})
    assert (one((1, 2)), other((1, 2))) == ([2, 4], [3, 6])
    inner = [each for each in other.__code__.co_consts if isinstance(each, CodeType)]
    assert [each.co_filename for each in inner] == [other.__code__.co_filename]
    assert other.__code__.co_filename != one.__code__.co_filename
