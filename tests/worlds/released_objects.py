"""Objects that a program reaches through weak references: they go when the program's user lets them
go, after traces that were refused or started again, too.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.worlds.world import World, on, put, world

RELEASED = "26 released objects"
ON = on(3)


class _Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scaled(self, x: Any) -> Any:
        return x * self.factor


def _until_gone(name: str, use: Callable[[Any, Any], Callable[[Any, float], Any]]) -> None:
    """Register a program that reads a factor of an object, and 9 once the object is gone."""

    def build() -> World:
        held, state = [_Scale(2.0)], SimpleNamespace(n=0, seen=set())
        found = weakref.ref(held[0])
        inner = use(found, state)

        def f(x: Any) -> Any:
            own = found()
            return inner(x, 9.0 if own is None else own.factor)

        return World(f, [ON, ON, on(4), held.clear, ON], lambda: (found() is None, state.n))

    build.__name__ = name
    world(RELEASED)(build)


def _counted(found: Any, state: Any) -> Callable[[Any, float], Any]:
    def f(x: Any, factor: float) -> Any:
        state.n += 1
        return x * factor * state.n

    return f


def _refused(found: Any, state: Any) -> Callable[[Any, float], Any]:
    def f(x: Any, factor: float) -> Any:
        state.seen.add(1)
        return x * factor

    return f


def _branched(found: Any, state: Any) -> Callable[[Any, float], Any]:
    return lambda x, factor: x * factor if x.sum() > 0 else x


def _copied(found: Any, state: Any) -> Callable[[Any, float], Any]:
    return lambda x, factor: x * factor + (0 if found() is None else copy.copy(found()).factor)


def _memoised(found: Any, state: Any) -> Callable[[Any, float], Any]:
    ones = functools.lru_cache(torch.ones)
    return lambda x, factor: x * factor * ones(x.size(0))


def _trained(found: Any, state: Any) -> Callable[[Any, float], Any]:
    module = nn.Linear(1, 1)
    with torch.no_grad():
        for each in module.parameters():
            each.fill_(0.5)
    optimizer = torch.optim.Adam(module.parameters())

    def f(x: Any, factor: float) -> Any:
        optimizer.zero_grad()
        loss = (module(x[:, None]) * factor).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return f


_until_gone("object_of_a_counted_call", _counted)
_until_gone("object_of_a_refused_call", _refused)
_until_gone("object_of_a_call_that_branches_on_data", _branched)
_until_gone("object_that_is_copied", _copied)
_until_gone("object_beside_a_memo", _memoised)
_until_gone("object_of_a_training_step", _trained)


@world(RELEASED)
def weak_methods() -> World:
    held = [_Scale(2.0), _Scale(3.0)]
    called = [weakref.WeakMethod(each.scaled) for each in held]

    def f(x: Any) -> Any:
        for each in called:
            found = each()
            if found is not None:
                x = found(x)
        return x

    steps = [ON, on(4), lambda: put(held[0], factor=7.0)(), ON, held.pop, ON]
    return World(f, steps, lambda: [each() is None for each in called])
