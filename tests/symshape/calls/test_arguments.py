"""Calls flattened: leaves, paths in the caller's words, what must be equal, and the integers that
are read.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch

from guards.sets.sources import Size
from symshape import InputError
from symshape.calls.arguments import (
    INT_KEY,
    duplicates,
    flatten_call,
    is_canonical,
    sources_of,
    values_of,
)

Pair = namedtuple("Pair", "left right")


def paths(fn: Any, *args: Any, **kwargs: Any) -> list[str]:
    return list(flatten_call(fn, args, kwargs).paths)


def test_paths_are_what_a_user_would_write() -> None:
    def fn(a: Any, b: Any = None, *rest: Any, key: Any = None, **more: Any) -> None: ...

    x = torch.ones(1)
    assert paths(fn, x, x) == ["a", "b"]
    assert paths(fn, {"k": [x, (x,)]}) == ["a['k'][0]", "a['k'][1][0]"]
    assert paths(fn, x, x, x, x) == ["a", "b", "rest[0]", "rest[1]"]
    assert paths(fn, x, key=x, other=[x]) == ["a", "key", "other[0]"]
    assert paths(fn, b=x, a=x) == ["b", "a"]
    assert paths(fn, Pair(x, x)) == ["a.left", "a.right"]
    assert paths(fn, OrderedDict(z=x, y=x)) == ["a['z']", "a['y']"]
    assert paths(torch.nn.Linear(1, 1), x) == ["input"]
    assert paths(max, x, x) == ["args[0]", "args[1]"]


LAYOUTS = [
    (lambda: torch.ones(2, 3), "contiguous"),
    (lambda: torch.ones(()), "contiguous"),
    (lambda: torch.ones(0, 3), "contiguous"),
    (lambda: torch.ones(2, 1, 3), "contiguous"),
    (lambda: torch.ones(4, 3)[1:], "contiguous with an offset"),
    (lambda: torch.ones(3, 2).t(), "strided"),
    (lambda: torch.ones(4, 3)[::2], "strided"),
    (lambda: torch.ones(3).expand(2, 3), "strided"),
    (lambda: torch.ones(1, 3).t(), "strided"),  # contiguous for torch, with strides of its own
    (lambda: torch.ones(4, 3)[:1, :1], "strided"),
    (lambda: torch.ones(3, 0).t(), "strided"),
    (lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), "strided"),
]


@pytest.mark.parametrize(("make", "layout"), LAYOUTS)
def test_layouts_and_the_integers_they_need(make: Any, layout: str) -> None:
    x = make()
    call = flatten_call(lambda x: x, (x,), {})
    assert call.keys[0].layout == layout
    expected = list(x.shape)
    if layout == "strided":
        expected += [*x.stride(), x.storage_offset()]
    elif layout != "contiguous":
        expected.append(x.storage_offset())
    assert list(values_of(call.leaves, call.keys)) == expected
    assert len(sources_of(call)) == len(expected)
    assert is_canonical(x) == (layout != "strided")


def test_canonical_means_the_strides_of_a_fresh_tensor() -> None:
    for sizes in ((2, 3), (1, 3), (3, 1), (1, 1), (0, 3), (3, 0, 2), (1, 0, 1), (2, 1, 3, 1), ()):
        assert is_canonical(torch.empty(sizes))
        assert is_canonical(torch.empty(sizes).clone().reshape(sizes))


def test_integers_of_integers() -> None:
    call = flatten_call(lambda n, x: x, (-3, torch.ones(2)), {"flag": True})
    assert call.keys[0] is INT_KEY
    assert values_of(call.leaves, call.keys) == (-3, 2)
    assert [source.text() for source in sources_of(call)] == ["n", "x.size(0)"]
    assert isinstance(sources_of(call)[1], Size)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1.0, 1.0, True),
        (1.0, 2.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (1.0, 1, False),
        (True, 1, False),
        (True, True, True),
        ("a", "a", True),
        ("a", "b", False),
        (None, None, True),
        (None, 0, False),
        (1j, 1j, True),
        (complex(0.0, -0.0), complex(0.0, 0.0), False),
        (torch.float32, torch.float32, True),
        (torch.float32, torch.float64, False),
        (torch.device("cpu"), torch.device("cpu"), True),
        (b"x", b"x", True),
        (1, 2, True),  # integers are compared by the guards
    ],
)
def test_constants(a: Any, b: Any, equal: bool) -> None:
    first, second = (flatten_call(lambda x: x, (value,), {}).keys for value in (a, b))
    assert (first == second) is equal


def test_tensor_keys() -> None:
    def key(x: torch.Tensor) -> Any:
        return flatten_call(lambda x: x, (x,), {}).keys[0]

    x = torch.ones(2, 3)
    assert key(x) == key(torch.zeros(7, 5))
    for other in (x.double(), x[0], torch.ones(2, 3, requires_grad=True), x.t(), x.to("meta")):
        assert key(x) != key(other)
    assert str(key(x)) == "contiguous float32 tensor of 2 dim(s) on cpu"


def test_duplicates() -> None:
    x, y = torch.ones(1), torch.ones(1)
    assert duplicates([x, y, x, 3, 3, y]) == (0, 1, 0, 3, 4, 1)
    assert duplicates([x, x[:]]) == (0, 1)


def test_without_paths_the_rest_is_the_same() -> None:
    args = ({"b": torch.ones(2), "a": [torch.ones(3).expand(2, 3), 4, 2.5]}, "text")
    quick, full = (flatten_call(lambda d, s: d, args, {"k": None}, paths=p) for p in (False, True))
    assert quick.keys == full.keys
    assert quick.tree == full.tree
    assert quick.duplicates == full.duplicates
    assert values_of(quick.leaves, quick.keys) == values_of(full.leaves, full.keys)
    with pytest.raises(InputError, match=r"d\['k'\]"):
        flatten_call(lambda d: d, ({"k": torch.ones(1).to_sparse()},), {}, paths=False)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), r"resolve_conj\(\)"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, r"resolve_neg\(\)"),
    ],
)
def test_lazy_tensors_are_refused(make: Any, advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        flatten_call(lambda x: x, (make(),), {})
