"""Arguments that compare equal but are not alike (class 6 of issue 8)."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.worlds.world import Call, Named, World, put, values, world

ALIKE = "6 equal but not alike"


def _with(fn: Any, *others: Any, observe: Any = None) -> World:
    """A program of a tensor and one more argument, called with each of these in turn."""
    return World(fn, [Call(lambda other=other: (values(3), other)) for other in others], observe)


def _kind(x: Any, k: Any) -> Any:
    return x.double() * len(type(k).__name__)


@world(ALIKE)
def frozen_dataclass_of_int_and_float() -> World:
    @dataclass(frozen=True)
    class C:
        k: Any

    return _with(lambda x, c: x.int() * c.k, C(2), C(2.0), C(True), C(2))


@world(ALIKE)
def frozen_dataclass_with_a_field_not_compared() -> World:
    @dataclass(frozen=True)
    class C:
        a: int
        k: int = field(compare=False)

    return _with(lambda x, c: x * c.k, C(1, 2), C(1, 3))


@world(ALIKE)
def attrs_class_with_a_field_not_compared() -> World:
    import attrs

    @attrs.frozen
    class C:
        a: int
        k: int = attrs.field(eq=False)

    return _with(lambda x, c: x * c.k, C(1, 2), C(1, 3))


@world(ALIKE)
def object_equal_to_everything() -> World:
    class C:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    return _with(lambda x, c: x * c.k, C(2), C(3))


@world(ALIKE)
def object_without_equality() -> World:
    class C:
        def __init__(self, k: int) -> None:
            self.k = k

    return _with(lambda x, c: x * c.k, C(2), C(3), C(2))


@world(ALIKE)
def object_argument_changes() -> World:
    class C:
        k = 2

    c = C()
    call = Call(lambda: (values(3), c))
    return World(lambda x, c: x * c.k, [call, put(c, k=3), call])


@world(ALIKE)
def slotted_argument_changes() -> World:
    @dataclass(slots=True, unsafe_hash=True)
    class C:
        k: int = field(default=2, hash=False, compare=False)

    c = C()
    call = Call(lambda: (values(3), c))
    return World(lambda x, c: x * c.k, [call, put(c, k=3), call])


@world(ALIKE)
def function_argument_changes() -> World:
    k = [2]
    act = lambda x: x * k[0]  # noqa: E731
    call = Call(lambda: (values(3), act))
    return World(lambda x, act: act(x), [call, lambda: k.__setitem__(0, 3), call])


@world(ALIKE)
def functions_made_by_one_maker() -> World:
    def make(k: int) -> Any:
        return lambda x: x * k

    return _with(lambda x, act: act(x), make(2), make(3))


@world(ALIKE)
def partials_of_one_function() -> World:
    def by(k: int, x: Any) -> Any:
        return x * k

    return _with(lambda x, act: act(x), functools.partial(by, 2), functools.partial(by, 3))


@world(ALIKE)
def module_arguments() -> World:
    class By(nn.Module):
        def __init__(self, k: int) -> None:
            super().__init__()
            self.k = k

        def forward(self, x: Any) -> Any:
            return x * self.k

    return _with(lambda x, m: m(x), By(2), By(3))


@world(ALIKE)
def negative_zero() -> World:
    return _with(lambda x, k: torch.copysign(x, torch.tensor(k)), 0.0, -0.0, 0.0)


@world(ALIKE)
def negative_zero_in_a_list() -> World:
    return _with(lambda x, ks: torch.copysign(x, torch.tensor(ks[0])), [0.0], [-0.0])


@world(ALIKE)
def negative_zero_of_a_complex() -> World:
    return _with(
        lambda x, k: torch.copysign(x, torch.tensor(k.imag)), complex(1, 0.0), complex(1, -0.0)
    )


@world(ALIKE)
def not_a_number() -> World:
    return _with(lambda x, k: x * k, float("nan"), float("nan"), 1.0)


@world(ALIKE)
def frozenset_of_int_and_float() -> World:
    return _with(
        lambda x, ks: x.int() * next(iter(ks)), frozenset({1}), frozenset({1.0}), frozenset({True})
    )


@world(ALIKE)
def decimals_of_other_places() -> World:
    return _with(lambda x, k: x * len(str(k)), decimal.Decimal("1.0"), decimal.Decimal("1.00"))


@world(ALIKE)
def dict_keys_one_and_true() -> World:
    return _with(
        lambda x, d: x * 2 if next(iter(d)) is True else x * 3, {1: 5}, {True: 5}, {1.0: 5}
    )


@world(ALIKE)
def dict_in_another_order() -> World:
    return _with(lambda x, d: x * next(iter(d.values())), {"a": 2, "b": 3}, {"b": 3, "a": 2})


@world(ALIKE)
def keywords_in_another_order() -> World:
    def fn(x: Any, **ks: int) -> Any:
        return x * next(iter(ks.values()))

    return World(
        fn, [Call(lambda: (values(3), Named(a=2, b=3))), Call(lambda: (values(3), Named(b=3, a=2)))]
    )


@world(ALIKE)
def ranges_that_are_equal() -> World:
    return _with(lambda x, r: x * r.stop, range(0, 3, 2), range(0, 4, 2))


@world(ALIKE)
def slices() -> World:
    return _with(lambda x, s: x[s], slice(0, 2), slice(0, 2, None), slice(False, 2), slice(0, 3))


@world(ALIKE)
def one_and_true() -> World:
    return _with(lambda x, k: x * 2 if k is True else x * 3, 1, True, 1.0)


@world(ALIKE)
def int_and_float() -> World:
    return _with(lambda x, k: x.int() * k, 2, 2.0, 2)


@world(ALIKE)
def int_and_numpy_int() -> World:
    return _with(_kind, 2, np.int64(2), np.int32(2))


@world(ALIKE)
def numpy_floats() -> World:
    return _with(lambda x, k: x.double() * k.itemsize, np.float32(1), np.float64(1))


@world(ALIKE)
def numpy_array_argument() -> World:
    return _with(
        lambda x, a: x + torch.from_numpy(a), np.ones(3), np.zeros(3), np.ones(3, dtype=np.float32)
    )


@world(ALIKE)
def int_enum_and_int() -> World:
    kind = enum.IntEnum("kind", "A B")
    return _with(_kind, 2, kind.B, 2)


@world(ALIKE)
def string_enum_and_string() -> World:
    kind = enum.StrEnum("kind", {"A": "a"})
    return _with(_kind, "a", kind.A)


@world(ALIKE)
def int_subclass_with_an_attribute() -> World:
    class Number(int):
        pass

    a, b = Number(2), Number(2)
    a.k, b.k = 2, 3
    return _with(lambda x, n: x * n.k, a, b)


@world(ALIKE)
def string_subclass_with_an_attribute() -> World:
    class Text(str):
        __slots__ = ("k",)

    a, b = Text("t"), Text("t")
    a.k, b.k = 2, 3
    return _with(lambda x, t: x * t.k, a, b)


@world(ALIKE)
def tuple_and_list() -> World:
    return _with(_kind, (2, 3), [2, 3], torch.Size([2, 3]))


@world(ALIKE)
def namedtuples_of_two_classes() -> World:
    a, b = collections.namedtuple("a", "k l"), collections.namedtuple("b", "l k")
    return _with(lambda x, p: x * p.k, a(2, 3), b(2, 3))


@world(ALIKE)
def dict_and_ordered_dict() -> World:
    return _with(_kind, {"k": 2}, collections.OrderedDict(k=2), collections.Counter(k=2))


@world(ALIKE)
def default_dicts_with_other_factories() -> World:
    two, three = collections.defaultdict(lambda: 2), collections.defaultdict(lambda: 3)
    return _with(lambda x, d: x * d.get("k", d.default_factory()), two, three)


@world(ALIKE)
def deques_of_other_lengths() -> World:
    a, b = collections.deque([2], maxlen=2), collections.deque([2], maxlen=3)
    return _with(lambda x, d: x * d.maxlen, a, b)


@world(ALIKE)
def mapping_proxies() -> World:
    below = {"k": 2}
    call = Call(lambda: (values(3), types.MappingProxyType(below)))
    return World(lambda x, d: x * d["k"], [call, lambda: below.update(k=3), call])


@world(ALIKE)
def bytes_and_bytearray() -> World:
    return _with(lambda x, k: x * k[0] + len(type(k).__name__), b"a", bytearray(b"a"))


@world(ALIKE)
def fraction_and_int() -> World:
    return _with(lambda x, k: x * k.numerator + len(type(k).__name__), fractions.Fraction(2), 2)


@world(ALIKE)
def moments_in_two_zones() -> World:
    zone = datetime.timezone
    one = datetime.datetime(2020, 1, 1, 12, tzinfo=zone.utc)
    two = one.astimezone(zone(datetime.timedelta(hours=1)))
    return _with(lambda x, t: x * t.hour, one, two)


@world(ALIKE)
def paths() -> World:
    return _with(_kind, pathlib.PurePosixPath("a"), pathlib.PosixPath("a"))


@world(ALIKE)
def namespaces() -> World:
    return _with(lambda x, n: x * n.k, types.SimpleNamespace(k=2), types.SimpleNamespace(k=3))


@world(ALIKE)
def default_left_out_and_given() -> World:
    nothing = object()

    def fn(x: Any, k: Any = nothing) -> Any:
        return x * 2 if k is nothing else x * 3

    return World(
        fn,
        [Call(lambda: (values(3),)), Call(lambda: (values(3), None)), Call(lambda: (values(3),))],
    )


@world(ALIKE)
def position_and_keyword() -> World:
    def fn(x: Any, *args: Any, **kwargs: Any) -> Any:
        return x * (1 + len(args) + 10 * len(kwargs))

    return World(
        fn,
        [
            Call(lambda: (values(3), 2)),
            Call(lambda: (values(3), Named(k=2))),
            Call(lambda: (values(3), 2)),
        ],
    )


@world(ALIKE)
def parameter_and_tensor() -> World:
    def fn(x: Any, w: Any) -> Any:
        return x * 2 if isinstance(w, nn.Parameter) else x * 3

    plain = lambda: (values(3), values(3).requires_grad_())  # noqa: E731
    return World(fn, [Call(plain), Call(lambda: (values(3), nn.Parameter(values(3)))), Call(plain)])


@world(ALIKE)
def tensors_with_other_attributes() -> World:
    def tagged(k: int) -> Call:
        def make() -> tuple[Any, ...]:
            x = values(3)
            x.k = k  # type: ignore[attr-defined]
            return (x,)

        return Call(make)

    return World(lambda x: x * x.k, [tagged(2), tagged(3)])


@world(ALIKE)
def tensor_attribute_appears() -> World:
    def tagged() -> tuple[Any, ...]:
        x = values(3)
        x.k = 3  # type: ignore[attr-defined]
        return (x,)

    return World(lambda x: x * getattr(x, "k", 2), [Call(lambda: (values(3),)), Call(tagged)])


@world(ALIKE)
def leaf_and_not_leaf() -> World:
    def fn(x: Any) -> Any:
        return x * 2 if x.is_leaf else x * 3

    return World(
        fn,
        [
            Call(lambda: (values(3).requires_grad_(),)),
            Call(lambda: (values(3).requires_grad_() * 1,)),
        ],
    )


@world(ALIKE)
def tensor_and_number() -> World:
    return _with(lambda x, k: x * k, torch.tensor(2.0), 2.0, torch.tensor(2))


@world(ALIKE)
def tensor_without_dimensions_promotes_otherwise() -> World:
    return _with(
        lambda x, k: x + k,
        torch.tensor(2.0, dtype=torch.float64),
        torch.tensor([2.0], dtype=torch.float64),
        torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64),
    )


@world(ALIKE)
def tensors_in_a_set() -> World:
    return _with(
        lambda x, ws: x * sum(each.sum() for each in ws), {values(2)}, {values(2) + 1}, {values(3)}
    )


@world(ALIKE)
def the_same_list_twice() -> World:
    def fn(a: Any, b: Any) -> Any:
        return values(3) * (2 if a is b else 3)

    def same() -> tuple[Any, ...]:
        ks = [values(2)]
        return ks, ks

    return World(fn, [Call(lambda: ([values(2)], [values(2)])), Call(same)])


@world(ALIKE)
def the_same_object_twice() -> World:
    def fn(x: Any, a: Any, b: Any) -> Any:
        return x * (2 if a is b else 3)

    class C:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, C)

        def __hash__(self) -> int:
            return 1

    one, two = C(), C()
    return World(fn, [Call(lambda: (values(3), one, one)), Call(lambda: (values(3), one, two))])


@world(ALIKE)
def types_as_arguments() -> World:
    return _with(lambda x, k: x.to(torch.float64) * k(2.5), int, float, bool)


@world(ALIKE)
def classes_of_one_name() -> World:
    def make(value: int) -> Any:
        class C:
            k = value

        return C

    return _with(lambda x, c: x * c.k, make(2), make(3))
