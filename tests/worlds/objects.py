"""Objects that a program reads through Python's own protocols, and that change between calls (class
1 of issue 8).
"""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import attrs
import torch

from tests.worlds.world import World, on, put, values, world

OBJECTS = "1 objects"
ON = on(3)


class _Held:
    """Its state, in a name that no program spells."""

    def __init__(self, state: Any = 2) -> None:
        self.hidden = state


def _read_by(fn: Any, kind: type[_Held], before: Any = 2, after: Any = 3) -> World:
    held = kind(before)
    return World(
        functools.partial(_with, fn, held) if fn is None else fn(held),
        [ON, put(held, hidden=after), ON],
    )


def _with(fn: Any, held: Any, x: Any) -> Any:
    return fn(held, x)


@world(OBJECTS)
def read_through_call() -> World:
    class C(_Held):
        def __call__(self) -> Any:
            return self.hidden

    return _read_by(lambda c: lambda x: x * c(), C)


@world(OBJECTS)
def read_through_getitem() -> World:
    class C(_Held):
        def __getitem__(self, key: str) -> Any:
            return self.hidden

    return _read_by(lambda c: lambda x: x * c["k"], C)


@world(OBJECTS)
def read_through_len() -> World:
    class C(_Held):
        def __len__(self) -> int:
            return int(self.hidden)

    return _read_by(lambda c: lambda x: x * len(c), C)


@world(OBJECTS)
def read_through_iter() -> World:
    class C(_Held):
        def __iter__(self) -> Any:
            return iter([self.hidden, 1])

    return _read_by(lambda c: lambda x: x * sum(c), C)


@world(OBJECTS)
def read_through_unpacking() -> World:
    class C(_Held):
        def __iter__(self) -> Any:
            yield self.hidden
            yield 1

    def make(c: Any) -> Any:
        def fn(x: Any) -> Any:
            a, b = c
            return x * a + b

        return fn

    return _read_by(make, C)


@world(OBJECTS)
def read_through_bool() -> World:
    class C(_Held):
        def __bool__(self) -> bool:
            return bool(self.hidden)

    return _read_by(lambda c: lambda x: x * 2 if c else x * 3, C, True, False)


@world(OBJECTS)
def read_through_contains() -> World:
    class C(_Held):
        def __contains__(self, key: str) -> bool:
            return key in self.hidden

    return _read_by(lambda c: lambda x: x * 2 if "a" in c else x * 3, C, "a", "b")


@world(OBJECTS)
def read_through_float() -> World:
    class C(_Held):
        def __float__(self) -> float:
            return float(self.hidden)

    return _read_by(lambda c: lambda x: x * float(c), C)


@world(OBJECTS)
def read_through_index() -> World:
    class C(_Held):
        def __index__(self) -> int:
            return int(self.hidden)

    return _read_by(lambda c: lambda x: x[c], C, 0, 1)


@world(OBJECTS)
def read_through_int() -> World:
    class C(_Held):
        def __int__(self) -> int:
            return int(self.hidden)

    return _read_by(lambda c: lambda x: x * int(c), C)


@world(OBJECTS)
def read_through_getattr() -> World:
    class C(_Held):
        def __getattr__(self, name: str) -> Any:
            return self.__dict__["hidden"]

    return _read_by(lambda c: lambda x: x * c.k, C)


@world(OBJECTS)
def read_through_getattribute() -> World:
    class C(_Held):
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, "hidden" if name == "k" else name)

    return _read_by(lambda c: lambda x: x * c.k, C)


@world(OBJECTS)
def read_through_operator() -> World:
    class C(_Held):
        def __add__(self, other: int) -> Any:
            return self.hidden + other

    return _read_by(lambda c: lambda x: x * (c + 1), C)


@world(OBJECTS)
def read_through_reflected_operator() -> World:
    class C(_Held):
        def __rmul__(self, other: Any) -> Any:
            return other * self.hidden

    return _read_by(lambda c: lambda x: x + 2 * c, C)


