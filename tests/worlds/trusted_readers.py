"""What Python's own code and C read of a program's objects as wholes: copies, pickles, formats,
holders that never change themselves, dictionaries of classes, and tensors outside the arguments.
"""

from __future__ import annotations

import collections.abc
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import numbers
import pickle
import pprint
import re
import string
import types
import typing
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.worlds.world import Call, World, on, values, world

READERS = "13 unseen reads"
ON = on(3)


def _changing(
    name: str,
    make: Callable[[], Any],
    read: Callable[[Any, Any], Any],
    *changes: Callable[[Any], object],
) -> None:
    """Registers two programs that read an object: one outside the arguments, and an argument."""

    def steps(owner: Any, call: Call) -> list[Any]:
        changed = [step for each in changes for step in (lambda each=each: each(owner), call, call)]
        return [call, call, *changed]

    def outside() -> World:
        owner = make()
        return World(lambda x: read(x, owner), steps(owner, ON))

    def argument() -> World:
        owner = make()
        return World(read, steps(owner, Call(lambda: (values(3), owner))))

    for build, kind in ((outside, ""), (argument, "_of_an_argument")):
        build.__name__ = f"{name}{kind}"
        world(READERS)(build)


class _Config:
    def __init__(self) -> None:
        self.scale, self.ids = 1.0, [1.0]


class _Slots:
    __slots__ = ("inner", "scale")

    def __init__(self) -> None:
        self.scale, self.inner = 1.0, _Config()


@dataclasses.dataclass
class _Fields:
    scale: float = 1.0


@attrs.define
class _Attrs:
    scale: float = 1.0


class _Model:
    def __init__(self) -> None:
        self.config = _Config()

    def generate(self, x: Any) -> Any:
        config = copy.deepcopy(self.config)
        return x * config.scale * config.ids[0]


def _kind(**names: Any) -> Any:
    return type("Kind", (), names)


def _set(key: str, value: Any) -> Callable[[Any], None]:
    return lambda owner: setattr(owner, key, value)


_two, _longer = _set("scale", 2.0), _set("scale", 2.125)

# -- copies, pickles and formats
_changing("copied", _Config, lambda x, a: x * copy.copy(a).scale, _two)
_changing(
    "copied_deeply",
    _Model,
    lambda x, a: a.generate(x),
    lambda a: _two(a.config),
    lambda a: a.config.ids.__setitem__(0, 5.0),
    _set("config", _Config()),
)
_changing(
    "copied_in_a_dictionary",
    _Config,
    lambda x, a: x * copy.deepcopy({"k": [a]})["k"][0].scale,
    _two,
)
_changing("slots_copied", _Slots, lambda x, a: x * copy.copy(a).scale, _two)
_changing(
    "slots_copied_deeply",
    _Slots,
    lambda x, a: x * copy.deepcopy((a,))[0].inner.scale,
    lambda a: _two(a.inner),
)
_changing("pickled", _Config, lambda x, a: x * pickle.loads(pickle.dumps(a)).scale, _two)
_changing("reduced", _Config, lambda x, a: x * a.__reduce_ex__(2)[2]["scale"], _two)
_changing(
    "reduced_by_object", _Config, lambda x, a: x * object.__reduce_ex__(a, 2)[2]["scale"], _two
)
_changing("state_returned", _Config, lambda x, a: x * a.__getstate__()["scale"], _two)
_changing("names_returned", _Config, lambda x, a: x * ("k" in a.__dir__()), _set("k", 1))
_changing("formatted", _Config, lambda x, a: x * float(f"{a.scale}"), _two)
_changing("formatted_map", _Config, lambda x, a: x * len("{a.ids[0]}".format_map({"a": a})), _two)
_changing(
    "formatted_items",
    _Config,
    lambda x, a: x * len("{a.ids[0]}".format_map({"a": a})),
    lambda a: a.ids.__setitem__(0, 2.125),
)
_changing(
    "formatted_by_an_object",
    _Config,
    lambda x, a: x * len(string.Formatter().format("{0.scale}", a)),
    _longer,
)
_changing("members", _Config, lambda x, a: x * dict(inspect.getmembers(a))["scale"], _two)
_changing("member_of_no_class", _Config, lambda x, a: x * inspect.getattr_static(a, "scale"), _two)
_changing("printed_prettily", _Fields, lambda x, a: x * len(pprint.pformat([a])), _longer)
_changing("attrs_compared", _Attrs, lambda x, a: x * (a == _Attrs(1.0)), _two)
_changing("attrs_shown", _Attrs, lambda x, a: x * len(repr(a)), _longer)
_changing(
    "bound_look_up",
    lambda: (lambda a: (a, a.__getattribute__))(_Config()),
    lambda x, a: x * a[1]("scale"),
    lambda a: _two(a[0]),
)
_changing(
    "bound_format",
    lambda: (_Config(), "{.scale}".format),
    lambda x, a: x * len(a[1](a[0])),
    lambda a: _longer(a[0]),
)
_changing(
    "module_copied_deeply",
    lambda: nn.Linear(3, 3),
    lambda x, a: copy.deepcopy(a)(x),
    lambda a: nn.init.zeros_(a.weight),
    _set("bias", None),
    _set("forward", lambda x: x * 9),
)


