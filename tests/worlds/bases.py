"""Classes whose bases, or the classes between them, change between calls: what ``super()`` finds is
another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.worlds.world import World, on, put, world

BASES = "17 bases of classes"
ON = on(3)


def _chain() -> tuple[type[Any], type[Any], type[Any]]:
    """A class, one below it that has nothing of its own, and one below that which asks
    ``super()``.
    """

    class Top:
        def act(self, x: Any) -> Any:
            return x * 2

        @classmethod
        def made(cls, x: Any) -> Any:
            return x * 3

    class Middle(Top):
        pass

    class Low(Middle):
        def act(self, x: Any) -> Any:
            return super().act(x) + 1

        @classmethod
        def made(cls, x: Any) -> Any:
            return super().made(x) + 1

    return Top, Middle, Low


def _other(top: type[Any]) -> type[Any]:
    class Other(top):  # type: ignore[misc]
        def act(self, x: Any) -> Any:
            return x - 7

        @classmethod
        def made(cls, x: Any) -> Any:
            return x - 9

    return Other


@world(BASES)
def bases_below_super() -> World:
    top, _, low = _chain()
    own, other = low(), _other(top)
    return World(lambda x: own.act(x), [ON, put(low, __bases__=(other,)), ON, ON])


@world(BASES)
def bases_below_super_of_a_class_method() -> World:
    top, _, low = _chain()
    return World(lambda x: low.made(x), [ON, put(low, __bases__=(_other(top),)), ON, ON])


@world(BASES)
def method_put_between() -> World:
    _, middle, low = _chain()
    own = low()
    return World(
        lambda x: own.act(x),
        [ON, put(middle, act=lambda self, x: x * 10), ON, lambda: delattr(middle, "act"), ON],
    )


@world(BASES)
def class_method_put_between() -> World:
    _, middle, low = _chain()
    return World(
        lambda x: low.made(x), [ON, put(middle, made=classmethod(lambda cls, x: x * 10)), ON]
    )


@world(BASES)
def property_put_between() -> World:
    class Top:
        scale = 2

    class Middle(Top):
        pass

    class Low(Middle):
        def act(self, x: Any) -> Any:
            return x * super().scale

    own = Low()
    return World(lambda x: own.act(x), [ON, put(Middle, scale=property(lambda self: 5)), ON])


def _modules() -> tuple[type[Any], type[Any], Any]:
    class Middle(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2

    class Other(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 5

    class Low(Middle):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x) + 1

    return Low, Other, Low()


@world(BASES)
def bases_of_a_module() -> World:
    low, other, own = _modules()
    return World(own, [ON, put(low, __bases__=(other,)), ON, ON])


@world(BASES)
def mixin_put_before_another() -> World:
    class One:
        def act(self, x: Any) -> Any:
            return x * 2

    class Two:
        def act(self, x: Any) -> Any:
            return x * 3

    def cooperative(kind: type[Any]) -> Callable[[Any, Any], Any]:
        return lambda self, x: super(kind, self).act(x) + 1

    low = type("Low", (One, Two), {})
    low.act = cooperative(low)  # type: ignore[attr-defined]
    own: Any = low()
    return World(lambda x: own.act(x), [ON, put(low, __bases__=(Two, One)), ON])
