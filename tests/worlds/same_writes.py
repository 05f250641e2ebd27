"""Writes that leave what was there, and deletions of what is gone: each call must do them (class 3
of issue 8).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.worlds.world import World, module, on, world

WRITES = "3 lost writes"
ON = on(3)


class _Holder:
    level: Any = 5

    def __init__(self) -> None:
        self.value: Any = 5


class _Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = 5


def _written_again(
    write: Callable[[Any], object],
    owner: Any,
    key: str = "value",
    made: Callable[[Any], Any] = lambda x: x * 2,
) -> World:
    """A program that writes what is there already; later it is something else, and must be
    written.
    """

    def fn(x: Any) -> Any:
        write(owner)
        return made(x)

    return World(fn, [ON, ON, lambda: setattr(owner, key, 7), ON, ON], lambda: getattr(owner, key))


@world(WRITES)
def same_value_of_an_attribute() -> World:
    def write(owner: Any) -> None:
        owner.value = 5

    return _written_again(write, _Holder())


@world(WRITES)
def same_value_by_setattr() -> World:
    return _written_again(lambda owner: setattr(owner, "value", 5), _Holder())


@world(WRITES)
def same_value_of_a_slot() -> World:
    def write(owner: Any) -> None:
        owner.value = 5

    return _written_again(write, _Slotted())


@world(WRITES)
def same_value_of_a_class() -> World:
    def write(owner: Any) -> None:
        owner.level = 5

    return _written_again(write, type("Fresh", (_Holder,), {"level": 5}), "level")


@world(WRITES)
def same_value_of_a_global() -> World:
    home = module("LEVEL = 5\ndef program(x):\n    global LEVEL\n    LEVEL = 5\n    return x * 2\n")
    return World(
        home.program, [ON, ON, lambda: setattr(home, "LEVEL", 7), ON, ON], lambda: home.LEVEL
    )


@world(WRITES)
def same_size_in_an_attribute() -> World:
    holder = _Holder()

    def fn(x: Any) -> Any:
        holder.value = x.shape[0]
        return x * 2

    return World(fn, [ON, on(2), ON, lambda: setattr(holder, "value", 0), ON], lambda: holder.value)


@world(WRITES)
def module_that_trains_already_is_put_into_train() -> World:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def fn(x: Any) -> Any:
        net.train()
        return x * 2

    return World(fn, [ON, ON, net.eval, ON], lambda: [each.training for each in net.modules()])


@world(WRITES)
def parameter_that_needs_gradients_is_made_to() -> World:
    net = nn.Linear(3, 3)

    def fn(x: Any) -> Any:
        net.requires_grad_(True)
        return x * 2

    return World(
        fn,
        [ON, lambda: net.requires_grad_(False), ON],
        lambda: [each.requires_grad for each in net.parameters()],
    )


def _deleted(delete: Callable[[Any], object], owner: Any, put_back: Callable[[], object]) -> World:
    """A program that deletes: the second call finds nothing, a later one finds it again."""

    def fn(x: Any) -> Any:
        delete(owner)
        return x * 2

    return World(fn, [ON, ON, put_back, ON, ON], lambda: sorted(vars(owner)))


@world(WRITES)
def attribute_deleted_twice() -> World:
    holder = _Holder()

    def delete(owner: Any) -> None:
        del owner.value

    return _deleted(delete, holder, lambda: setattr(holder, "value", 1))


@world(WRITES)
def attribute_deleted_twice_by_delattr() -> World:
    holder = _Holder()
    return _deleted(
        lambda owner: delattr(owner, "value"), holder, lambda: setattr(holder, "value", 1)
    )


@world(WRITES)
def global_deleted_twice() -> World:
    home = module("LEVEL = 5\ndef program(x):\n    global LEVEL\n    del LEVEL\n    return x * 2\n")
    return World(
        home.program,
        [ON, ON, lambda: setattr(home, "LEVEL", 7), ON],
        lambda: hasattr(home, "LEVEL"),
    )


@world(WRITES)
def deletion_by_a_class_of_its_own() -> World:
    class Noting:
        def __delattr__(self, name: str) -> None:
            object.__delattr__(self, name)

    holder: Any = Noting()
    holder.value = 1

    def delete(owner: Any) -> None:
        del owner.value

    return _deleted(delete, holder, lambda: setattr(holder, "value", 1))


@world(WRITES)
def namespace_entry_deleted_and_put_back() -> World:
    space = types.SimpleNamespace(value=torch.ones(3))

    def fn(x: Any) -> Any:
        kept = space.value
        del space.value
        space.value = kept
        return x * kept

    return World(
        fn,
        [ON, lambda: setattr(space, "value", torch.ones(3) * 2), ON],
        lambda: sorted(vars(space)),
    )