@world(READERS)
def written_through_a_copy() -> World:
    config = _Config()

    def fn(x: Any) -> Any:
        copy.copy(config).ids.append(x.sum())
        return x * len(config.ids)

    return World(fn, [ON, ON, on(4), lambda: config.ids.clear(), ON], lambda: config.ids)


@world(READERS)
def written_through_a_slice() -> World:
    part = slice(0, [])

    def fn(x: Any) -> Any:
        part.stop.append(x.sum())
        return x * len(part.stop)

    return World(fn, [ON, ON, on(4)], lambda: part.stop)


@world(READERS)
def unpickled_by_a_method() -> World:
    world = SimpleNamespace(k=2)

    class Kept(_Config):
        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            self.scale *= world.k

    Kept.__qualname__ = "_kept"
    globals()["_kept"] = Kept
    data = pickle.dumps(Kept())
    undo = lambda: globals().pop("_kept")  # noqa: E731
    change = lambda: setattr(world, "k", 5)  # noqa: E731
    return World(lambda x: x * pickle.loads(data).scale, [ON, ON, change, ON], undo=undo)


# -- holders that never change themselves
def _enum(value: Any) -> Any:
    return enum.Enum("Kept", {"A": value})


class _Zone(datetime.tzinfo):
    def __init__(self) -> None:
        self.hours = 1

    def utcoffset(self, _: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=self.hours)


_changing(
    "enum_of_a_list",
    lambda: _enum([1.0]).A,
    lambda x, a: x * a.value[0],
    lambda a: a.value.__setitem__(0, 2.0),
)
_changing(
    "enum_of_an_object",
    lambda: _enum(_Config()),
    lambda x, a: x * next(iter(a)).value.scale,
    lambda a: _two(a.A.value),
)
_changing("enum_value_set", lambda: _enum(1.0).A, lambda x, a: x * a.value, _set("_value_", 2.0))
_changing(
    "slice_of_an_object",
    lambda: (slice(0, _Config()),),
    lambda x, a: x * a[0].stop.scale,
    lambda a: _two(a[0].stop),
)
_changing(
    "match_of_bytes",
    lambda: re.match(b"(.*)", bytearray(b"1")),
    lambda x, a: x * int(a.group(1)),
    lambda a: a.string.__setitem__(0, ord("5")),
)
_changing(
    "time_zone",
    lambda: datetime.datetime(2020, 1, 1, tzinfo=_Zone()),
    lambda x, a: x * a.utcoffset().seconds,
    lambda a: setattr(a.tzinfo, "hours", 3),
)
_changing(
    "annotated",
    lambda: typing.Annotated[int, _Config()],
    lambda x, a: x * typing.get_args(a)[1].scale,
    lambda a: _two(a.__metadata__[0]),
)
_changing(
    "alias_of_an_object",
    lambda: types.GenericAlias(list, (_Config(),)),
    lambda x, a: x * a.__args__[0].scale,
    lambda a: _two(a.__args__[0]),
)
_changing(
    "default_of_a_context_variable",
    lambda: contextvars.ContextVar("v", default=_Config()),  # noqa: B039
    lambda x, a: x * a.get().scale,
    lambda a: _two(a.get()),
)
_changing(
    "metadata_of_a_field",
    lambda: dataclasses.make_dataclass(
        "D", [("k", int, dataclasses.field(default=0, metadata={"k": [1.0]}))]
    ),
    lambda x, a: x * dataclasses.fields(a)[0].metadata["k"][0],
    lambda a: dataclasses.fields(a)[0].metadata["k"].__setitem__(0, 2.0),
)
_changing(
    "default_factory",
    lambda: defaultdict(lambda: 1.0),
    lambda x, a: x * a.default_factory(),
    _set("default_factory", lambda: 5.0),
)
_changing(
    "context_of_decimal",
    lambda: decimal.Context(prec=3),
    lambda x, a: x.double() * float(a.divide(decimal.Decimal(1), decimal.Decimal(3))),
    _set("prec", 5),
)