@world(OBJECTS)
def read_through_matmul_with_a_tensor() -> World:
    class C(_Held):
        def __rmatmul__(self, other: Any) -> Any:
            return other * self.hidden

    return _read_by(lambda c: lambda x: x @ c, C)


@world(OBJECTS)
def read_through_comparison() -> World:
    class C(_Held):
        def __lt__(self, other: Any) -> bool:
            return bool(self.hidden < other)

    return _read_by(lambda c: lambda x: x * 2 if c < 3 else x * 3, C)


@world(OBJECTS)
def read_through_equality() -> World:
    class C(_Held):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return bool(self.hidden == other)

    return _read_by(lambda c: lambda x: x * 2 if c == 2 else x * 3, C)


@world(OBJECTS)
def read_through_hash() -> World:
    class C(_Held):
        def __hash__(self) -> int:
            return int(self.hidden)

    return _read_by(lambda c: lambda x: x * hash(c), C)


@world(OBJECTS)
def read_through_str() -> World:
    class C(_Held):
        def __str__(self) -> str:
            return str(self.hidden)

    return _read_by(lambda c: lambda x: x * len(str(c)), C, "ab", "abc")


@world(OBJECTS)
def read_through_format() -> World:
    class C(_Held):
        def __format__(self, spec: str) -> str:
            return str(self.hidden)

    return _read_by(lambda c: lambda x: getattr(torch, f"{c}")(x), C, "relu", "tanh")


@world(OBJECTS)
def read_through_context_manager() -> World:
    class C(_Held):
        def __enter__(self) -> Any:
            return self.hidden

        def __exit__(self, *_: Any) -> None:
            pass

    def make(c: Any) -> Any:
        def fn(x: Any) -> Any:
            with c as k:
                return x * k

        return fn

    return _read_by(make, C)


@world(OBJECTS)
def read_through_exit() -> World:
    class C(_Held):
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> bool:
            return bool(self.hidden)

    def make(c: Any) -> Any:
        def fn(x: Any) -> Any:
            with c:
                raise ValueError("swallowed or not")
            return x * 2

        return fn

    return _read_by(make, C, True, False)


@world(OBJECTS)
def read_through_missing() -> World:
    class D(dict):  # type: ignore[type-arg]
        hidden = 2

        def __missing__(self, key: str) -> Any:
            return self.hidden

    d = D()
    return World(lambda x: x * d["k"], [ON, put(d, hidden=3), ON])


@world(OBJECTS)
def read_through_descriptor() -> World:
    class Descriptor(_Held):
        def __get__(self, instance: Any, owner: Any) -> Any:
            return self.hidden

    descriptor = Descriptor(2)
    c = type("C", (), {"k": descriptor})()
    return World(lambda x: x * c.k, [ON, put(descriptor, hidden=3), ON])


@world(OBJECTS)
def read_through_property() -> World:
    class C(_Held):
        @property
        def k(self) -> Any:
            return self.hidden

    return _read_by(lambda c: lambda x: x * c.k, C)


@world(OBJECTS)
def property_reads_a_table() -> World:
    table = {"a": 2}

    class C:
        @property
        def k(self) -> int:
            return table["a"]

    c = C()
    return World(lambda x: x * c.k, [ON, lambda: table.update(a=3), ON])


@world(OBJECTS)
def cached_property_forgotten() -> World:
    class C(_Held):
        @functools.cached_property
        def k(self) -> Any:
            return self.hidden

    c = C(2)

    def change() -> None:
        c.hidden = 3
        del c.k

    return World(lambda x: x * c.k, [ON, change, ON])


@world(OBJECTS)
def read_through_torch_function() -> World:
    class C(_Held):
        @classmethod
        def __torch_function__(cls, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] * args[1].hidden

    return _read_by(lambda c: lambda x: torch.add(x, c), C)


