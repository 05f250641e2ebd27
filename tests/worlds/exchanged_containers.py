"""Containers that a program fills and then exchanges, moves or gives a second name: buffers that
are flushed.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

import torch

from tests.worlds.world import World, on, world

EXCHANGED = "16 exchanged containers"
STEPS = [on(n) for n in (3, 4, 5, 3, 7, 2, 6)]


def _living(run: Callable[[Any, torch.Tensor], Any], **held: Any) -> World:
    """A program about the attributes of one object, seven calls long; which of its values are one
    object is seen.
    """
    owner = types.SimpleNamespace(**held)

    def observe() -> Any:
        values = list(vars(owner).values())
        return vars(owner), [[one is other for other in values] for one in values]

    return World(lambda x: run(owner, x), STEPS, observe)


@world(EXCHANGED)
def list_flushed_by_a_new_one() -> World:
    def run(h: Any, x: Any) -> Any:
        h.buffer.append(x.sum())
        if len(h.buffer) == 3:
            total = torch.stack(h.buffer).sum()
            h.buffer = []
            return total
        return x.sum()

    return _living(run, buffer=[])


@world(EXCHANGED)
def list_filled_and_exchanged_at_each_call() -> World:
    def run(h: Any, x: Any) -> Any:
        assert not h.sizes
        h.sizes.append(x.shape[0])
        y = x * len(h.sizes)
        h.sizes = []
        return y

    return _living(run, sizes=[])


@world(EXCHANGED)
def dictionary_filled_and_exchanged_at_each_call() -> World:
    def run(h: Any, x: Any) -> Any:
        assert not h.seen
        h.seen["last"] = x.sum()
        h.seen = {}
        return x + 1

    return _living(run, seen={})


@world(EXCHANGED)
def dictionary_of_lists_exchanged() -> World:
    def run(h: Any, x: Any) -> Any:
        h.metrics["loss"].append(x.sum())
        h.metrics["norm"].append(x.mean())
        if len(h.metrics["loss"]) == 2:
            total = sum(h.metrics["loss"]) + sum(h.metrics["norm"])
            h.metrics = collections.defaultdict(list)
            return total
        return x.sum()

    return _living(run, metrics=collections.defaultdict(list))


@world(EXCHANGED)
def list_in_a_dictionary_exchanged() -> World:
    def run(h: Any, x: Any) -> Any:
        h.of["a"].append(x.sum())
        count = len(h.of["a"])
        h.of["a"] = []
        return x * count

    return _living(run, of={"a": []})


@world(EXCHANGED)
def dictionary_around_a_list_exchanged() -> World:
    def run(h: Any, x: Any) -> Any:
        h.of["a"].append(x.sum())
        count = len(h.of["a"])
        h.of = {"a": []}
        return x * count

    return _living(run, of={"a": []})


@world(EXCHANGED)
def list_moved_to_another_name() -> World:
    def run(h: Any, x: Any) -> Any:
        h.now.append(x.sum())
        h.before = h.now
        h.now = []
        return x * len(h.before)

    return _living(run, now=[], before=None)


@world(EXCHANGED)
def list_under_a_second_name_from_then_on() -> World:
    def run(h: Any, x: Any) -> Any:
        h.one.append(x.sum())
        h.other = h.one
        if len(h.other) > 2:
            del h.other[0]
        return x * len(h.one)

    return _living(run, one=[], other=None)


@world(EXCHANGED)
def lists_swapped() -> World:
    def run(h: Any, x: Any) -> Any:
        h.one.append(x.sum())
        h.one, h.other = h.other, h.one
        if len(h.one) > 2:
            h.one.pop(0)
        return x * len(h.one)

    return _living(run, one=[], other=[])


@world(EXCHANGED)
def list_of_two_names_that_part() -> World:
    def run(h: Any, x: Any) -> Any:
        h.one.append(x.shape[0])
        count = len(h.other)
        h.one = list(h.one[-2:])
        return x * count

    both: list[int] = []
    return _living(run, one=both, other=both)


@world(EXCHANGED)
def list_exchanged_before_it_is_filled() -> World:
    def run(h: Any, x: Any) -> Any:
        old = h.kept
        h.kept = [x.sum()]
        old.append(x.mean())
        h.last = old if len(old) < 3 else None
        return x * len(old)

    return _living(run, kept=[], last=None)


@world(EXCHANGED)
def lists_rotated_in_a_list() -> World:
    def run(h: Any, x: Any) -> Any:
        h.ring[0].append(x.sum())
        h.ring.append(h.ring.pop(0))
        if len(h.ring[-1]) > 2:
            h.ring[-1] = []
        return x * len(h.ring[0])

    return _living(run, ring=[[], []])


@world(EXCHANGED)
def list_filled_before_an_error() -> World:
    def run(h: Any, x: Any) -> Any:
        h.kept.append(x.sum())
        if x.shape[0] == 5:
            raise ValueError("five")
        h.kept = []
        return x + 1

    return _living(run, kept=[])


@world(EXCHANGED)
def ordered_dictionary_by_sizes() -> World:
    def run(h: Any, x: Any) -> Any:
        key = x.shape[0] % 3
        if key in h.recent:
            h.recent.move_to_end(key)
        h.recent[key] = x.sum()
        if len(h.recent) > 2:
            h.recent.popitem(last=False)
        return sum(h.recent.values())

    return _living(run, recent=collections.OrderedDict())


@world(EXCHANGED)
def deque_rotated() -> World:
    def run(h: Any, x: Any) -> Any:
        h.recent.append(x.mean())
        h.recent.rotate(1)
        if len(h.recent) == 3:
            h.recent.popleft()
        return sum(h.recent)

    return _living(run, recent=collections.deque(maxlen=4))


class Stage(enum.Enum):
    """Where a program is."""

    FIRST = 1
    LATER = 2


@world(EXCHANGED)
def stage_in_a_dictionary_exchanged() -> World:
    def run(h: Any, x: Any) -> Any:
        notes = h.of.setdefault("x", {"stage": Stage.FIRST})
        if notes["stage"] is Stage.LATER:
            raise RuntimeError("it is over")
        notes["stage"] = Stage.LATER
        notes["found"] = x.sum()
        h.last = notes["stage"]
        h.of = {}
        return x + 1, h.last

    return _living(run, of={}, last=Stage.FIRST)


@world(EXCHANGED)
def stage_of_a_class_made_inside() -> World:
    def run(h: Any, x: Any) -> Any:
        class Mine(enum.Enum):
            ONE = 1

        h.count += 1
        h.same = Mine.ONE is h.last
        h.last = Mine.ONE
        return x * h.count

    return _living(run, count=0, last=None, same=False)
