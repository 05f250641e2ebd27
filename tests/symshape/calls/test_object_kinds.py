"""Dataclasses, attrs classes, namespaces and objects of the user's as arguments: flattened where
that is sound.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls import object_kinds
from symshape.calls.object_kinds import is_record, may_be_record
from symshape.errors import UnsupportedError
from symshape.frontends.misses import Misses

Tensor = torch.Tensor


@dataclasses.dataclass
class Batch:
    """As programs pass them around."""

    x: Tensor
    mask: Tensor | None = None
    times: int = 2

    @property
    def length(self) -> int:
        return self.x.size(0)

    def scaled(self) -> Tensor:
        return self.x * self.times


@dataclasses.dataclass
class Longer(Batch):
    """A class below it."""

    def scaled(self) -> Tensor:
        return self.x * self.times + 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    """It cannot be written to."""

    x: Tensor
    scale: float = 0.5


@dataclasses.dataclass(slots=True)
class Slotted:
    """Without a dictionary."""

    x: Tensor
    times: int = 3


@dataclasses.dataclass
class Settings:
    """No tensor, and no hash."""

    heads: int = 2
    kind: str = "mean"


@dataclasses.dataclass(frozen=True)
class Fixed:
    """No tensor, but a hash."""

    heads: int = 2


@attrs.define
class Defined:
    """Of attrs, with slots."""

    x: Tensor
    times: int = 2


@attrs.frozen(slots=False)
class FrozenDefined:
    """Of attrs."""

    x: Tensor


class Watched:
    """Not nothing but its attributes."""

    def __init__(self, x: Tensor) -> None:
        object.__setattr__(self, "x", x)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError


@dataclasses.dataclass
class WatchedData:
    """Nor is this."""

    x: Tensor

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value


@dataclasses.dataclass
class Registered:
    """A pytree of torch's."""

    x: Tensor


pytree.register_dataclass(Registered)
X = torch.ones(2)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (Batch(X), True),
        (Frozen(X), True),
        (Slotted(X), True),
        (Defined(X), True),
        (FrozenDefined(X), True),
        (types.SimpleNamespace(x=X), True),
        (types.SimpleNamespace(n=1), True),
        (Settings(), True),
        (Fixed(), False),
        (Watched(X), False),
        (WatchedData(X), False),
        (Registered(X), False),
        (collections.namedtuple("Pair", "x")(X), False),
        (torch.nn.Linear(2, 2), False),
        ({"x": X}, False),
        (X, False),
        (torch.optim.SGD([torch.nn.Parameter(X)]), False),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, bool) else "",
)
def test_what_is_a_record(value: Any, is_one: bool) -> None:
    assert is_record(value) is is_one


def assert_same(one: Any, other: Any) -> None:
    """Equal, class by class and attribute by attribute."""
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_same(list(one.values()), list(other.values()))
    elif may_be_record(type(one)) or hasattr(one, "__dict__"):
        names = [*getattr(type(one), "__slots__", ()), *getattr(one, "__dict__", ())]
        assert names == [*getattr(type(other), "__slots__", ()), *getattr(other, "__dict__", ())]
        assert_same(
            [getattr(one, each) for each in names if each != "__weakref__"],
            [getattr(other, each) for each in names if each != "__weakref__"],
        )
    else:
        assert one == other


def _written(b: Batch) -> Tensor:
    b.x = b.x * 2
    b.times += b.length
    b.x.add_(1)
    return b.x.sum() * b.times


def _in_place(b: Batch) -> None:
    b.x.mul_(2)


def _new_attribute(b: Any) -> Any:
    b.seen = b.x.mean()
    return b.x


