"""Objects of the user's that a program writes to: flattened from the first on, where they hold
nothing but data.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.calls.object_kinds import flatten_from_now_on, is_record
from symshape.errors import UnsupportedError
from tests.worlds.world import look

Tensor = torch.Tensor


def _cache() -> tuple[type, Callable[[Any, Tensor], Any]]:
    """A cache of keys as people write it, of a class of its own, and what fills it."""

    class Layer:
        def __init__(self) -> None:
            self.keys: Any = None

        def update(self, keys: Tensor) -> Any:
            self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
            return self.keys

    class Cache:
        def __init__(self) -> None:
            self.layers = [Layer(), Layer()]
            self.seen = 0

    def step(cache: Any, x: Tensor) -> Any:
        for layer in cache.layers:
            x = x + layer.update(x).mean(0)
        cache.seen += x.size(0)
        return x * cache.seen

    return Cache, step


def _slots() -> tuple[type, Callable[[Any, Tensor], Any]]:
    class State:
        __slots__ = ("at", "held")

        def __init__(self) -> None:
            self.held, self.at = torch.zeros(64), 0

    def step(state: Any, x: Tensor) -> Any:
        state.held[state.at : state.at + x.size(0)] = x
        state.at += x.size(0)
        return state.held[: state.at] * 2

    return State, step


def _counter() -> tuple[type, Callable[[Any, Tensor], Any]]:
    class Seen:
        calls = 0

    def step(seen: Any, x: Tensor) -> Any:
        seen.calls += 1
        return x * seen.calls

    return Seen, step


def _behind_a_property() -> tuple[type, Callable[[Any, Tensor], Any]]:
    class Held:
        _last: Tensor | None = None

        @property
        def last(self) -> Tensor | None:
            return self._last

        @last.setter
        def last(self, value: Tensor) -> None:
            self._last = value + 1

    def step(held: Any, x: Tensor) -> Any:
        held.last = x
        return held.last * 2

    return Held, step


@pytest.mark.parametrize("make", [_cache, _slots, _counter, _behind_a_property])
def test_the_first_object_of_its_class_is_written_to(make: Callable[[], tuple[Any, Any]]) -> None:
    kind, step = make()
    compiled: Any = symshape.compile(step, fullgraph=True)
    for _ in range(2):
        one = kind()
        twin = copy.deepcopy(one)
        for n in (3, 1, 1, 2, 1):
            x = torch.randn(n)
            assert torch.equal(compiled(one, x), step(twin, x))
            assert look(one) == look(twin)
    assert compiled.stats().traces <= 3


def test_where_gradients_are_recorded() -> None:
    class Held:
        x: Any = None

    weight = torch.nn.Parameter(torch.randn(3))

    def step(held: Any, x: Tensor) -> Any:
        held.x = x * weight
        return held.x.square().sum()

    compiled: Any = symshape.compile(step, fullgraph=True)
    held, twin = Held(), Held()
    for n in (2, 4):
        x = torch.randn(n, 3)
        (found,) = torch.autograd.grad(compiled(held, x) + held.x.sum(), weight)
        (expected,) = torch.autograd.grad(step(twin, x) + twin.x.sum(), weight)
        assert torch.equal(found, expected)


def test_what_holds_more_than_data_is_known_by_identity() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.steps = torch.nn.Linear(2, 1), 0

    def step(trainer: Any, x: Tensor) -> Any:
        trainer.steps += 1
        return trainer.net(x)

    trainer = Trainer()
    with pytest.raises(UnsupportedError, match=r"changes .*steps \(from 0 to 1\)"):
        symshape.compile(step, fullgraph=True)(trainer, torch.ones(3, 2))
    assert trainer.steps == 0
    assert not flatten_from_now_on(trainer)
    assert not is_record(trainer)


def test_what_is_only_read_is_known_by_identity() -> None:
    class Scales:
        def __init__(self, by: Tensor) -> None:
            self.by = by

    scales = Scales(torch.ones(3))
    compiled: Any = symshape.compile(lambda held, x: x * held.by, fullgraph=True)
    compiled(scales, torch.ones(3))
    assert not is_record(scales)


def test_one_that_is_kept_too_runs_as_it_is() -> None:
    class Held:
        x: Any = None

    kept: list[Any] = [None]

    def step(held: Any, x: Tensor) -> Any:
        held.x = x * 2
        kept[0] = held
        return held.x + 1

    compiled: Any = symshape.compile(step)
    held = Held()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for n in (2, 3, 4):
            assert torch.equal(compiled(held, torch.ones(n)), torch.full((n,), 3.0))
            assert kept[0] is held
            assert torch.equal(held.x, torch.full((n,), 2.0))


def test_two_names_for_one() -> None:
    class Held:
        def __init__(self) -> None:
            self.x = torch.zeros(2)

    def step(one: Any, other: Any, x: Tensor) -> Any:
        one.x = x * 2
        return other.x

    compiled: Any = symshape.compile(step, fullgraph=True)
    one, other = Held(), Held()
    for which in (one, other, one, other):
        assert torch.equal(
            compiled(one, which, torch.ones(2)), one.x if which is one else torch.zeros(2)
        )
