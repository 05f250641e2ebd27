"""What Python's own functions, patterns and descriptors read of a program's objects, past every
look-up of its code.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import operator
import weakref
from types import SimpleNamespace
from typing import Any

import torch

from tests.worlds.world import Call, World, on, put, values, world

UNSEEN = "13 unseen reads"
ON = on(3)


class _A:
    def __init__(self, k: int = 2) -> None:
        self.k = k

    def by(self, x: Any, times: int = 1) -> Any:
        return x * self.k * times


def _changing(fn: Any, owner: Any, **attributes: Any) -> World:
    return World(fn, [ON, ON, on(4), put(owner, **attributes), ON, on(4), on(5)])


@world(UNSEEN)
def attribute_getter() -> World:
    a = _A()
    return _changing(lambda x: x * operator.attrgetter("k")(a), a, k=5)


@world(UNSEEN)
def attribute_getter_of_an_argument() -> World:
    read = operator.attrgetter("inner.k")
    calls = [Call(lambda k=k: (values(3), SimpleNamespace(inner=_A(k)))) for k in (2, 3, 2)]
    return World(lambda x, c: x * operator.attrgetter("inner.k")(c) + read(c), calls)


@world(UNSEEN)
def key_of_a_sort() -> World:
    a, b = _A(2), _A(3)
    return _changing(lambda x: x * sorted([a, b], key=operator.attrgetter("k"))[-1].k, a, k=5)


@world(UNSEEN)
def method_caller() -> World:
    a = _A()
    return _changing(lambda x: operator.methodcaller("by", x, times=3)(a), a, k=5)


@world(UNSEEN)
def method_caller_of_nothing() -> World:
    return World(lambda x: operator.methodcaller("no_such")(x), [ON, ON], messages=True)


@world(UNSEEN)
def partial_method() -> World:
    class B(_A):
        thrice = functools.partialmethod(_A.by, times=3)

    b = B()
    return _changing(lambda x: b.thrice(x), b, k=5)


@world(UNSEEN)
def keywords_of_a_partial_method() -> World:
    class B(_A):
        thrice = functools.partialmethod(_A.by, times=3)

    b = B()
    change = lambda: B.__dict__["thrice"].keywords.update(times=7)  # noqa: E731
    return World(lambda x: b.thrice(x), [ON, ON, change, ON, on(4)])


@world(UNSEEN)
def partial_class_method() -> World:
    class B:
        k = 2

        @classmethod
        def by(cls, times: int, x: Any) -> Any:
            return x * cls.k * times

        thrice = functools.partialmethod(by, 3)

    return _changing(lambda x: B().thrice(x), B, k=5)


@world(UNSEEN)
def method_by_the_class_of_its_argument() -> World:
    class B(_A):
        @functools.singledispatchmethod
        def of(self, x: Any) -> Any:
            return x

        @of.register(torch.Tensor)
        def _(self, x: Any) -> Any:
            return x * self.k

    b = B()
    return _changing(lambda x: b.of(x), b, k=5)


@world(UNSEEN)
def call_of_a_metaclass() -> World:
    world = SimpleNamespace(k=2)

    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            made = type.__call__(cls, *args)
            made.k *= world.k
            return made

    class B(_A, metaclass=Meta):
        pass

    return _changing(lambda x: x * B(3).k, world, k=5)


@world(UNSEEN)
def instance_check_of_a_metaclass() -> World:
    world = SimpleNamespace(k=2)

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return bool(world.k > 3)

    class B(metaclass=Meta):
        pass

    return _changing(lambda x: x * 2 if isinstance(world, B) else x * 3, world, k=5)


@world(UNSEEN)
def registered_with_an_abstract_class() -> World:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    a = _A()
    fn = lambda x: x * 2 if isinstance(a, Abstract) else x * 3  # noqa: E731
    return World(fn, [ON, ON, lambda: Abstract.register(_A), ON, on(4)])


@dataclasses.dataclass
class _D:
    k: int = 2
    inner: Any = None


@world(UNSEEN)
def replaced_dataclass() -> World:
    d = _D(2, 3)
    return _changing(lambda x: x * dataclasses.replace(d, k=1).inner, d, inner=5)


@world(UNSEEN)
def dataclass_as_a_dictionary() -> World:
    d = _D(2, [_D(4)])
    fn = lambda x: x * dataclasses.asdict(d)["inner"][0]["k"] + dataclasses.astuple(d)[0]  # noqa: E731
    return _changing(fn, d.inner[0], k=5)


@world(UNSEEN)
def class_pattern() -> World:
    a = _A()

    def fn(x: Any) -> Any:
        match a:
            case _A(k=2):
                return x
            case _A(k=k):
                return x * k

    return _changing(fn, a, k=5)


@world(UNSEEN)
def class_pattern_of_a_property() -> World:
    class B(_A):
        __match_args__ = ("twice",)

        @property
        def twice(self) -> int:
            return self.k * 2

    b = B()

    def fn(x: Any) -> Any:
        match b:
            case B(4):
                return x
            case B(twice):
                return x * twice

    return _changing(fn, b, k=5)


@world(UNSEEN)
def class_pattern_of_a_module() -> World:
    module = torch.nn.Linear(3, 3)

    def fn(x: Any) -> Any:
        match module:
            case torch.nn.Linear(training=True):
                return x
            case _:
                return x * 3

    return _changing(fn, module, training=False)


@world(UNSEEN)
def weak_set() -> World:
    a, known = _A(), weakref.WeakSet[Any]()
    return World(
        lambda x: x * 2 if a in known else x * 3, [ON, ON, lambda: known.add(a), ON, on(4)]
    )


@world(UNSEEN)
def finaliser() -> World:
    a = _A()
    end = weakref.finalize(a, len, ())
    return World(
        lambda x: x * 2 if end.alive else x * 3, [ON, ON, lambda: end() and None, ON, on(4)]
    )


@world(UNSEEN)
def weak_reference_to_a_tensor() -> World:
    box = SimpleNamespace(w=torch.ones(1))
    found = weakref.ref(box.w)

    def fn(x: Any) -> Any:
        w = found()
        return x * 3 if w is None else x + w

    return _changing(fn, box, w=None)


@world(UNSEEN)
def weak_dictionary_of_tensors() -> World:
    box = SimpleNamespace(w=torch.ones(1))
    found = weakref.WeakValueDictionary(w=box.w)
    return _changing(lambda x: x + found["w"] if "w" in found else x * 3, box, w=None)


@world(UNSEEN)
def weak_reference_to_a_parameter() -> World:
    box = SimpleNamespace(w=torch.nn.Parameter(torch.ones(1)))
    found = weakref.ref(box.w)

    def fn(x: Any) -> Any:
        w = found()
        return x * 3 if w is None else x + w.detach()

    return _changing(fn, box, w=None)