def _branches(b: Batch) -> Tensor:
    return b.x if b.mask is None else b.x * b.mask


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "a method and a property": (
        lambda b: b.scaled() + b.length,
        lambda n: (Batch(torch.randn(n)),),
    ),
    "a class below": (
        lambda b: b.scaled(),
        lambda n: (Longer(torch.randn(n)) if n % 2 else Batch(torch.randn(n)),),
    ),
    "written": (_written, lambda n: (Batch(torch.randn(n)),)),
    "in place": (_in_place, lambda n: (Batch(torch.randn(n)),)),
    "a new attribute": (_new_attribute, lambda n: (types.SimpleNamespace(x=torch.randn(n)),)),
    "what may be there": (
        _branches,
        lambda n: (Batch(torch.randn(n), torch.ones(n) if n % 2 else None),),
    ),
    "frozen": (lambda b: b.x * b.scale, lambda n: (Frozen(torch.randn(n)),)),
    "slots": (lambda b: b.x * b.times, lambda n: (Slotted(torch.randn(n), n),)),
    "slots written": (
        lambda b: setattr(b, "x", b.x + b.times),
        lambda n: (Slotted(torch.randn(n), n),),
    ),
    "attrs": (lambda b: b.x * b.times, lambda n: (Defined(torch.randn(n), n),)),
    "attrs, frozen": (lambda b: b.x * 2, lambda n: (FrozenDefined(torch.randn(n)),)),
    "nested": (
        lambda s, k: s.batch.x * s.conf.heads + s.extra["bias"] + k[0].x,
        lambda n: (
            types.SimpleNamespace(
                batch=Batch(torch.randn(n)), conf=Settings(), extra={"bias": torch.randn(n)}
            ),
            [Frozen(torch.randn(n))],
        ),
    ),
    "returned": (lambda b: b, lambda n: (Batch(torch.randn(n)),)),
    "made anew": (lambda b: Batch(b.x * 2, b.x, b.length), lambda n: (Batch(torch.randn(n)),)),
    "replaced": (lambda b: dataclasses.replace(b, x=b.x + 1), lambda n: (Batch(torch.randn(n)),)),
    "made of tensors": (
        lambda x: {"a": Frozen(x * 2), "b": Defined(x, 3)},
        lambda n: (torch.randn(n),),
    ),
    "one twice": (lambda a, b: (a is b, a.x + b.x), lambda n: (b := Batch(torch.randn(n)), b)),
    "two": (
        lambda a, b: (a is b, a.x + b.x),
        lambda n: (Batch(torch.randn(n)), Batch(torch.randn(n))),
    ),
    "settings": (
        lambda x, s: x.view(s.heads, -1).sum(0) if s.kind == "mean" else x,
        lambda n: (torch.randn(2 * n), Settings(1 + n % 2, "mean" if n < 6 else "sum")),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str) -> None:
    fn, make = PROGRAMS[name]
    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 4, 5, 8, 7, 6):
        torch.manual_seed(n)
        theirs = make(n)
        torch.manual_seed(n)
        mine = make(n)
        expected, found = fn(*theirs), compiled(*mine)
        assert_same(found, expected)
        assert_same(mine, theirs)
    assert compiled.stats().traces <= 4


def test_a_returned_argument_is_the_callers_own() -> None:
    compiled = symshape.compile(lambda b: (b, Batch(b.x)), fullgraph=True)
    for n in (2, 3):
        batch = Batch(torch.ones(n))
        first, second = compiled(batch)
        assert first is batch
        assert second is not batch


class Point:
    """A class of the user's, without anything special."""

    def __init__(self, x: Tensor, times: int) -> None:
        self.x, self.times = x, times


class Trainer:
    """Its object is known by which it is: it holds more than data."""

    def __init__(self) -> None:
        self.weight, self.module = torch.ones(3), torch.nn.Linear(3, 3)

    def step(self, x: Tensor) -> Tensor:
        return self.module(x) + self.weight


def test_objects_that_come_anew_are_taken_apart() -> None:
    def fn(p: Any) -> Any:
        return p.x * p.times

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 4, 5, 6, 7, 8):
        assert torch.equal(compiled(Point(torch.ones(n), n)), n * torch.ones(n))
    assert compiled.stats().traces <= 3
    assert may_be_record(Point)


