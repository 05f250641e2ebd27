"""Places in which a trace could leave a stand-in behind, so that later eager calls fail (class 7 of
issue 8).
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import heapq
import logging
import queue
import threading
import types
import weakref
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.worlds.world import Call, World, installed, item, module, on, values, world

POISON = "7 later eager calls"
ON = on(3)


def _kept(keep: Any, recall: Any) -> World:
    """A program that keeps a tensor made of its argument at the first call, and uses what it kept
    ever after.
    """

    def fn(x: Any) -> Any:
        found = recall()
        if found is None:
            found = x + 1
            keep(found)
        return x[:1] * found[:1]

    return World(fn, [ON, ON, on(4), on(5)], recall)


def _kept_size(keep: Any, recall: Any) -> World:
    """The same with a size."""

    def fn(x: Any) -> Any:
        n = recall() or 0
        keep(x.shape[0])
        return x * n

    return World(fn, [ON, on(4), on(5), on(6)], recall)


@world(POISON)
def lru_cache_of_a_tensor() -> World:
    @functools.lru_cache
    def by(n: int) -> Any:
        return torch.arange(n) * 2.0

    return World(lambda x: x + by(x.shape[0]), [ON, on(4), on(5), on(4)], lambda: by(3))


@world(POISON)
def lru_cache_keyed_by_a_tensor() -> World:
    @functools.lru_cache
    def by(x: Any) -> Any:
        return x * 2

    w = values(3)
    return World(lambda x: x + by(w), [ON, ON], lambda: by(w))


@world(POISON)
def lru_cache_keyed_by_the_argument() -> World:
    @functools.lru_cache
    def by(x: Any) -> Any:
        return x * 2

    return World(lambda x: by(x) + 1, [ON, on(4), on(5)], lambda: by.cache_info().currsize)


@world(POISON)
def lru_cache_of_a_method() -> World:
    class C:
        @functools.lru_cache  # noqa: B019
        def by(self, n: int) -> Any:
            return torch.ones(n) * n

    c = C()
    return World(lambda x: x + c.by(x.shape[0]), [ON, on(4), on(5), on(4)], lambda: c.by(3))


@world(POISON)
def lru_cache_in_an_installed_package() -> World:
    package = installed(
        "import functools\n@functools.lru_cache\ndef table(n): return torch.arange(n) * 2.0\n"
        "def by(x): return x + table(x.shape[0])"
    )
    return World(lambda x: package.by(x), [ON, on(4), on(5), on(4)], lambda: package.table(3))


@world(POISON)
def lru_cache_behind_an_object() -> World:
    @functools.lru_cache
    def by(n: int) -> Any:
        return torch.ones(n) * n

    class C:
        table = {"by": by}  # noqa: RUF012

        def __call__(self, x: Any) -> Any:
            return x + self.table["by"](x.shape[0])

    c = C()
    return World(lambda x: c(x), [ON, on(4), on(5), on(4)], lambda: by(3))


@world(POISON)
def cached_property_of_an_object() -> World:
    class C:
        @functools.cached_property
        def w(self) -> Any:
            return torch.ones(3) * 2

    c = C()
    return World(lambda x: x * c.w, [ON, ON], lambda: c.w)


@world(POISON)
def table_of_frequencies_grown_on_demand() -> World:
    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.longest, self.table = 0, torch.empty(0)

        def forward(self, x: Any) -> Any:
            if x.shape[0] > self.longest:
                self.longest = x.shape[0]
                self.table = torch.arange(self.longest).float().cos()
            return x * self.table[: x.shape[0]]

    m = Rotary()
    return World(m, [ON, on(5), on(4), on(7)], lambda: (m.longest, m.table))


@world(POISON)
def slot_keeps_a_tensor_for_later() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = None
    return _kept(lambda t: setattr(c, "k", t), lambda: c.k)


@world(POISON)
def slot_keeps_a_size() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = None
    return _kept_size(lambda n: setattr(c, "k", n), lambda: c.k)


@world(POISON)
def deque_keeps_a_tensor() -> World:
    ks: collections.deque[Any] = collections.deque()
    return _kept(ks.append, lambda: ks[0] if ks else None)


@world(POISON)
def deque_keeps_a_size() -> World:
    ks: collections.deque[Any] = collections.deque(maxlen=1)
    return _kept_size(ks.append, lambda: ks[0] if ks else None)


@world(POISON)
def function_attribute_keeps_a_tensor() -> World:
    m = module(
        "def fn(x):\n    if fn.k is None:\n        fn.k = x + 1\n    return x[:1] * fn.k[:1]\nfn.k "
        "= None"
    )
    return World(m.fn, [ON, ON, on(4)], lambda: m.fn.k)


@world(POISON)
def helper_attribute_keeps_a_tensor() -> World:
    def by() -> None:
        pass

    by.k = None  # type: ignore[attr-defined]
    return _kept(lambda t: setattr(by, "k", t), lambda: by.k)  # type: ignore[attr-defined]


@world(POISON)
def large_dict_keeps_a_tensor() -> World:
    table: dict[Any, Any] = dict.fromkeys(range(2000))
    return _kept(lambda t: item(table, "k", t)(), lambda: table.get("k"))


@world(POISON)
def large_list_keeps_a_size() -> World:
    ks: list[Any] = [None] * 2000
    return _kept_size(ks.append, lambda: ks[-1])


@world(POISON)
def user_dict_keeps_a_tensor() -> World:
    table: Any = collections.UserDict()
    return _kept(lambda t: item(table, "k", t)(), lambda: table.get("k"))


@world(POISON)
def chain_map_keeps_a_tensor() -> World:
    table: Any = collections.ChainMap({}, {})
    return _kept(lambda t: item(table, "k", t)(), lambda: table.get("k"))


@world(POISON)
def class_keeps_a_tensor() -> World:
    class C:
        k: Any = None

    return _kept(lambda t: setattr(C, "k", t), lambda: C.k)


@world(POISON)
def metaclass_keeps_a_tensor() -> World:
    class Meta(type):
        table: dict[str, Any] = {}  # noqa: RUF012

    class C(metaclass=Meta):
        pass

    return _kept(lambda t: item(C.table, "k", t)(), lambda: C.table.get("k"))


@world(POISON)
def context_variable_keeps_a_tensor() -> World:
    var: Any = contextvars.ContextVar("var", default=None)
    return _kept(var.set, var.get)


@world(POISON)
def thread_local_keeps_a_tensor() -> World:
    local = threading.local()
    return _kept(lambda t: setattr(local, "k", t), lambda: getattr(local, "k", None))


@world(POISON)
def weak_dictionary_keeps_a_tensor() -> World:
    class Key:
        pass

    key = Key()
    table: Any = weakref.WeakKeyDictionary()
    return _kept(lambda t: item(table, key, t)(), lambda: table.get(key))


@world(POISON)
def exception_keeps_a_tensor() -> World:
    error = ValueError("a world")
    error.k = None  # type: ignore[attr-defined]
    return _kept(lambda t: setattr(error, "k", t), lambda: error.k)  # type: ignore[attr-defined]


@world(POISON)
def generator_keeps_a_tensor() -> World:
    def holding() -> Any:
        held = None
        while True:
            given = yield held
            held = given if given is not None else held

    it = holding()
    next(it)
    return _kept(it.send, lambda: next(it))


@world(POISON)
def closure_of_another_function_keeps_a_tensor() -> World:
    def make() -> Any:
        held = None

        def keep(t: Any) -> None:
            nonlocal held
            held = t

        return keep, lambda: held

    return _kept(*make())


@world(POISON)
def default_keeps_a_tensor() -> World:
    m = module(
        "def fn(x, kept={}):\n    if 'k' not in kept:\n        kept['k'] = x + 1\n    return x[:1] "
        "* kept['k'][:1]"
    )
    return World(m.fn, [ON, ON, on(4)], lambda: m.fn.__defaults__)


@world(POISON)
def globals_keep_a_tensor_by_key() -> World:
    m = module(
        'def keep(t): globals()["".join("K")] = t\ndef recall(): return globals().get("".join("K"))'
    )
    return _kept(m.keep, m.recall)


@world(POISON)
def installed_package_keeps_a_tensor() -> World:
    package = installed("KEPT = {}\ndef keep(t): KEPT['k'] = t\ndef recall(): return KEPT.get('k')")
    return _kept(package.keep, package.recall)


@world(POISON)
def installed_package_keeps_a_size_in_a_global() -> World:
    package = installed("K = None\ndef keep(n):\n    global K\n    K = n\ndef recall(): return K")
    return _kept_size(package.keep, package.recall)


@world(POISON)
def list_subclass_keeps_a_tensor() -> World:
    class Stack(list):  # type: ignore[type-arg]
        pass

    stack = Stack()
    return _kept(stack.append, lambda: stack[0] if stack else None)


@world(POISON)
def object_in_a_tuple_keeps_a_tensor() -> World:
    pair = (types.SimpleNamespace(k=None), 1)
    return _kept(lambda t: setattr(pair[0], "k", t), lambda: pair[0].k)


@world(POISON)
def numpy_array_of_objects_keeps_a_tensor() -> World:
    ks = np.array([None, None], dtype=object)
    return _kept(lambda t: item(ks, 0, t)(), lambda: ks[0])


@world(POISON)
def numpy_array_keeps_a_size() -> World:
    ks = np.zeros(1, dtype=np.int64)
    return _kept_size(lambda n: item(ks, 0, n)(), lambda: int(ks[0]))


@world(POISON)
def heap_keeps_a_size() -> World:
    ks: list[Any] = []
    return _kept_size(lambda n: heapq.heappush(ks, -n), lambda: -ks[0] if ks else None)


@world(POISON)
def queue_keeps_a_tensor() -> World:
    q: Any = queue.Queue()
    return _kept(q.put, lambda: q.queue[0] if q.queue else None)


@world(POISON)
def keywords_of_a_partial_keep_a_tensor() -> World:
    by = functools.partial(dict)
    return _kept(lambda t: by.keywords.update(k=t), lambda: by.keywords.get("k"))


@world(POISON)
def attribute_of_a_parameter_keeps_a_tensor() -> World:
    w = nn.Parameter(values(3))
    w.k = None
    return _kept(lambda t: setattr(w, "k", t), lambda: w.k)


@world(POISON)
def attribute_of_the_argument_keeps_a_tensor() -> World:
    x = values(3)

    def fn(x: Any) -> Any:
        if not hasattr(x, "twice"):
            x.twice = x * 2
        return x + x.twice

    same = Call(lambda: (x,))
    return World(fn, [same, same, ON])


@world(POISON)
def callbacks_of_an_exit_stack_keep_a_tensor() -> World:
    stack, seen = contextlib.ExitStack(), []

    def fn(x: Any) -> Any:
        stack.callback(seen.append, x + 1)
        return x * 2

    return World(fn, [ON, ON, stack.close], lambda: seen)


@world(POISON)
def log_record_keeps_a_size() -> World:
    kept: collections.deque[Any] = collections.deque(maxlen=1)
    logger = logging.Logger("a_world")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.args)

    logger.addHandler(Handler())

    def fn(x: Any) -> Any:
        logger.warning("size %d", x.shape[0])
        return x * 2

    return World(fn, [ON, on(4), on(5)], lambda: list(kept))


@world(POISON)
def argument_object_keeps_a_tensor() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = None

    def fn(x: Any, c: Any) -> Any:
        if c.k is None:
            c.k = x + 1
        return x * c.k

    call = Call(lambda: (values(3), c))
    return World(fn, [call, call], lambda: c.k)


@world(POISON)
def kept_and_then_refused() -> World:
    ks: Any = collections.deque()

    def fn(x: Any) -> Any:
        ks.append(x + 1)
        if x.sum() > 0:
            return x * ks[0]
        return x * 3

    return World(fn, [ON, ON], lambda: list(ks))


@world(POISON)
def kept_and_then_an_exception() -> World:
    ks: Any = collections.deque()

    def fn(x: Any) -> Any:
        ks.append(x + 1)
        raise KeyError("a world")

    return World(fn, [ON, ON], lambda: list(ks))


@world(POISON)
def hook_keeps_activations_in_a_slot() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = None
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    m[0].register_forward_hook(lambda mod, args, out: setattr(c, "k", out))
    return World(m, [ON, Call(lambda: (values(3) * 2,))], lambda: c.k)


@world(POISON)
def statistics_kept_as_attributes() -> World:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = x.mean()
            return x - self.last

    m = Norm()
    return World(m, [ON, Call(lambda: (values(3) * 2,))], lambda: m.last)


@world(POISON)
def lazy_mask_kept_in_a_dict_by_size() -> World:
    masks: dict[Any, Any] = {}

    def fn(x: Any) -> Any:
        n = x.shape[0]
        if n not in masks:
            masks[n] = torch.ones(n)
        return x * masks[n]

    return World(fn, [ON, on(4), on(5), on(4)], lambda: masks)


@world(POISON)
def registered_buffer_that_is_not_persistent() -> World:
    class M(nn.Module):
        def forward(self, x: Any) -> Any:
            if not hasattr(self, "mask"):
                self.register_buffer("mask", torch.ones(x.shape[0]) * 2, persistent=False)
            return x * self.mask[:1]

    m = M()
    return World(m, [ON, on(4), on(5)], lambda: m.mask)