@world(READERS)
def node_of_a_tree() -> World:
    world = SimpleNamespace(k=2.0)
    kind = _kind()
    pytree.register_pytree_node(kind, lambda _: ([world.k], None), lambda items, _: items[0])
    held = kind()
    change = lambda: setattr(world, "k", 3.0)  # noqa: E731
    undo = lambda: pytree._deregister_pytree_node(kind)  # noqa: E731
    twice = lambda x: x * pytree.tree_map(lambda v: v * 2, held)  # noqa: E731
    return World(twice, [ON, ON, change, ON], undo=undo)


@world(READERS)
def look_up_that_asks_its_own_dictionary() -> World:
    class Asking:
        def __init__(self) -> None:
            self.k = 2

        def __getattribute__(self, name: str) -> Any:
            other = super().__getattribute__("__dict__").get("other")
            return super().__getattribute__(name if other is None else other)

    a = Asking()
    change = lambda: a.__dict__.update(other="j", j=5)  # noqa: E731
    return World(lambda x: x * a.k, [ON, ON, change, ON])


@world(READERS)
def default_factory_that_reads() -> World:
    world = SimpleNamespace(k=1.0)
    found: Any = defaultdict(lambda: world.k)
    calls = [Call(lambda: (values(3), defaultdict(found.default_factory)))] * 2
    change = lambda: setattr(world, "k", 4.0)  # noqa: E731
    return World(lambda x, table: x * table["k"], [*calls, change, *calls])


@world(READERS)
def default_factory_written() -> World:
    found: Any = defaultdict(list)

    def fn(x: Any) -> Any:
        found.default_factory = None
        return x * 2

    return World(fn, [ON, lambda: setattr(found, "default_factory", list), ON], lambda: found)


# -- classes
def _derived(base: Any) -> Any:
    return type("Derived", (base,), {})


class _One:
    v = 1.0


class _Two:
    v = 2.0


@typing.runtime_checkable
class _HasScale(typing.Protocol):
    scale: float


@typing.runtime_checkable
class _HasMethod(typing.Protocol):
    def method(self) -> None: ...


def _matched(value: Any) -> int:
    match value:
        case [*_]:
            return 4
        case _HasScale():
            return 2
    return 1