@world(OBJECTS)
def slots() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = 2
    return World(lambda x: x * c.k, [ON, put(c, k=3), ON])


@world(OBJECTS)
def slotted_dataclass() -> World:
    @dataclass(slots=True)
    class C:
        k: int = 2

    c = C()
    return World(lambda x: x * c.k, [ON, put(c, k=3), ON])


@world(OBJECTS)
def slotted_attrs_class() -> World:
    @attrs.define
    class C:
        k: int = 2

    c = C()
    return World(lambda x: x * c.k, [ON, put(c, k=3), ON])


@world(OBJECTS)
def function_in_a_slot() -> World:
    @attrs.define
    class C:
        act: Any = torch.relu

    c = C()
    return World(lambda x: c.act(x), [ON, put(c, act=torch.tanh), ON])


@world(OBJECTS)
def tensor_in_a_slot_replaced() -> World:
    @attrs.define
    class C:
        w: torch.Tensor

    c = C(values(3))
    return World(lambda x: x * c.w, [ON, lambda: setattr(c, "w", values(3) + 1), ON])


@world(OBJECTS)
def list_in_a_slot() -> World:
    @attrs.define
    class C:
        ks: list[int]

    c = C([2])
    return World(lambda x: x * c.ks[0], [ON, lambda: c.ks.append(3) or c.ks.reverse(), ON])


@world(OBJECTS)
def simple_namespace_nested() -> World:
    cfg = types.SimpleNamespace(inner=types.SimpleNamespace(deep=types.SimpleNamespace(k=2)))
    return World(lambda x: x * cfg.inner.deep.k, [ON, put(cfg.inner.deep, k=3), ON])


@world(OBJECTS)
def object_in_a_tuple_in_a_dict() -> World:
    held = types.SimpleNamespace(k=2)
    table = {"a": (held,)}
    return World(lambda x: x * table["a"][0].k, [ON, put(held, k=3), ON])


@world(OBJECTS)
def object_as_a_dict_key() -> World:
    held = types.SimpleNamespace(k=2)
    key = type("Key", (), {})()
    key.k = 2
    table = {key: held}

    def fn(x: Any) -> Any:
        for each in table:
            x = x * each.k
        return x

    return World(fn, [ON, put(key, k=3), ON])


@world(OBJECTS)
def class_assigned_to_object() -> World:
    class A:
        def by(self, x: Any) -> Any:
            return x * 2

    class B:
        def by(self, x: Any) -> Any:
            return x * 3

    a = A()
    return World(lambda x: a.by(x), [ON, put(a, __class__=B), ON])


@world(OBJECTS)
def class_asked_by_isinstance() -> World:
    class A:
        pass

    class B:
        pass

    a = A()
    return World(lambda x: x * 2 if isinstance(a, A) else x * 3, [ON, put(a, __class__=B), ON])


@world(OBJECTS)
def class_attribute() -> World:
    class C:
        k = 2

    c = C()
    return World(lambda x: x * c.k, [ON, put(C, k=3), ON])


@world(OBJECTS)
def class_attribute_hidden_by_the_instance() -> World:
    class C:
        k = 2

    c = C()
    return World(lambda x: x * c.k, [ON, put(c, k=3), ON])


@world(OBJECTS)
def attribute_of_a_base_class_overridden() -> World:
    class Base:
        k = 2

    class C(Base):
        pass

    c = C()
    return World(lambda x: x * c.k, [ON, put(C, k=3), ON])


@world(OBJECTS)
def bases_assigned() -> World:
    class A:
        k = 2

    class B:
        k = 3

    class C(A):
        pass

    return World(lambda x: x * C.k, [ON, put(C, __bases__=(B,)), ON])


@world(OBJECTS)
def attribute_of_a_metaclass() -> World:
    class Meta(type):
        k = 2

    class C(metaclass=Meta):
        pass

    return World(lambda x: x * C.k, [ON, put(Meta, k=3), ON])