def test_objects_with_more_than_data_stay_whole() -> None:
    compiled = symshape.compile(Trainer.step)
    for _ in range(3):
        trainer, x = Trainer(), torch.ones(2, 3)
        for _ in range(2):
            assert torch.equal(compiled(trainer, x), trainer.step(x))
    assert not may_be_record(Trainer)


KEPT = Batch(torch.ones(3))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda b: b.x if b is KEPT else b.x + 1,
            "reads a Batch outside its arguments that may be the same object as one of them",
        ),
        (lambda b: b.x * (id(b) == id(KEPT)), r"calls id\(\) on an object among its arguments"),
        (lambda b: (KEPT, b.x), "Batch"),
    ],
)
def test_what_an_object_of_the_trace_would_get_wrong(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        symshape.compile(fn, fullgraph=True)(Batch(torch.ones(3)))
    compiled = symshape.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in (Batch(torch.ones(3)), KEPT):
            assert_same(compiled(batch), fn(batch))


def test_an_object_outside_is_returned_itself() -> None:
    compiled = symshape.compile(lambda x: (KEPT, x + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (2, 3):
            assert compiled(torch.ones(n))[0] is KEPT


def test_an_object_is_not_kept() -> None:
    held = types.SimpleNamespace(last=None)

    def keep(b: Batch) -> Tensor:
        held.last = b
        return b.x + 1

    compiled = symshape.compile(keep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (2, 3):
            compiled(batch := Batch(torch.ones(n)))
            assert held.last is batch


def test_a_second_object_is_another_one_whatever_its_class_says_of_equality() -> None:
    """The first one may live on (in a cycle) when the second comes, and answer that it equals
    anything.
    """

    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.x = x
            self.me = [x]

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    compiled: Any = symshape.compile(lambda pair: pair.x * 2, fullgraph=True)
    alive = []
    for n in (3, 4, 5, 6):
        alive.append(Pair(torch.ones(n)))
        assert torch.equal(compiled(alive[-1]), torch.full((n,), 2.0))
    assert may_be_record(Pair)
    assert compiled.stats().traces <= 3


def test_a_class_of_which_a_second_object_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading a call and tracing it another thread may have brought one: the call is read
    again.
    """

    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    compiled: Any = symshape.compile(lambda pair: pair.x * 2, fullgraph=True)
    trace, others = Misses._trace, [Pair(torch.ones(7))]

    def meanwhile(self: Any, *args: Any, **kwargs: Any) -> Any:
        while others:
            object_kinds.note_argument(others.pop())
        return trace(self, *args, **kwargs)

    monkeypatch.setattr(Misses, "_trace", meanwhile)
    for n in (3, 4, 5):
        assert torch.equal(compiled(Pair(torch.ones(n))), torch.full((n,), 2.0))


class Table(collections.defaultdict[str, Any]):
    """Attributes beside its items."""


class Line(collections.deque[Any]):
    """So too."""


class Call(functools.partial[Any]):
    """Attributes beside what it calls."""


@pytest.mark.parametrize(
    "make", [lambda by: Table(int, {"by": by}), lambda by: Line([by]), lambda by: Call(abs, by)]
)
def test_what_is_of_c_below_holds_more_than_attributes(make: Callable[[int], Any]) -> None:
    """Such classes lie on the heap as Python's own do, some from 3.12 on."""

    def fn(held: Any, x: Tensor) -> Tensor:
        by = (
            held["by"] if isinstance(held, Table) else held[0] if isinstance(held, Line) else held()
        )
        return x * by + held.plus

    compiled: Any = symshape.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", symshape.FallbackWarning)
        for by in (2, 2, 3, 5, 3):
            held, x = make(by), torch.ones(4)
            held.plus = torch.full((4,), 0.5)
            assert not may_be_record(type(held))
            assert torch.equal(compiled(held, x), fn(held, x))