_of_bases = lambda: _derived(_One)  # noqa: E731
_other_bases = _set("__bases__", (_Two,))
_changing("item_of_a_class", lambda: _kind(v=1.0), lambda x, a: x * a.__dict__["v"], _set("v", 2.0))
_changing(
    "item_of_a_class_or_none",
    lambda: _kind(v=1.0),
    lambda x, a: x * a.__dict__.get("v", 5),
    _set("v", 2.0),
    lambda a: delattr(a, "v"),
)
_changing(
    "name_in_a_class",
    lambda: _kind(v=1.0),
    lambda x, a: x * (2 if "w" in a.__dict__ else 1),
    _set("w", 2.0),
)
_changing("vars_of_a_class", lambda: _kind(v=1.0), lambda x, a: x * vars(a)["v"], _set("v", 2.0))
_changing(
    "values_of_a_class",
    lambda: _kind(v=1.0),
    lambda x, a: x * sum(v for v in a.__dict__.values() if type(v) is float),
    _set("w", 2.0),
)
_changing("name_of_a_class", _kind, lambda x, a: x * len(a.__name__), _set("__name__", "Other"))
_changing(
    "name_of_the_class_of_an_object",
    lambda: _kind()(),
    lambda x, a: x * len(type(a).__qualname__),
    lambda a: setattr(type(a), "__qualname__", "Another"),
)
_changing("bases_in_order", _of_bases, lambda x, a: x * a.__mro__[1].v, _other_bases)
_changing("bases", _of_bases, lambda x, a: x * a.__bases__[0].v, _other_bases)
_changing("bases_inspected", _of_bases, lambda x, a: x * inspect.getmro(a)[1].v, _other_bases)
_changing("subclass", _of_bases, lambda x, a: x * (2 if issubclass(a, _Two) else 1), _other_bases)
_changing(
    "instance",
    lambda: _of_bases()(),
    lambda x, a: x * (2 if isinstance(a, _Two) else 1),
    lambda a: _other_bases(type(a)),
)
_changing(
    "type_hints",
    lambda: _kind(__annotations__={"a": int}),
    lambda x, a: x * len(typing.get_type_hints(a)),
    lambda a: a.__annotations__.update(b=int),
)
_changing(
    "protocol_of_data",
    lambda: _kind()(),
    lambda x, a: x * (2 if isinstance(a, (int, _HasScale)) else 1),
    _set("scale", 1.0),
)
_changing(
    "protocol_of_methods",
    _kind,
    lambda x, a: x * (2 if issubclass(a, _HasMethod) else 1),
    _set("method", lambda _: None),
)
_changing("protocol_matched", lambda: _kind()(), lambda x, a: x * _matched(a), _set("scale", 1.0))
_changing(
    "sequence_registered",
    lambda: _kind()(),
    lambda x, a: x * (2 if isinstance(a, collections.abc.Sequence) else 1),
    lambda a: collections.abc.Sequence.register(type(a)),
)
_changing(
    "sequence_matched",
    lambda: _kind()(),
    lambda x, a: x * _matched(a),
    lambda a: setattr(a, "scale", 1.0),
    lambda a: setattr(type(a), "__len__", lambda _: 0),
    lambda a: collections.abc.Sequence.register(type(a)),
)
_changing(
    "number_registered",
    _kind,
    lambda x, a: x * (2 if issubclass(a, numbers.Number) else 1),
    lambda a: numbers.Number.register(a),
)
_changing(
    "dataclass_made",
    lambda: dataclasses.make_dataclass("Made", [("k", float, 1.0)]),
    lambda x, a: x * a().k,
    lambda a: setattr(a, "__init__", lambda self: setattr(self, "k", 3.0)),
)


class _Time(datetime.datetime):
    @classmethod
    def mine(cls) -> Any:
        return super().now()


_NOWS: dict[str, Callable[[Any], Any]] = {
    "now_of_a_subclass": lambda a: _Time.now(),
    "now_by_super": lambda a: _Time.mine(),
    "now_of_an_object": lambda a: a.now(),
    "now_of_a_class_of_an_object": lambda a: type(a).now(),
}


def _of_clock(name: str, read: Callable[[Any], Any]) -> None:
    def build() -> World:
        made = datetime.datetime(2020, 1, 1)
        return World(
            lambda x: x.double() + read(made).timestamp() % 1,
            [ON, ON, ON],
            view=lambda results: len({float(each[0]) for each in results}) == len(results),
        )

    build.__name__ = name
    world(READERS)(build)


for _name, _read in _NOWS.items():
    _of_clock(_name, _read)


