"""Writes that each call must do again, with its own values; what one call writes the next one reads
(class 3).
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch
from torch import nn

import symshape
from tests.worlds.world import Call, World, module, on, put, values, world

WRITES = "3 replayed writes"
SIZES = (on(3), on(3), on(4), on(5), on(4))


def _program(write: Any, owner: Any, *, steps: Any = SIZES, observe: Any = None) -> World:
    """A program that writes to its owner and then computes with it."""

    def fn(x: Any) -> Any:
        return write(owner, x)

    return World(fn, list(steps), observe or (lambda: owner))


def _owner(**attributes: Any) -> Any:
    return types.SimpleNamespace(**attributes)


@world(WRITES)
def flag() -> World:
    def write(o: Any, x: Any) -> Any:
        first, o.ready = not o.ready, True
        return x * 2 if first else x * 3

    return _program(write, _owner(ready=False))


@world(WRITES)
def flag_that_is_put_back_between_calls() -> World:
    o = _owner(on=True)

    def write(o: Any, x: Any) -> Any:
        o.on = True
        return x * 2

    return _program(write, o, steps=[on(3), put(o, on=False), on(3), put(o, on=3), on(4), on(3)])


@world(WRITES)
def counter() -> World:
    def write(o: Any, x: Any) -> Any:
        o.calls += 1
        return x * o.calls

    return _program(write, _owner(calls=0))


@world(WRITES)
def counter_that_is_set_between_calls() -> World:
    o = _owner(calls=0)

    def write(o: Any, x: Any) -> Any:
        o.calls = o.calls + 1
        return x * o.calls

    return _program(
        write,
        o,
        steps=[
            on(3),
            on(3),
            put(o, calls=10),
            on(4),
            put(o, calls=-3),
            on(4),
            put(o, calls=True),
            on(4),
        ],
    )


@world(WRITES)
def counter_with_a_turning_point() -> World:
    def write(o: Any, x: Any) -> Any:
        o.calls += 1
        return x * 2 if o.calls > 3 else x + o.calls

    return _program(write, _owner(calls=0), steps=[on(3)] * 7)


@world(WRITES)
def counter_in_a_range() -> World:
    def write(o: Any, x: Any) -> Any:
        o.calls += 1
        for _ in range(o.calls):
            x = x + 1
        return x

    return _program(write, _owner(calls=0), steps=[on(3)] * 5)


@world(WRITES)
def counter_that_is_a_float() -> World:
    def write(o: Any, x: Any) -> Any:
        o.t += 0.5
        return x * o.t

    return _program(write, _owner(t=0.0))


@world(WRITES)
def counter_by_its_class() -> World:
    class C:
        calls = 0

    def write(o: Any, x: Any) -> Any:
        o.calls += 1
        return x * o.calls

    return _program(write, C())


@world(WRITES)
def counter_of_a_class() -> World:
    class C:
        calls = 0

    def write(o: Any, x: Any) -> Any:
        C.calls += 1
        return x * C.calls

    return _program(write, C(), observe=lambda: C.calls)


@world(WRITES)
def counter_in_a_slot() -> World:
    class C:
        __slots__ = ("calls",)

        def __init__(self) -> None:
            self.calls = 0

    def write(o: Any, x: Any) -> Any:
        o.calls += 1
        return x * o.calls

    return _program(write, C())


@world(WRITES)
def counter_around() -> World:
    calls = 0

    def fn(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * calls

    return World(fn, list(SIZES), lambda: calls)


@world(WRITES)
def variable_around_that_is_empty_at_first() -> World:
    if False:
        last = None

    def fn(x: Any) -> Any:
        nonlocal last
        last = x + 1
        return last * 2

    return World(fn, list(SIZES), lambda: last)


@world(WRITES)
def counter_in_a_global() -> World:
    made = module("K = 0\ndef fn(x):\n    global K\n    K += 1\n    return x * K")
    return World(made.fn, list(SIZES), lambda: made.K)


@world(WRITES)
def global_that_is_new() -> World:
    made = module("def fn(x):\n    global LAST\n    LAST = x + 1\n    return x * 2")
    return World(made.fn, list(SIZES), lambda: made.LAST)


@world(WRITES)
def global_that_is_deleted() -> World:
    made = module(
        "K = 0\ndef fn(x):\n    global K\n    if 'K' in NAMES:\n        del K\n    return x * 2",
        NAMES={"K"},
    )
    return World(made.fn, [on(3), put(made, K=1), on(3)], lambda: hasattr(made, "K"))


@world(WRITES)
def attribute_that_is_deleted() -> World:
    def write(o: Any, x: Any) -> Any:
        if hasattr(o, "once"):
            x = x * o.once
            del o.once
        return x + 1

    o = _owner(once=5)
    return _program(write, o, steps=[on(3), on(3), put(o, once=7), on(3), on(3)])


@world(WRITES)
def attribute_by_setattr() -> World:
    def write(o: Any, x: Any) -> Any:
        for i in range(2):
            setattr(o, f"last_{i}", x + i)
        return o.last_0 * getattr(o, "last_1")  # noqa: B009

    return _program(write, _owner())


@world(WRITES)
def attribute_by_a_property() -> World:
    class C:
        def __init__(self) -> None:
            self._k: Any = None

        @property
        def k(self) -> Any:
            return self._k

        @k.setter
        def k(self, value: Any) -> None:
            self._k = value * 2

    def write(o: Any, x: Any) -> Any:
        before = o.k
        o.k = x
        return x if before is None or before.shape != x.shape else x + before

    return _program(write, C())


@world(WRITES)
def attribute_by_setattr_of_the_class() -> World:
    class C:
        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)
            object.__setattr__(self, f"{name}_set", True)

    def write(o: Any, x: Any) -> Any:
        o.last = x.sum()
        return x + o.last

    return _program(write, C())


@world(WRITES)
def cached_tensor() -> World:
    def write(o: Any, x: Any) -> Any:
        if o.table is None or o.table.shape[0] < x.shape[0]:
            o.table = torch.arange(x.shape[0]) * 2.0
        return x + o.table[: x.shape[0]]

    return _program(write, _owner(table=None))


@world(WRITES)
def cached_by_name() -> World:
    def write(o: Any, x: Any) -> Any:
        if "table" not in o.cache:
            o.cache["table"] = x.mean()
        return x - o.cache["table"]

    o = _owner(cache={})
    return _program(write, o, steps=[*SIZES, lambda: o.cache.clear(), on(3), on(4)])


@world(WRITES)
def cached_by_size() -> World:
    def write(o: Any, x: Any) -> Any:
        n = int(x.shape[0])
        if n not in o.cache:
            o.cache[n] = torch.ones(n) * len(o.cache)
        return x - o.cache[n]

    return _program(write, _owner(cache={}))


@world(WRITES)
def last_and_the_one_before() -> World:
    def write(o: Any, x: Any) -> Any:
        o.before, o.last = o.last, x + 1
        return x * 2 if o.before is None else x * 2 + o.before.sum()

    return _program(write, _owner(last=None, before=None))


@world(WRITES)
def swapped() -> World:
    def write(o: Any, x: Any) -> Any:
        o.a, o.b = o.b, o.a
        return x * o.a.sum() + o.b.sum()

    return _program(write, _owner(a=values(2), b=values(5)))


@world(WRITES)
def argument_kept() -> World:
    kept: list[Any] = []
    o = _owner(last=None)

    def fn(x: Any) -> Any:
        same = o.last is x
        o.last = x
        return x * 3 if same else x * 2

    again = values(3)
    given = Call(lambda: (again,))
    return World(fn, [on(3), given, given, on(4), on(4), given], lambda: (o, o.last is again, kept))


@world(WRITES)
def result_kept() -> World:
    o = _owner(last=None)

    def fn(x: Any) -> Any:
        o.last = x * 2
        return o.last

    results: list[Any] = []

    def view(all_results: list[Any]) -> Any:
        results[:] = all_results
        return all_results[-1]

    return World(fn, list(SIZES), lambda: (o, bool(results) and o.last is results[-1]), view=view)


@world(WRITES)
def written_twice_and_read_between() -> World:
    def write(o: Any, x: Any) -> Any:
        o.last = x + 1
        y = o.last * 2
        o.last = y + 1
        return o.last + y

    return _program(write, _owner(last=None))


@world(WRITES)
def one_tensor_in_two_places() -> World:
    o = _owner(a=None, b=None)

    def fn(x: Any) -> Any:
        if o.a is not None and o.a.shape == x.shape:
            o.a.add_(x)
            return o.b * 2
        o.a = o.b = x + 1
        return o.a

    return World(fn, [on(3), on(3), on(3), on(4), on(4)], lambda: (o, o.a is o.b))


@world(WRITES)
def tensor_and_its_view() -> World:
    o = _owner(a=None, b=None)

    def fn(x: Any) -> Any:
        if o.a is not None:
            o.b.mul_(2)
            return o.a + 1
        o.a = x + 1
        o.b = o.a[:2]
        return x

    return World(fn, [on(3), on(3), on(3), on(3)], lambda: (o, o.a.data_ptr() == o.b.data_ptr()))


@world(WRITES)
def written_in_place_after_it_was_kept() -> World:
    def write(o: Any, x: Any) -> Any:
        o.last = x * 2
        o.last.add_(1)
        return x + o.last

    return _program(write, _owner(last=None))


@world(WRITES)
def running_mean_that_is_exchanged() -> World:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.mean = self.mean * 0.9 + x.mean() * 0.1
            return x - self.mean

    m = M()
    return World(m, list(SIZES), lambda: dict(m.named_buffers()))


@world(WRITES)
def hidden_state_in_a_tuple() -> World:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state: Any = None

        def forward(self, x: Any) -> Any:
            h, c = self.state if self.state is not None else (torch.zeros(2), torch.ones(2))
            h, c = h + x.sum(), c * 0.5 + h
            self.state = (h, c)
            return x * c.sum()

    m = M()
    return World(m, [*SIZES, put(m, state=None), *SIZES], lambda: m.state)


class _Cached(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.kv: Any = None
        self.k: Any = None
        self.v: Any = None
        self.cache: dict[str, Any] = {}

    def update(self, k: Any, v: Any) -> Any:
        if self.kind == "attributes":
            if self.k is not None:
                k, v = torch.cat([self.k, k]), torch.cat([self.v, v])
            self.k, self.v = k, v
        elif self.kind == "tuple":
            if self.kv is not None:
                k, v = torch.cat([self.kv[0], k]), torch.cat([self.kv[1], v])
            self.kv = (k, v)
        elif self.kind == "new list":
            if self.kv is not None:
                k, v = torch.cat([self.kv[0], k]), torch.cat([self.kv[1], v])
            self.kv = [k, v]
        elif self.kind == "list":
            if self.kv is None:
                self.kv = [k, v]
            else:
                self.kv[0], self.kv[1] = torch.cat([self.kv[0], k]), torch.cat([self.kv[1], v])
                k, v = self.kv
        else:
            for name, each in (("k", k), ("v", v)):
                before = self.cache.get(name)
                self.cache[name] = each if before is None else torch.cat([before, each])
            k, v = self.cache["k"], self.cache["v"]
        return k, v

    def forward(self, x: Any) -> Any:
        k, v = self.update(x * 2, x + 1)
        return (x @ k.t()) @ v


def _cached(kind: str) -> World:
    m = _Cached(kind)

    def clear() -> None:
        m.k = m.v = m.kv = None
        m.cache.clear()

    steps = [on(4, 2), *[on(1, 2)] * 4, clear, on(3, 2), *[on(1, 2)] * 3]
    return World(m, steps, lambda: (m.k, m.v, m.kv, m.cache))


@world(WRITES)
def keys_and_values_in_attributes() -> World:
    return _cached("attributes")


@world(WRITES)
def keys_and_values_in_a_tuple() -> World:
    return _cached("tuple")


@world(WRITES)
def keys_and_values_in_a_new_list() -> World:
    return _cached("new list")


@world(WRITES)
def keys_and_values_in_one_list() -> World:
    return _cached("list")


@world(WRITES)
def keys_and_values_in_a_dict() -> World:
    return _cached("dict")


@world(WRITES)
def keys_and_values_of_two_layers_of_one_class() -> World:
    m = nn.Sequential(_Cached("attributes"), _Cached("attributes"), _Cached("tuple"))
    return World(
        m,
        [on(4, 2), on(1, 2), on(1, 2), on(1, 2)],
        lambda: [(each.k, each.v, each.kv) for each in m],
    )


@world(WRITES)
def cache_object_of_its_own() -> World:
    class Cache:
        def __init__(self) -> None:
            self.keys: Any = None
            self.length = 0

        def update(self, x: Any) -> Any:
            self.keys = x if self.keys is None else torch.cat([self.keys, x])
            self.length += x.shape[0]
            return self.keys

    o = _owner(cache=Cache())

    def write(o: Any, x: Any) -> Any:
        return x.sum() * o.cache.update(x) + o.cache.length

    def renew() -> None:
        o.cache = Cache()

    return _program(
        write, o, steps=[*SIZES, renew, *SIZES], observe=lambda: (o.cache.keys, o.cache.length)
    )


@world(WRITES)
def cache_with_a_position() -> World:
    o = _owner(keys=torch.zeros(16, 2), position=0)

    def fn(x: Any) -> Any:
        start = o.position
        o.keys[start : start + x.shape[0]] = x
        o.position = start + x.shape[0]
        return x @ o.keys[: o.position].t()

    return World(
        fn,
        [on(3, 2), on(1, 2), on(1, 2), on(2, 2), on(1, 2), put(o, position=0), on(3, 2), on(1, 2)],
        lambda: o,
    )


@world(WRITES)
def list_that_keeps_all() -> World:
    def write(o: Any, x: Any) -> Any:
        o.all.append(x.sum())
        return x + torch.stack(o.all).sum()

    return _program(write, _owner(all=[]))


@world(WRITES)
def window_in_a_deque() -> World:
    def write(o: Any, x: Any) -> Any:
        o.window.append(x.sum())
        return x + torch.stack(tuple(o.window)).sum()

    return _program(write, _owner(window=collections.deque(maxlen=2)), steps=[*SIZES, *SIZES])


@world(WRITES)
def items_in_an_ordered_dict() -> World:
    def write(o: Any, x: Any) -> Any:
        o.d["b"] = x.shape[0]
        o.d.pop("a", None)
        o.d["a"] = x + 1
        return x * o.d["b"]

    return _program(write, _owner(d=collections.OrderedDict(a=1)), observe=None)


@world(WRITES)
def items_in_a_default_dict() -> World:
    def write(o: Any, x: Any) -> Any:
        o.d["n"] += x.shape[0]
        o.d["seen"] += 1
        return x * o.d["n"]

    return _program(write, _owner(d=collections.defaultdict(int)))


@world(WRITES)
def list_inside_a_dict() -> World:
    def write(o: Any, x: Any) -> Any:
        o.d["a"][0] = x.sum() + o.d["a"][0]
        return x * o.d["a"][0]

    o = _owner(d={"a": [torch.ones(())], "b": []})
    inner = o.d["a"]
    return _program(write, o, observe=lambda: (o.d, o.d["a"] is inner))


@world(WRITES)
def list_reached_in_two_ways() -> World:
    shared = [torch.ones(())]
    o, p = _owner(ks=shared), _owner(ks=shared)

    def fn(x: Any) -> Any:
        o.ks[0] = o.ks[0] + x.sum()
        return x * p.ks[0]

    return World(fn, list(SIZES), lambda: (o, p, o.ks is p.ks))


@world(WRITES)
def list_kept_in_two_places() -> World:
    o = _owner(a=None, b=None)

    def fn(x: Any) -> Any:
        if o.a is not None:
            o.a.append(1)
        else:
            o.a = o.b = [x.sum()]
        return x * len(o.b)

    return World(fn, list(SIZES), lambda: (o, o.a is o.b))


@world(WRITES)
def list_kept_and_returned() -> World:
    o = _owner(last=None)

    def fn(x: Any) -> Any:
        o.last = [x + 1]
        return o.last

    def view(results: list[Any]) -> Any:
        results[-1].append(len(results))
        return results[-1]

    return World(fn, list(SIZES), lambda: o, view=view)


@world(WRITES)
def list_of_the_arguments_kept() -> World:
    o = _owner(last=None)

    def fn(x: Any, ks: Any) -> Any:
        o.last = ks
        return x * 2

    ks = [values(2)]
    call = Call(lambda: (values(3), ks))
    return World(fn, [call, call, lambda: ks.append(values(1)), call], lambda: (o, o.last is ks))


@world(WRITES)
def object_that_was_there() -> World:
    parts = [_owner(k=2), _owner(k=3)]
    o = _owner(current=parts[0])

    def fn(x: Any) -> Any:
        y = x * o.current.k
        o.current = parts[1] if o.current is parts[0] else parts[0]
        return y

    return World(fn, [on(3)] * 5, lambda: [o.current is each for each in parts])


@world(WRITES)
def object_that_was_made() -> World:
    class Record:
        def __init__(self, k: Any) -> None:
            self.k = k

    def write(o: Any, x: Any) -> Any:
        before = o.last
        o.last = Record(x.sum())
        return x if before is None else x + before.k

    return _program(write, _owner(last=None))


@world(WRITES)
def function_that_was_made() -> World:
    def write(o: Any, x: Any) -> Any:
        y = x if o.act is None else o.act(x)
        k = x.shape[0]
        o.act = lambda z: z * k
        return y

    o = _owner(act=None)
    return _program(write, o, observe=lambda: o.act(1))


@world(WRITES)
def function_that_was_there() -> World:
    def write(o: Any, x: Any) -> Any:
        y = o.act(x)
        o.act = torch.tanh if o.act is torch.relu else torch.relu
        return y

    return _program(write, _owner(act=torch.relu))


@world(WRITES)
def parameter_kept() -> World:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(values(3))
            self.used: Any = None

        def forward(self, x: Any) -> Any:
            self.used = self.weight
            return x * self.weight

    m = M()
    steps = [on(3), on(3), lambda: setattr(m, "weight", nn.Parameter(values(3) * 2)), on(3)]
    return World(m, steps, lambda: (m.used, m.used is m.weight))


@world(WRITES)
def branches() -> World:
    def write(o: Any, x: Any) -> Any:
        if x.shape[0] > 3:
            o.long = x.sum()
        else:
            o.short = x.shape[0]
        return x * (o.short or 1) + o.long

    return _program(
        write, _owner(long=0, short=None), steps=[on(3), on(5), on(4), on(2), on(6), on(3)]
    )


@world(WRITES)
def kinds_that_change() -> World:
    kinds = [0, 1.5, "a", None, values(2), (1, 2), True, values(3), [1], 7]
    o = _owner(last=None)

    def fn(x: Any, k: Any) -> Any:
        before = o.last
        o.last = (x.sum(), before if isinstance(before, int) else None)
        return x * 2

    steps: list[Any] = []
    for each in kinds:
        steps += [put(o, last=each), Call(lambda: (values(3), 1))]
    return World(fn, steps, lambda: o)


@world(WRITES)
def gradients_flow_through_what_is_kept() -> World:
    o = _owner(h=None)
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        o.h = x * w if o.h is None else o.h * 0.5 + x * w
        return o.h

    def view(results: list[Any]) -> Any:
        (grad,) = torch.autograd.grad(results[-1].sum(), w, retain_graph=True)
        return results[-1], grad

    return World(fn, [on(3), on(3), on(3), on(3)], lambda: o.h, view=view)


@world(WRITES)
def kept_without_its_history() -> World:
    o = _owner(h=None)
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        h = x * w if o.h is None else o.h * 0.5 + x * w
        o.h = h.detach()
        return h

    def view(results: list[Any]) -> Any:
        return torch.autograd.grad(results[-1].sum(), w, retain_graph=True)

    return World(fn, [on(3), on(3), on(3), on(3)], lambda: o.h, view=view)


@world(WRITES)
def write_before_it_fails() -> World:
    o = _owner(calls=0, last=None)
    table = values(4, 2)

    def fn(x: Any) -> Any:
        o.calls += 1
        o.last = x + 1
        return torch.nn.functional.embedding(x, table)

    def call(*numbers: int) -> Call:
        return Call(lambda: (torch.tensor(numbers),))

    return World(
        fn, [call(1, 2), call(0, 3), call(1, 2, 3), call(1, 9), call(2, 2), call(7)], lambda: o
    )


@world(WRITES)
def write_before_a_check_fails() -> World:
    o = _owner(calls=0)

    def fn(x: Any) -> Any:
        o.calls += 1
        k = x.nonzero().shape[0]
        torch._check(k > 1, lambda: "too few")
        return x[:1] + k

    def call(*numbers: float) -> Call:
        return Call(lambda: (torch.tensor(numbers),))

    return World(fn, [call(1, 2), call(1, 2, 3), call(1, 0), call(3, 2)], lambda: o)


@world(WRITES)
def module_put_into_eval_and_back() -> World:
    m = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        m.eval()
        y = m(x)
        m.train()
        return y

    return World(
        fn, [on(3), on(3), lambda: m.eval(), on(3)], lambda: [each.training for each in m.modules()]
    )


@world(WRITES)
def module_already_in_eval() -> World:
    """The trace sees no difference, and a later call must make one."""
    m = nn.Sequential(nn.Identity()).eval()

    def fn(x: Any) -> Any:
        m.eval()
        return x * 2

    return World(
        fn, [on(3), lambda: m.train(), on(3)], lambda: [each.training for each in m.modules()]
    )


@world(WRITES)
def two_functions_share_what_is_kept() -> World:
    o = _owner(h=None, n=0)

    @symshape.compile
    def fill(x: Any) -> Any:
        o.h = x * 2
        o.n += 1
        return x

    def fn(x: Any) -> Any:
        return x.sum() + o.h * o.n

    def filled(size: int) -> Any:
        return lambda: fill(values(size)) is None

    return World(
        fn, [filled(3), on(3), filled(4), on(3), filled(5), on(4), filled(6), on(3)], lambda: o
    )


@world(WRITES)
def attribute_of_a_function() -> World:
    made = module("def fn(x):\n    fn.calls += 1\n    return x * fn.calls\nfn.calls = 0")
    return World(made.fn, list(SIZES), lambda: made.fn.calls)


@world(WRITES)
def attribute_of_an_object_argument() -> World:
    class C:
        calls = 0

    o = C()

    def fn(x: Any, o: Any) -> Any:
        o.calls += 1
        return x * o.calls

    call = Call(lambda: (values(3), o))
    return World(fn, [call, call, call], lambda: o)


@world(WRITES)
def size_kept_in_a_tuple() -> World:
    def write(o: Any, x: Any) -> Any:
        before, o.shape = o.shape, x.shape
        return x * 2 if before == x.shape else x * 3

    return _program(write, _owner(shape=None))


@world(WRITES)
def layout_of_what_is_kept() -> World:
    def write(o: Any, x: Any) -> Any:
        y = x.t() if o.h is None else torch.cat([o.h, x.t()], 1)
        o.h = y.t().contiguous().t()
        return y.sum(0)

    return _program(write, _owner(h=None), steps=[on(2, 3), on(1, 3), on(1, 3), on(2, 3), on(1, 3)])


@world(WRITES)
def integer_that_grows_beyond_64_bits() -> World:
    def write(o: Any, x: Any) -> Any:
        o.k = o.k * 65_536 + 1
        return x * 2

    return _program(write, _owner(k=1), steps=[on(3)] * 6)
