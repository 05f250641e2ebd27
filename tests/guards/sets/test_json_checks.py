"""Pieces of JSON: exactly the type that is wanted, and the piece that is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from guards import FormatError
from guards.sets.json_checks import array, checked, integer, record, string, symbol_name


@pytest.mark.parametrize(("check", "good"), [(integer, 3), (string, ""), (array, [1, "x"])])
def test_good_pieces_are_answered_themselves(check: Any, good: object) -> None:
    assert check(good, "it") is good


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (integer, True),
        (integer, 1.0),
        (integer, "1"),
        (integer, None),
        (string, 3),
        (array, (1,)),
        (array, {}),
    ],
)
def test_bad_pieces_are_named(check: Any, bad: object) -> None:
    with pytest.raises(
        FormatError, match=f"^the size must be of type .*, not {type(bad).__name__}$"
    ):
        check(bad, "the size")


def test_a_subclass_is_another_type() -> None:
    class Text(str):
        pass

    with pytest.raises(FormatError, match="must be of type str, not Text"):
        checked(Text("s0"), str, "a name")


def test_members_of_a_record() -> None:
    assert record({"a": 1}, "it", {"a"}, {"b"}) == {"a": 1}
    assert record({"a": 1, "b": 2}, "it", {"a"}, {"b"}) == {"a": 1, "b": 2}
    with pytest.raises(FormatError, match=r"^it lacks a, lacks c, has unknown 'd'$"):
        record({"b": 2, "d": 3}, "it", {"a", "c"}, {"b"})
    with pytest.raises(FormatError, match="it must be of type dict, not list"):
        record([], "it", set())


@pytest.mark.parametrize("name", ["s0", "größe", "v1", "values"])
def test_names_of_symbols(name: str) -> None:
    assert symbol_name(name) == name


@pytest.mark.parametrize("name", ["", "s 0", "0s", "lambda", "True", "__init__", "s0.x", "s0\n", 3])
def test_what_no_text_can_name(name: object) -> None:
    with pytest.raises(FormatError):
        symbol_name(name)