@world(READERS)
def graph_module_compiled_again() -> World:
    m = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))

    def change() -> None:
        for node in m.graph.nodes:
            if node.op == "call_module" and node.target == "1":
                node.op, node.target = "call_function", torch.neg
        m.recompile()

    return World(m, [on(2, 3), on(4, 3), change, on(2, 3), on(4, 3), m.recompile, on(2, 3)])


# -- tensors outside the arguments
def _of_tensor(
    name: str, read: Callable[[Any, Any], Any], change: Callable[[Any], object], grad: bool = False
) -> None:
    def build() -> World:
        w = values(2, 2).requires_grad_(grad)
        w = w * 1 if grad else w
        return World(lambda x: read(x, w), [ON, ON, lambda: (change(w), None)[1], ON, on(4)])

    build.__name__ = name
    world(READERS)(build)


_of_tensor(
    "storage_offset",
    lambda x, w: x + w.storage_offset() + torch.Tensor.storage_offset(w),
    lambda w: w.set_(values(9)[1:5].view(2, 2)),
)
_of_tensor("retains_grad", lambda x, w: x + w.retains_grad, lambda w: w.retain_grad(), grad=True)
_of_tensor(
    "bytes_of_a_storage",
    lambda x, w: x + w.untyped_storage().nbytes(),
    lambda w: w.set_(values(9)[1:5].view(2, 2)),
)
_of_tensor("shared_memory", lambda x, w: x + w.is_shared(), lambda w: w.share_memory_())
_of_tensor("text_of_a_tensor", lambda x, w: x * len(repr(w)), lambda w: w.add_(0.12345))
_of_tensor("texts_of_tensors", lambda x, w: x * len(str([w])), lambda w: w.add_(0.12345))
_of_tensor("tensor_in_a_text", lambda x, w: x * len(f"{w}"), lambda w: w.add_(0.12345))
_of_tensor(
    "number_of_a_tensor_in_a_text",
    lambda x, w: x * len(f"{w.detach().sum():.1f}"),
    lambda w: w.add_(12345),
)
_of_tensor(
    "text_of_a_parameter",
    lambda x, w: x * len(repr(nn.Parameter(w.detach()))),
    lambda w: w.add_(0.12345),
)
_of_tensor(
    "tensor_pickled", lambda x, w: x * pickle.loads(pickle.dumps(w)).sum(), lambda w: w.fill_(3)
)


# -- functions whose names and attributes Python's own code copies
def _function() -> Any:
    def own(x: Any) -> Any:
        return x * 2

    own.tag = 3  # type: ignore[attr-defined]
    return own


_TAG, _NAME = _set("tag", 5), _set("__name__", "longer")


def _wrapped(x: Any, own: Any) -> Any:
    @functools.wraps(own)
    def wrapper(x: Any) -> Any:
        return own(x)

    return wrapper(x) * wrapper.tag * len(wrapper.__name__)  # type: ignore[attr-defined]


def _updated(x: Any, own: Any) -> Any:
    wrapper: Any = functools.update_wrapper(lambda x: own(x), own)
    return wrapper(x) * wrapper.tag * len(wrapper.__name__)


def _made(make: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, own: x * make(own).tag


_changing("function_that_is_wrapped", _function, _wrapped, _TAG, _NAME)
_changing("function_that_is_wrapped_by_a_call", _function, _updated, _TAG, _NAME)
_changing("function_of_a_memo", _function, _made(functools.lru_cache), _TAG)
_changing("function_of_a_dispatcher", _function, _made(functools.singledispatch), _TAG)
_changing("function_of_a_context", _function, _made(contextlib.contextmanager), _TAG)
_changing(
    "function_that_is_documented",
    _function,
    lambda x, own: x * len(inspect.getdoc(own) or ""),
    _set("__doc__", "Text."),
)
_changing(
    "function_that_is_unwrapped",
    _function,
    lambda x, own: x if inspect.unwrap(own) is own else x * 3,
    lambda own: setattr(own, "__wrapped__", _function()),
)
