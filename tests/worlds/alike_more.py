"""Arguments that are equal but not alike, further members of class 6 of issue 8."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import re
import types
import uuid
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import attrs
import numpy as np
import torch
from torch import nn

from tests.worlds.alike_arguments import ALIKE, _kind, _with
from tests.worlds.world import Call, Named, World, item, put, values, world


@dataclass(frozen=True)
class _Inner:
    k: Any
    noted: Any = field(default=0, compare=False)


@dataclass(frozen=True)
class _Outer:
    inner: Any
    name: str = "a"


@world(ALIKE)
def dataclass_within_a_dataclass() -> World:
    return _with(
        lambda x, c: x.int() * c.inner.k + c.inner.noted,
        *(_Outer(_Inner(2)), _Outer(_Inner(2.0)), _Outer(_Inner(2, 1)), _Outer(_Inner(2))),
    )


@world(ALIKE)
def dataclass_of_a_tuple() -> World:
    return _with(
        lambda x, c: x.int() * c.k[0],
        _Inner((2, 3)),
        _Inner((2.0, 3)),
        _Inner((True, 3)),
        _Inner((2, 3)),
    )


@world(ALIKE)
def dataclass_of_a_tensor() -> World:
    w = values(3)
    return _with(lambda x, c: x * c.k, _Inner(w), _Inner(w + 1), _Inner(w), _Inner(w.double()))


@world(ALIKE)
def tensor_of_a_dataclass_is_written() -> World:
    w = values(3)
    call = Call(lambda: (values(3), _Inner(w)))
    return World(lambda x, c: x * c.k, [call, lambda: w.add_(1), call])


@world(ALIKE)
def dataclass_of_a_list_not_compared() -> World:
    return _with(lambda x, c: x * c.noted[0], _Inner(1, [2]), _Inner(1, [3]), _Inner(1, [2]))


@world(ALIKE)
def list_of_a_dataclass_changes() -> World:
    c = _Inner(1, [2])
    call = Call(lambda: (values(3), c))
    return World(lambda x, c: x * c.noted[0], [call, lambda: c.noted.__setitem__(0, 3), call])


@world(ALIKE)
def dataclass_with_more_attributes() -> World:
    a, b = _Inner(1), _Inner(1)
    object.__setattr__(a, "more", 2)
    object.__setattr__(b, "more", 3)
    return _with(lambda x, c: x * c.more, a, b, a)


@world(ALIKE)
def dataclass_gains_an_attribute() -> World:
    c = _Inner(1)
    call = Call(lambda: (values(3), c))
    return World(
        lambda x, c: x * getattr(c, "more", 2),
        [call, lambda: object.__setattr__(c, "more", 3), call],
    )


@world(ALIKE)
def dataclasses_of_two_classes() -> World:
    @dataclass(frozen=True)
    class A:
        k: int

        def by(self, x: Any) -> Any:
            return x * self.k

    @dataclass(frozen=True)
    class B(A):
        def by(self, x: Any) -> Any:
            return x + self.k

    return _with(lambda x, c: c.by(x), A(2), B(2), A(2))


@world(ALIKE)
def dataclass_with_a_cached_property() -> World:
    @dataclass(frozen=True)
    class C:
        k: int

        @functools.cached_property
        def twice(self) -> int:
            return self.k * 2

    return _with(lambda x, c: x * c.twice, C(2), C(3), C(2))


@world(ALIKE)
def dataclass_with_initial_only() -> World:
    @dataclass(frozen=True)
    class C:
        k: int
        start: InitVar[int] = 0

        def __post_init__(self, start: int) -> None:
            object.__setattr__(self, "started", start)

    return _with(lambda x, c: x * c.started, C(1, 2), C(1, 3), C(1, 2))


@world(ALIKE)
def dataclass_is_the_default() -> World:
    default = _Inner(2)
    return _with(lambda x, c: x * (2 if c is default else 3), _Inner(2), default, _Inner(2))


@world(ALIKE)
def equal_dataclass_in_a_dict() -> World:
    known = {_Inner(2): 5}
    return _with(lambda x, c: x * known.get(c, 3), _Inner(2), _Inner(2.0), _Inner(3), _Inner(2, 1))


@world(ALIKE)
def slotted_attrs_class() -> World:
    @attrs.frozen
    class C:
        k: Any
        noted: Any = attrs.field(default=0, eq=False)

    return _with(lambda x, c: x.int() * c.k + c.noted, C(2), C(2.0), C(2, 1), C(2))


@world(ALIKE)
def attrs_class_compared_by_a_key() -> World:
    @attrs.frozen
    class C:
        name: str = attrs.field(eq=str.lower)

    return _with(lambda x, c: x * (2 if c.name == "A" else 3), C("A"), C("a"), C("A"))


@world(ALIKE)
def attrs_class_changes() -> World:
    @attrs.define(eq=False)
    class C:
        k: int

    c = C(2)
    call = Call(lambda: (values(3), c))
    return World(lambda x, c: x * c.k, [call, put(c, k=3), call])


@world(ALIKE)
def hashed_by_one_field() -> World:
    class C:
        def __init__(self, name: str, k: int) -> None:
            self.name, self.k = name, k

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, C) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

    return _with(lambda x, c: x * c.k, C("a", 2), C("a", 3), C("a", 2))


@world(ALIKE)
def equality_that_raises() -> World:
    class C:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: Any) -> bool:
            raise RuntimeError("compared")

        def __hash__(self) -> int:
            return 1

    return _with(lambda x, c: x * c.k, C(2), C(3), C(2))


@world(ALIKE)
def equality_that_answers_a_tensor() -> World:
    class C:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: Any) -> Any:
            return torch.ones(2)

        def __hash__(self) -> int:
            return 1

    return _with(lambda x, c: x * c.k, C(2), C(3), C(2))


@world(ALIKE)
def nested_containers_of_alike_constants() -> World:
    return _with(
        lambda x, c: x.int() * c["a"][0][1],
        *(
            {"a": [(1, 2)]},
            {"a": [(1, 2.0)]},
            {"a": [[1, 2]]},
            {"a": ((1, 2),)},
            {"a": [(1, True)]},
        ),
    )


@world(ALIKE)
def dict_keys_of_other_classes() -> World:
    return _with(
        lambda x, d: x * len(type(next(iter(d))).__name__),
        {1: 5},
        {True: 5},
        {1.0: 5},
        {fractions.Fraction(1): 5},
        {1: 5},
    )


@world(ALIKE)
def dict_keys_zero_and_minus_zero() -> World:
    return _with(
        lambda x, d: torch.copysign(x, torch.tensor(next(iter(d)))), {0.0: 5}, {-0.0: 5}, {0.0: 5}
    )


@world(ALIKE)
def dict_keys_of_dataclasses() -> World:
    return _with(
        lambda x, d: x.int() * next(iter(d)).k, {_Inner(2): 5}, {_Inner(2.0): 5}, {_Inner(2, 3): 5}
    )


@world(ALIKE)
def dict_in_another_order_nested() -> World:
    return _with(
        lambda x, d: x * next(iter(d[0].values())), [{1: 2, 2: 3}], [{2: 3, 1: 2}], [{1: 2, 2: 3}]
    )


@world(ALIKE)
def ordered_dict_in_another_order() -> World:
    ordered = collections.OrderedDict
    return _with(lambda x, d: x * next(iter(d.values())), ordered(a=2, b=3), ordered(b=3, a=2))


@world(ALIKE)
def empty_containers() -> World:
    return _with(
        lambda x, c: x * len(type(c).__name__),
        (),
        [],
        {},
        collections.OrderedDict(),
        collections.deque(),
        None,
    )


@world(ALIKE)
def frozensets_in_another_order() -> World:
    a, b = frozenset([8, 16, 0]), frozenset([16, 8, 0])
    return _with(lambda x, c: x * (1 + next(iter(c))), a, b, frozenset([0, 8, 16]))


@world(ALIKE)
def frozensets_nested() -> World:
    return _with(
        lambda x, c: x.int() * next(iter(next(iter(c)))),
        frozenset([frozenset([1])]),
        frozenset([frozenset([1.0])]),
    )


@world(ALIKE)
def ranges_of_the_same_numbers() -> World:
    return _with(
        lambda x, r: x * (r.step + r.stop),
        range(0),
        range(2, 1),
        range(0, 1, 5),
        range(1),
        range(1),
    )


@world(ALIKE)
def slices_with_other_numbers() -> World:
    return _with(
        lambda x, s: x.int() * s.stop, slice(0, 2), slice(0, 2.0), slice(0, True), slice(None, 2)
    )


@world(ALIKE)
def complex_zeros() -> World:
    return _with(
        lambda x, k: (
            torch.copysign(x, torch.tensor(k.real)) + torch.copysign(x, torch.tensor(k.imag))
        ),
        *(0j, -0j, complex(-0.0, 0.0), complex(0.0, -0.0)),
    )


@world(ALIKE)
def signed_nans() -> World:
    return _with(
        lambda x, k: torch.copysign(x, torch.tensor(k)), float("nan"), -float("nan"), float("nan")
    )


@world(ALIKE)
def infinities() -> World:
    return _with(lambda x, k: x * k, float("inf"), -float("inf"), 1e308, float("inf"))


@world(ALIKE)
def decimals_special() -> World:
    kind = decimal.Decimal
    return _with(
        lambda x, k: x * len(str(k)),
        kind("NaN"),
        kind("sNaN1"),
        kind("-0"),
        kind("0"),
        kind("0.0"),
        kind("Inf"),
    )


@world(ALIKE)
def numpy_scalars() -> World:
    return _with(
        lambda x, k: x.double() * len(type(k).__name__) + int(k),
        *(np.int64(1), np.int32(1), np.uint8(1), np.bool_(True), np.float64(1), np.float16(1), 1),
    )


@world(ALIKE)
def numpy_zeros() -> World:
    return _with(
        lambda x, k: torch.copysign(x, torch.tensor(float(k))),
        np.float64(0.0),
        np.float64(-0.0),
        np.float32(-0.0),
    )


@world(ALIKE)
def numpy_moments() -> World:
    return _with(
        lambda x, k: x * len(str(k)), np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00")
    )


@world(ALIKE)
def numpy_dtypes() -> World:
    return _with(
        lambda x, k: x * k.itemsize,
        np.dtype("int32"),
        np.dtype("int64"),
        np.dtype([("a", "int32")]),
    )


@world(ALIKE)
def moments_folded() -> World:
    day = datetime.datetime(2020, 1, 1)
    return _with(lambda x, t: x * (1 + t.fold), day, day.replace(fold=1), day)


@world(ALIKE)
def days_and_moments() -> World:
    return _with(
        _kind,
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1),
        datetime.time(1),
        datetime.timedelta(1),
    )


@world(ALIKE)
def zones_of_other_names() -> World:
    hour = datetime.timedelta(hours=1)
    return _with(
        lambda x, z: x * len(str(z)), datetime.timezone(hour), datetime.timezone(hour, "here")
    )


@world(ALIKE)
def identifiers() -> World:
    number = uuid.UUID(int=7)
    return _with(
        lambda x, u: x * (u.is_safe.value or 2),
        number,
        uuid.UUID(int=7, is_safe=uuid.SafeUUID.unsafe),
        number,
    )


@world(ALIKE)
def patterns() -> World:
    return _with(
        lambda x, p: x * len(p.findall("aA")),
        re.compile("a"),
        re.compile("a", re.IGNORECASE),
        re.compile("a"),
    )


@world(ALIKE)
def paths_of_other_kinds() -> World:
    return _with(
        _kind,
        pathlib.PurePosixPath("a"),
        pathlib.PureWindowsPath("a"),
        pathlib.PureWindowsPath("A"),
        "a",
    )


@world(ALIKE)
def windows_paths_in_other_letters() -> World:
    return _with(
        lambda x, p: x * (2 if str(p) == "a" else 3),
        pathlib.PureWindowsPath("a"),
        pathlib.PureWindowsPath("A"),
    )


@world(ALIKE)
def enum_members_of_two_classes() -> World:
    a, b = enum.IntEnum("a", "K L"), enum.IntEnum("bb", "K L")
    return _with(_kind, a.K, b.K, 1, a.L, a.K)


@world(ALIKE)
def enum_flags() -> World:
    kind = enum.IntFlag("kind", "A B")
    return _with(lambda x, f: x * (1 + len(f)), kind.A, kind.A | kind.B, kind.A & kind.B, kind.A)


@world(ALIKE)
def enum_member_gains_an_attribute() -> World:
    kind = enum.Enum("kind", "A B")
    kind.A.k = 2
    call = Call(lambda: (values(3), kind.A))
    return World(lambda x, e: x * e.k, [call, put(kind.A, k=3), call])


@world(ALIKE)
def strings_of_a_subclass() -> World:
    class Text(str):
        def __len__(self) -> int:
            return 7

    return _with(lambda x, t: x * len(t), "a", Text("a"), "a")


@world(ALIKE)
def bools_of_numpy() -> World:
    return _with(lambda x, k: x * 2 if k is True else x * 3, True, np.bool_(True), 1, True)


@world(ALIKE)
def list_of_a_subclass() -> World:
    class List(list):  # type: ignore[type-arg]
        k = 2

    return _with(lambda x, c: x * getattr(c, "k", 3), [1], List([1]), [1])


@world(ALIKE)
def tuple_of_a_subclass() -> World:
    class Pair(NamedTuple):
        a: Any
        b: Any

    class More(Pair):
        pass

    return _with(lambda x, c: x * len(type(c).__name__), (1, 2), Pair(1, 2), More(1, 2))


@world(ALIKE)
def arrays_of_numbers() -> World:
    return _with(
        lambda x, a: x * a[0] + len(a.typecode),
        array.array("i", [2]),
        array.array("d", [2.0]),
        array.array("i", [3]),
    )


@world(ALIKE)
def partials_with_equal_arguments() -> World:
    return _with(
        lambda x, f: f(x),
        functools.partial(torch.add, 2),
        functools.partial(torch.add, 2.0),
        functools.partial(torch.mul, 2),
    )


@world(ALIKE)
def getters() -> World:
    return _with(
        lambda x, f: x * f([2, 3]),
        operator.itemgetter(0),
        operator.itemgetter(1),
        operator.itemgetter(0),
    )


@world(ALIKE)
def bound_methods() -> World:
    class C:
        def __init__(self, k: int) -> None:
            self.k = k

        def by(self, x: Any) -> Any:
            return x * self.k

        def __eq__(self, other: object) -> bool:
            return isinstance(other, C)

        def __hash__(self) -> int:
            return 1

    return _with(lambda x, f: f(x), C(2).by, C(3).by)


@world(ALIKE)
def bound_methods_of_builtins() -> World:
    return _with(lambda x, f: x * f(0), [2].__getitem__, [3].__getitem__, (2,).__getitem__)


@world(ALIKE)
def aliases_of_types() -> World:
    return _with(
        lambda x, k: x * len(str(k)), list[int], list[bool], tuple[int], int | None, None | int
    )


@world(ALIKE)
def devices_and_texts() -> World:
    return _with(_kind, torch.device("cpu"), torch.device("cpu:0"), torch.device("cpu", 0), "cpu")


@world(ALIKE)
def device_indices() -> World:
    return _with(
        lambda x, d: x * (2 if d.index is None else 3),
        torch.device("cpu"),
        torch.device("cpu:0"),
        torch.device("cpu"),
    )


@world(ALIKE)
def formats_of_memory() -> World:
    return _with(
        lambda x, f: x.reshape(1, 3, 1, 1).to(memory_format=f),
        torch.contiguous_format,
        torch.channels_last,
        torch.preserve_format,
    )


@world(ALIKE)
def generators() -> World:
    def call(seed: int) -> Call:
        return Call(lambda: (values(3), torch.Generator().manual_seed(seed)))

    return World(lambda x, g: x + torch.rand(3, generator=g), [call(1), call(2), call(1)])


@world(ALIKE)
def generator_goes_on() -> World:
    g = torch.Generator().manual_seed(1)
    call = Call(lambda: (values(3), g))
    return World(lambda x, g: x + torch.rand(3, generator=g), [call, call, call])


@world(ALIKE)
def mapping_proxies_of_equal_dicts() -> World:
    return _with(
        lambda x, d: x * d["k"], types.MappingProxyType({"k": 2}), types.MappingProxyType({"k": 3})
    )


@world(ALIKE)
def modules_of_one_class() -> World:
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    return World(
        lambda m, x: m(x),
        [
            Call(lambda: (a, values(3))),
            Call(lambda: (b, values(3))),
            lambda: nn.init.zeros_(a.weight),
            Call(lambda: (a, values(3))),
        ],
    )


# -- one object in two places


@world(ALIKE)
def one_list_twice_is_written() -> World:
    def fn(a: Any, b: Any) -> Any:
        a[0] = a[0] + 1
        return b[0] * 2

    def same() -> tuple[Any, ...]:
        ks = [values(2)]
        return ks, ks

    return World(fn, [Call(lambda: ([values(2)], [values(2)])), Call(same)])


@world(ALIKE)
def one_list_in_two_lists() -> World:
    def fn(ks: Any) -> Any:
        return ks[0][0] * (2 if ks[0] is ks[1] else 3)

    def same() -> tuple[Any, ...]:
        inner = [values(2)]
        return ([inner, inner],)

    apart = Call(lambda: ([[values(2)], [values(2)]],))
    return World(fn, [apart, Call(same), apart])


@world(ALIKE)
def one_list_as_position_and_keyword() -> World:
    def fn(a: Any, b: Any = None) -> Any:
        return a[0] * (2 if a is b else 3)

    def same() -> tuple[Any, ...]:
        ks = [values(2)]
        return ks, Named(b=ks)

    return World(fn, [Call(lambda: ([values(2)], Named(b=[values(2)]))), Call(same)])


@world(ALIKE)
def one_dict_twice() -> World:
    def fn(a: Any, b: Any) -> Any:
        return a["k"] * (2 if a is b else 3)

    def same() -> tuple[Any, ...]:
        d = {"k": values(2)}
        return d, d

    return World(fn, [Call(same), Call(lambda: ({"k": values(2)}, {"k": values(2)})), Call(same)])


@world(ALIKE)
def one_tensor_in_two_lists() -> World:
    def same() -> tuple[Any, ...]:
        x = values(2)
        return [x], [x]

    def fn(a: Any, b: Any) -> Any:
        a[0].add_(1)
        return b[0] * (2 if a[0] is b[0] else 3)

    return World(fn, [Call(lambda: ([values(2)], [values(2)])), Call(same)])


@world(ALIKE)
def one_dataclass_twice() -> World:
    def fn(x: Any, a: Any, b: Any) -> Any:
        return x * (2 if a is b else 3)

    one, other = _Inner(2), _Inner(2)
    return World(
        fn,
        [
            Call(lambda: (values(3), one, other)),
            Call(lambda: (values(3), one, one)),
            Call(lambda: (values(3), other, other)),
        ],
    )


@world(ALIKE)
def one_empty_list_twice() -> World:
    def fn(x: Any, a: Any, b: Any) -> Any:
        return x * (2 if a is b else 3)

    def same() -> tuple[Any, ...]:
        ks: list[Any] = []
        return values(3), ks, ks

    return World(
        fn, [Call(lambda: (values(3), [], [])), Call(same), Call(lambda: (values(3), [], []))]
    )


@world(ALIKE)
def parameters_and_tensors_in_a_list() -> World:
    def fn(ws: Any) -> Any:
        return sum(w.sum() for w in ws if isinstance(w, nn.Parameter)) + ws[0] * 2

    parameter = lambda: nn.Parameter(values(3), requires_grad=False)  # noqa: E731
    return World(
        fn,
        [
            Call(lambda: ([values(3), values(3)],)),
            Call(lambda: ([values(3), parameter()],)),
            Call(lambda: ([parameter(), parameter()],)),
        ],
    )


@world(ALIKE)
def configuration_changes_an_item() -> World:
    config = {"k": 2, "flags": [True]}
    call = Call(lambda: (values(3), config))
    return World(
        lambda x, c: x * c["k"] if c["flags"][0] else x,
        [call, item(config, "k", 3), call, item(config, "flags", [False]), call],
    )
