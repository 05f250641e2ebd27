"""Registries and settings of the process that trusted code reads, and what is put into classes of
libraries, of Python and of torch.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import copyreg
import reprlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, kl, kl_divergence, register_kl
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from tests.worlds.world import World, installed, item, on, put, values, world

REGISTRIES = "25 registries and settings"
ON, MORE = on(3), on(4)


def _steps(*changes: Callable[[], object]) -> list[Any]:
    return [ON, MORE, *(step for each in changes for step in (each, ON, MORE))]


def _linear() -> nn.Linear:
    made = nn.Linear(3, 3)
    with torch.no_grad():
        for each in made.parameters():
            each.copy_(values(*each.shape) / 8)
    return made


# -- dictionaries of libraries
@world(REGISTRIES)
def registry_of_a_library_gains_what_was_missing() -> World:
    package = installed("TABLE = {'a': 2}\ndef get(k): return TABLE[k] if k in TABLE else 1")
    added, gone = item(package.TABLE, "b", 3), lambda: package.TABLE.pop("b")
    return World(lambda x: x * package.get("b"), _steps(added, gone))


@world(REGISTRIES)
def registry_of_a_library_is_asked_by_get() -> World:
    package = installed("TABLE = {}\ndef get(k): return TABLE.get(k, 1)")
    return World(
        lambda x: x * package.get("a"), _steps(item(package.TABLE, "a", 3), package.TABLE.clear)
    )


@world(REGISTRIES)
def registry_of_a_library_is_summed() -> World:
    package = installed("TABLE = {'a': 2}\ndef get(): return sum(TABLE.values()) * len(TABLE)")
    return World(lambda x: x * package.get(), _steps(item(package.TABLE, "b", 3)))


@world(REGISTRIES)
def counter_in_a_dictionary_of_a_library() -> World:
    package = installed(
        "TABLE = {}\ndef add(k):\n    TABLE[k] = TABLE.get(k, 0) + 1\n    return TABLE[k]"
    )
    return World(lambda x: x * package.add("a"), [ON, ON, MORE, on(5)], lambda: package.TABLE)


@world(REGISTRIES)
def memo_of_a_library_holds_a_tensor() -> World:
    source = "MEMO = {}\ndef get(k, t):\n    if k not in MEMO: MEMO[k] = t * 2\n    return MEMO[k]"
    package, held = installed(source), types.SimpleNamespace(k=values(3))
    steps = [ON, put(held, k=values(3) * 2), ON, ON, package.MEMO.clear, ON, ON]
    return World(lambda x: x * package.get("a", held.k), steps, lambda: package.MEMO)


@world(REGISTRIES)
def parametrization_cached_around_the_calls() -> World:
    class Double(nn.Module):
        def forward(self, w: Any) -> Any:
            return w * 2

    module, stack = _linear(), contextlib.ExitStack()
    parametrize.register_parametrization(module, "weight", Double())

    def around() -> Any:
        return stack.enter_context(parametrize.cached())

    def write() -> Any:
        return module.parametrizations.weight.original.data.add_(1)

    steps = [ON, around, ON, ON, write, ON, stack.close, ON]
    return World(lambda x: module(x) + module.weight.sum(), steps, undo=stack.close)


# -- registries of Python and torch
@world(REGISTRIES)
def copied_by_a_function_that_is_registered_later() -> World:
    class C:
        k = 2

    own = C()

    def copied(old: Any) -> Any:
        return C, (), {"k": old.k + 5}

    return World(
        lambda x: x * copy.copy(own).k,
        _steps(lambda: copyreg.pickle(C, copied)),  # type: ignore[arg-type]
        undo=lambda: copyreg.dispatch_table.pop(C, None),
    )


@world(REGISTRIES)
def pytree_node_that_is_registered_later() -> World:
    class C:
        k = 2

    own = C()

    def register() -> Any:
        return pytree.register_pytree_node(C, lambda c: ([c.k] * 2, None), lambda *_: C())

    return World(
        lambda x: x * len(pytree.tree_leaves([own, 1])),
        _steps(register),
        undo=lambda: pytree.SUPPORTED_NODES.pop(C, None),
    )


def _normals() -> tuple[type[Any], Any, Any]:
    class Own(Normal):
        pass

    return Own, Own(torch.tensor(0.0), torch.tensor(1.0)), Own(torch.tensor(1.0), torch.tensor(2.0))


def _forget(kind: type[Any]) -> None:
    kl._KL_REGISTRY.pop((kind, kind), None)
    kl._KL_MEMOIZE.clear()


@world(REGISTRIES)
def divergence_that_is_registered_later() -> World:
    kind, p, q = _normals()

    def register() -> Any:
        return register_kl(kind, kind)(lambda p, q: torch.tensor(7.0))

    return World(lambda x: x * kl_divergence(p, q), _steps(register), undo=lambda: _forget(kind))


@world(REGISTRIES)
def divergence_that_reads_an_attribute() -> World:
    kind, p, q = _normals()
    held = types.SimpleNamespace(k=2.0)
    register_kl(kind, kind)(lambda p, q: p.loc * 0 + held.k)
    return World(
        lambda x: x * kl_divergence(p, q), _steps(put(held, k=5.0)), undo=lambda: _forget(kind)
    )


@world(REGISTRIES)
def hook_on_the_registration_of_buffers() -> World:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.register_buffer("held", x.detach() * 2)
            return x + self.held

    module, stack = M(), contextlib.ExitStack()

    def hook() -> None:
        handle = register_module_buffer_registration_hook(lambda m, name, b: b * 3)
        stack.callback(handle.remove)

    return World(module, _steps(hook, stack.close), lambda: module.held, undo=stack.close)


# -- settings
@world(REGISTRIES)
def default_dtype_of_autocast() -> World:
    module = _linear()

    def f(x: Any) -> Any:
        with torch.autocast("cpu"):
            return module(x)

    half, back = (
        lambda kind=kind: torch.set_autocast_dtype("cpu", kind)
        for kind in (torch.float16, torch.bfloat16)
    )
    return World(f, [ON, half, ON, ON, back, ON], undo=back)


@world(REGISTRIES)
def errors_of_numpy() -> World:
    one, zero = np.float64(1.0), np.float64(0.0)

    def f(x: Any) -> Any:
        try:
            return x * float(one / zero > 0)
        except FloatingPointError:
            return x - 5

    def back() -> Any:
        return np.seterr(divide="warn")

    return World(f, _steps(lambda: np.seterr(divide="raise"), back), undo=back)


@world(REGISTRIES)
def errors_of_numpy_asked() -> World:
    def back() -> Any:
        return np.seterr(over="warn")

    return World(
        lambda x: x * len(np.geterr()["over"]),
        _steps(lambda: np.seterr(over="raise"), back),
        undo=back,
    )


@world(REGISTRIES)
def text_of_an_array() -> World:
    array = np.array([1.123456789, 2.0])

    def back() -> Any:
        return np.set_printoptions(precision=8)

    return World(
        lambda x: x * len(f"{array}{array!r}"),
        _steps(lambda: np.set_printoptions(precision=2), back),
        undo=back,
    )


@world(REGISTRIES)
def settings_of_reprlib() -> World:
    long = [1] * 20
    return World(
        lambda x: x * len(reprlib.repr(long)),
        _steps(put(reprlib.aRepr, maxlist=2)),
        undo=put(reprlib.aRepr, maxlist=6),
    )


# -- classes of libraries, of Python and of torch
def _replaced(
    name: str, make: Callable[[], Callable[[Any], Any]], owner: Any, key: str, new: Any
) -> None:
    """Register a program during which a method is put into a class, and taken out again."""

    def build() -> World:
        missing = object()
        old = vars(owner).get(key, missing)

        def back() -> None:
            if old is not missing:
                setattr(owner, key, old)
            elif key in vars(owner):
                delattr(owner, key)

        return World(make(), _steps(lambda: setattr(owner, key, new), back), undo=back)

    build.__name__ = name
    world(REGISTRIES)(build)


def _of(owner: Any, read: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: read(x, owner)


class _Dict(collections.UserDict[str, int]):
    pass


_replaced(
    "length_of_a_list_of_modules",
    lambda: _of(nn.ModuleList([_linear()]), lambda x, m: x * len(m)),
    nn.ModuleList,
    "__len__",
    lambda self: 7,
)
_replaced(
    "iterator_of_a_sequence_of_modules",
    lambda: _of(nn.Sequential(nn.ReLU()), lambda x, m: m(x) * 2),
    nn.Sequential,
    "__iter__",
    lambda self: iter(()),
)
_replaced(
    "method_that_modules_did_not_have",
    lambda: _of(nn.ReLU(), lambda x, m: x * (m.of_a_world() if hasattr(m, "of_a_world") else 1)),
    nn.Module,
    "of_a_world",
    lambda self: 7,
)
_replaced(
    "item_of_a_dictionary_of_python",
    lambda: _of(collections.UserDict({"a": 2}), lambda x, d: x * d["a"]),
    collections.UserDict,
    "__getitem__",
    lambda self, key: 7,
)
_replaced(
    "item_of_a_class_below_one_of_python",
    lambda: _of(_Dict({"a": 2}), lambda x, d: x * d["a"]),
    collections.UserDict,
    "__getitem__",
    lambda self, key: 7,
)
_replaced(
    "most_common_of_a_counter",
    lambda: _of(collections.Counter("aab"), lambda x, c: x * c.most_common(1)[0][1]),
    collections.Counter,
    "most_common",
    lambda self, n: [("a", 7)],
)


@world(REGISTRIES)
def module_gains_a_look_up() -> World:
    own = types.ModuleType("of_a_world")

    def add() -> None:
        own.__getattr__ = lambda name: 9  # type: ignore[method-assign]

    return World(lambda x: x * getattr(own, "k", 2), _steps(add))


# -- objects of C that change
@world(REGISTRIES)
def record_of_numpy() -> World:
    record = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0]
    return World(lambda x: x * int(record["a"]), _steps(item(record, "a", 5)))


@world(REGISTRIES)
def polynomial_of_numpy() -> World:
    own = np.polynomial.Polynomial([1.0, 2.0])
    return World(lambda x: x * float(own(2.0)), _steps(item(own.coef, 0, 5.0)))


@world(REGISTRIES)
def storage_that_is_filled() -> World:
    storage = torch.ones(3).untyped_storage()
    return World(
        lambda x: x * (storage[2] + storage.nbytes()),
        _steps(lambda: storage.fill_(4), lambda: storage.resize_(4)),
    )


@world(REGISTRIES)
def future_that_is_done() -> World:
    future: Any = torch.futures.Future()
    return World(lambda x: x * 2 if future.done() else x, _steps(lambda: future.set_result(1)))
