"""Plain values to JSON and back: the very same, or refused."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from symshape.store.json_values import from_json, to_json
from symshape.store.store_errors import EntryError, NotStorable

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.sampled_from(
        [
            torch.int8,
            torch.bfloat16,
            torch.device("cpu"),
            torch.device("cuda:1"),
            torch.strided,
            torch.channels_last,
            ...,
            torch.Size([2, 3]),
            slice(1, None, 2),
        ]
    )
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
)


def _shown(value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return f"nan {math.copysign(1, value)}"
    if isinstance(value, complex):
        return f"{_shown(value.real)} {_shown(value.imag)}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[_shown(each) for each in value]}"
    return repr(value)


@pytest.mark.slow
@given(_VALUES)
def test_there_and_back(value: Any) -> None:
    assert _shown(from_json(json.loads(json.dumps(to_json(value))))) == _shown(value)


@pytest.mark.parametrize("value", [object(), {1: 2}, {1}, torch.ones(2), print, 1 << 5000])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(NotStorable):
        to_json(value)


@pytest.mark.parametrize(
    "data",
    [
        {"float": "1 + 1"},
        {"dtype": "os"},
        {"dtype": ["x"]},
        {"device": "the moon"},
        {"bytes": "%"},
        {"tuple": 3},
        {"float": "1", "dtype": "x"},
        {},
        1.5,
        {"eval": "1"},
        {"size": ["a"]},
        {"slice": [1]},
        1 << 5000,
        {"complex": [1]},
    ],
)
def test_what_is_no_value_is_refused(data: Any) -> None:
    with pytest.raises(EntryError):
        from_json(data)


def test_too_deep() -> None:
    nested: Any = 1
    for _ in range(100):
        nested = [nested]
    with pytest.raises(EntryError, match=re.escape("too deeply")):
        from_json(nested)
    with pytest.raises(NotStorable):
        to_json(nested)