@world(OBJECTS)
def attribute_of_an_enum_member() -> World:
    class Kind(enum.Enum):
        A = 1

    Kind.A.k = 2
    return World(lambda x: x * Kind.A.k, [ON, lambda: setattr(Kind.A, "k", 3), ON])


@world(OBJECTS)
def int_subclass_with_an_attribute() -> World:
    class Number(int):
        pass

    n = Number(2)
    n.k = 2
    return World(lambda x: x * n.k, [ON, put(n, k=3), ON])


@world(OBJECTS)
def namedtuple_in_a_holder_replaced() -> World:
    pair = namedtuple("pair", "a b")
    held = types.SimpleNamespace(pair=pair(2, 3))
    return World(lambda x: x * held.pair.a, [ON, lambda: setattr(held, "pair", pair(3, 3)), ON])


@world(OBJECTS)
def weak_reference_dies() -> World:
    class C:
        k = 2

    owner = [C()]
    ref = weakref.ref(owner[0])

    def fn(x: Any) -> Any:
        alive = ref()
        return x * 3 if alive is None else x * alive.k

    return World(fn, [ON, owner.clear, ON])


@world(OBJECTS)
def weak_proxy() -> World:
    class C:
        k = 2

    c = C()
    proxy = weakref.proxy(c)
    return World(lambda x: x * proxy.k, [ON, put(c, k=3), ON])


@world(OBJECTS)
def attribute_through_vars() -> World:
    cfg = types.SimpleNamespace(**{"a-b": 2})
    return World(lambda x: x * vars(cfg)["a-b"], [ON, lambda: vars(cfg).update({"a-b": 3}), ON])


@world(OBJECTS)
def attribute_appears() -> World:
    cfg = types.SimpleNamespace()
    return World(lambda x: x * getattr(cfg, "k", 2), [ON, put(cfg, k=3), ON])


@world(OBJECTS)
def attribute_appears_for_hasattr() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    return World(lambda x: x * 2 if hasattr(c, "k") else x * 3, [ON, put(c, k=1), ON])


@world(OBJECTS)
def attribute_error_is_caught() -> World:
    class C:
        __slots__ = ("k",)

    c = C()

    def fn(x: Any) -> Any:
        try:
            return x * c.k
        except AttributeError:
            return x * 7

    return World(fn, [ON, put(c, k=1), ON])


@world(OBJECTS)
def attribute_by_the_order_of_dir() -> World:
    cfg = types.SimpleNamespace(b=2)

    def fn(x: Any) -> Any:
        first = next(each for each in dir(cfg) if not each.startswith("_"))
        return x * getattr(cfg, first)

    return World(fn, [ON, put(cfg, a=3), ON])


@world(OBJECTS)
def instances_counted_by_the_class() -> World:
    class C:
        made: list[Any] = []  # noqa: RUF012

        def __init__(self) -> None:
            type(self).made.append(1)

    return World(lambda x: x * (len(C.made) + 1), [ON, lambda: C() and None, ON])


@world(OBJECTS)
def subclasses_counted() -> World:
    class C:
        pass

    kept = []
    return World(
        lambda x: x * (len(C.__subclasses__()) + 1),
        [ON, lambda: kept.append(type("D", (C,), {})), ON],
        lambda: None,
    )


@world(OBJECTS)
def object_called_as_the_function() -> World:
    class C(_Held):
        def __call__(self, x: Any) -> Any:
            return x * self.hidden

    c = C(2)
    return World(c, [ON, put(c, hidden=3), ON])


@world(OBJECTS)
def bound_method_as_the_function() -> World:
    class C:
        __slots__ = ("k",)

        def by(self, x: Any) -> Any:
            return x * self.k

    c = C()
    c.k = 2
    return World(c.by, [ON, put(c, k=3), ON])
