"""Floats among arguments: which places vary, and what stands for them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import pytest
import torch

from symshape.calls.call_key import FLAT
from symshape.calls.floats import (
    ChangingFloats,
    FloatLeaf,
    VaryingFloat,
    leaf_of,
    number_in,
    with_leaves,
)


def test_a_place_varies_from_its_second_value_on() -> None:
    floats = ChangingFloats(1)
    assert not floats.learn((0.1, {"a": [0.5, 2]}), {"eps": 0.0})
    assert not floats.learn((0.1, {"a": [0.5, 3]}), {"eps": 0.0})
    assert floats.learn((0.1, {"a": [0.25, 3]}), {"eps": -0.0})
    assert floats.places == {(1, "a", 0), ("eps",)}
    assert not floats.learn((0.1, {"a": [0.7, 3]}), {"eps": 0.3})
    assert floats.learn((0.2, 7), {})
    assert floats.places == {(0,), (1, "a", 0), ("eps",)}


def test_a_number_of_values_may_stay_constants() -> None:
    floats = ChangingFloats(2)
    assert [floats.learn((value,), {}) for value in (0.1, 0.2, 0.1, float("nan"), 0.3)] == [
        False
    ] * 3 + [True, False]


def test_variables_are_no_arguments() -> None:
    floats = ChangingFloats(1)
    floats.learn((0.1,), {}, [[0.1]])
    assert floats.learn((0.1,), {}, [[0.2]])
    (argument,), _ = floats.given((0.5,), {})
    assert argument == 0.5
    ((inside,),) = floats.given_in([[0.5]])
    assert type(inside) is FloatLeaf


def test_what_is_given() -> None:
    floats = ChangingFloats(1)
    shared, other = [0.1, "x"], (1.0, 2)
    floats.learn((shared, shared, other, 3, True), {"scale": 0.1})
    floats.learn(([0.2, "x"], shared, other, 4, False), {"scale": 0.2})
    args, kwargs = floats.given((shared, shared, other, 3, True), {"scale": 0.3})
    assert args[0] is args[1], "one list in two places is one still"
    assert args[2] is other
    assert args[3:] == (3, True)
    assert type(kwargs["scale"]) is type(args[0][0]) is FloatLeaf
    assert float(args[0][0]) == 0.1
    assert float(kwargs["scale"]) == 0.3
    assert shared == [0.1, "x"]
    assert floats.given((7, torch.ones(2)), {"scale": 1})[1] == {"scale": 1}, "an int is no float"


@pytest.mark.parametrize(
    "given", [OrderedDict(b=1, a=0.5), defaultdict(list, b=1, a=0.5), {"b": 1, "a": 0.5}]
)
def test_dictionaries_of_every_kind(given: dict[str, Any]) -> None:
    floats = ChangingFloats(1)
    floats.learn((given,), {})
    other = given.copy()
    other["a"] = 0.75
    floats.learn((other,), {})
    assert floats.places == {(0, "a")}
    (made,), _ = floats.given((given,), {})
    assert type(made) is type(given)
    assert type(made["a"]) is FloatLeaf
    assert list(made) == list(given)
    assert given["a"] == 0.5
    if isinstance(made, defaultdict):
        assert made["c"] == []


def test_a_leaf_holds_every_float() -> None:
    for value in (0.1, -0.0, 5e-324, 1e308, float("inf"), float("nan")):
        assert repr(leaf_of(value).item()) == repr(value)
        for given in (leaf_of(value), VaryingFloat(value)):
            assert type(number_in(given)) is float
            assert repr(number_in(given)) == repr(value)


def test_a_quick_key_is_the_same_without_leaves() -> None:
    floats = ChangingFloats(1)
    for value in (0.1, 0.2):
        floats.learn((3.0, value, [value]), {"scale": value, "bias": 1.0})
    args, kwargs = (3.0, 0.7, 2), {"bias": 1.0, "scale": -0.0}
    flat = floats.flat(args, kwargs)
    assert [type(each) for each in flat] == [float, VaryingFloat, int, float, VaryingFloat]
    given, named = floats.given(args, kwargs)
    leaves = (*given, *named.values())
    assert [type(each) for each in with_leaves(flat)] == [type(each) for each in leaves]
    assert (
        FLAT.makers[5](flat, kwargs)
        == FLAT.makers[5](leaves, kwargs)
        != FLAT.makers[5]((*args, 1.0, -0.0), kwargs)
    )
    assert floats.flat((3.0, 1, (0.5,)), {"scale": True}) == [3.0, 1, (0.5,), True], (
        "no float is one"
    )
    plain = (1, 0.5, "x")
    assert with_leaves(plain) is plain


def test_places_that_are_known_to_vary() -> None:
    floats = ChangingFloats(4)
    assert floats.vary((0, {"a": [1, 2]}), {"b": 3, "c": (4,)}, {2, 3})
    assert floats.places == {(1, "a", 1), ("b",)}
    assert not floats.vary((0, {"a": [1, 2]}), {"b": 3, "c": (4,)}, {2})
    assert floats.flat((1, 2), {"b": 0.5, "c": 0.5})[2:] == [0.5, 0.5]
    assert [type(each) for each in floats.flat((1, 2), {"b": 0.5, "c": 0.5})[2:]] == [
        VaryingFloat,
        float,
    ]
