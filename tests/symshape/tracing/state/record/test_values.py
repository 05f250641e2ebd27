"""What each kind of value leads to when code loads it."""

from __future__ import annotations

import contextvars
import functools
import gc
import io
import os
import random
import threading
import types
import weakref
from collections import deque
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from tests.symshape.tracing.state.recorded import names, recorded, seen, state_of

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=1)
HIDDEN: dict[str, Any] = {
    "an iterator": iter([1, 2]),
    "a generator": (i for i in range(3)),
    "random.Random": random.Random(0),
    "thread locals": threading.local(),
    "a file": io.StringIO("x"),
    "a memory view": memoryview(b"x"),
}


def test_defaults_of_functions() -> None:
    def fn(one: Any = 1, *, other: Any = 2) -> Any:
        return one, other

    assert {"fn.__code__", "defaults of fn"} <= names(recorded(fn))
    assert seen(fn, lambda: setattr(fn, "__defaults__", (3,)))
    assert seen(fn, lambda: fn.__kwdefaults__.update(other=3))
    assert seen(fn, lambda: setattr(fn, "__kwdefaults__", {"other": 4}))
    assert seen(fn, lambda: setattr(fn, "__code__", (lambda one=1, *, other=2: 0).__code__))


def test_a_list_that_is_a_default() -> None:
    items = [1]

    def fn(default: Any = items) -> Any:
        return default[0]

    assert seen(fn, lambda: items.append(2))


def test_wrapped_functions() -> None:
    table = [1]

    @functools.lru_cache
    def memo() -> int:
        return len(table)

    @functools.wraps(memo.__wrapped__)
    def wrapper() -> int:
        return memo()

    assert seen(wrapper, lambda: table.append(2))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1, 2], lambda each: each.append(3)),
        (lambda: [1, 2], lambda each: each.__setitem__(0, 5)),
        (lambda: {"a": 1}, lambda each: each.update(a=2)),
        (lambda: {"a": 1, "b": 2}, lambda each: each.update(a=each.pop("a"))),
        (lambda: {1, 2}, lambda each: each.add(3)),
        (lambda: deque([1, 2], 3), lambda each: each.rotate()),
        (lambda: bytearray(b"ab"), lambda each: each.__setitem__(0, 5)),
        (lambda: numpy.arange(3.0), lambda each: each.__setitem__(0, 5.0)),
        (lambda: ([1], 2), lambda each: each[0].append(2)),
        (lambda: {"a": [1]}, lambda each: each["a"].append(2)),
    ],
)
def test_containers_with_all_their_items(make: Any, change: Any) -> None:
    owner = make()
    fn = lambda: owner  # noqa: E731
    assert seen(fn, lambda: change(owner))


def test_a_view_of_a_dictionary() -> None:
    store = {"a": 1}
    view = types.MappingProxyType(store)
    assert seen(lambda: view["a"], lambda: store.update(a=2))


def test_a_large_array_is_refused() -> None:
    table = numpy.zeros(1 << 14)
    with pytest.raises(
        UnsupportedError,
        match=r"NumPy array table of 131,072 bytes, too large to be guarded by its content; pass "
        r"it as a tensor",
    ):
        recorded(lambda: table[0])


def test_context_variables_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    token = VARIABLE.set(1)
    assert seen(lambda: VARIABLE.get(), lambda: VARIABLE.set(2))
    VARIABLE.reset(token)
    for i, fn in enumerate((lambda: os.environ.get("OF_OURS"), lambda: os.getenv("OF_OURS"))):
        assert seen(fn, lambda: monkeypatch.setenv("OF_OURS", str(i)))  # noqa: B023


def test_weak_references_keep_nothing_alive_and_see_it_go() -> None:
    class Thing:
        level = 1

    thing = Thing()
    reference = weakref.ref(thing)
    state = state_of(lambda: reference())
    gc.collect()
    assert state.unchanged()
    del thing
    gc.collect()
    assert reference() is None
    assert not state.unchanged()


def test_hooks_of_modules_and_of_all_modules() -> None:
    model = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    assert seen(model, lambda: model.register_forward_hook(lambda *_: None), x)
    assert seen(model, lambda: model.register_forward_pre_hook(lambda *_: None), x)
    handles: list[Any] = []
    try:
        add = nn.modules.module.register_module_forward_hook
        assert seen(model, lambda: handles.append(add(lambda *_: None)), x)
    finally:
        handles[0].remove()
    assert not seen(model, lambda: model.register_buffer("unread", torch.ones(1)), x)


def test_modules_of_a_tree_that_ran_and_no_others() -> None:
    model = nn.ModuleDict({"ran": nn.Dropout(0.1), "other": nn.Dropout(0.1)})
    fn = lambda: model["ran"](torch.ones(2))  # noqa: E731
    assert seen(fn, lambda: model["ran"].eval())
    assert not seen(fn, lambda: model["other"].eval())
    model = nn.ModuleDict({"ran": nn.Dropout(0.1)})
    assert seen(lambda: model["ran"].p, lambda: setattr(model["ran"], "p", 0.3))


def test_another_class_of_an_object_is_seen() -> None:
    class One:
        level = 1

    class Two:
        level = 2

    thing = One()
    assert seen(lambda: thing.level, lambda: setattr(thing, "__class__", Two))


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("caught", [False, True])
def test_what_nobody_sees_into_is_refused(name: str, caught: bool) -> None:
    value = HIDDEN[name]

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not caught:
            return x if value else x + 1
        try:
            return x if held["value"] else x + 1
        except Exception:
            return x * 2

    held = types.SimpleNamespace()
    held = {"value": value} if not caught else _Lazily(value)  # type: ignore[assignment]
    with pytest.raises(UnsupportedError, match="whose result symshape cannot see"):
        symshape.trace(fn, torch.ones(3))


class _Lazily:
    """Loads a value where an ``except`` is around it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)
