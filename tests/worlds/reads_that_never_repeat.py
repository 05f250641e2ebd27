"""Reads that never give the same twice (class 2 of issue 8)."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import functools
import io
import itertools
import os
import queue
import random
import secrets
import tempfile
import time
import types
import uuid
from typing import Any

import numpy as np

from tests.worlds.world import Call, World, item, module, on, values, world

NEVER = "2 reads that never repeat"
ON = on(3)


def _differ(results: list[Any]) -> bool:
    """Whether no two results are equal (for what two runs cannot have in common)."""
    return len({bytes(each.numpy().tobytes()) for each in results}) == len(results)


def _grow(results: list[Any]) -> bool:
    return all(bool((b > a).all()) for a, b in itertools.pairwise(results))


@world(NEVER)
def random_of_the_module() -> World:
    return World(lambda x: x * random.random(), [ON, ON])


@world(NEVER)
def random_function_by_another_name() -> World:
    m = module("from random import random as draw\ndef fn(x): return x * draw()")
    return World(m.fn, [ON, ON])


@world(NEVER)
def random_generator_in_an_attribute() -> World:
    held = types.SimpleNamespace(rng=random.Random(3))
    return World(lambda x: x * held.rng.random(), [ON, ON])


@world(NEVER)
def random_generator_in_a_closure() -> World:
    rng = random.Random(3)
    return World(lambda x: x * rng.random(), [ON, ON])


@world(NEVER)
def random_generator_in_a_list() -> World:
    rngs = [random.Random(3)]
    return World(lambda x: x * rngs[0].gauss(0, 1), [ON, ON])


@world(NEVER)
def random_method_bound_earlier() -> World:
    draw = random.Random(3).random
    return World(lambda x: x * draw(), [ON, ON])


@world(NEVER)
def random_inside_a_call_method() -> World:
    class Draw:
        def __call__(self) -> float:
            return random.random()

    draw = Draw()
    return World(lambda x: x * draw(), [ON, ON])


@world(NEVER)
def random_inside_a_property_of_a_package() -> World:
    m = module(
        "import random\nclass C:\n    @property\n    def k(self): return random.random()\nC0 = C()"
    )
    return World(lambda x: x * m.C0.k, [ON, ON])


@world(NEVER)
def random_shuffles_a_copy() -> World:
    ks = [1, 2, 3, 4, 5]

    def fn(x: Any) -> Any:
        return x * random.sample(ks, 5)[0]

    return World(fn, [ON, ON, ON])


@world(NEVER)
def random_layer_drop() -> World:
    def fn(x: Any) -> Any:
        for _ in range(8):
            if random.uniform(0, 1) < 0.5:
                x = x * 2
        return x

    return World(fn, [ON, ON, ON])


@world(NEVER)
def system_random() -> World:
    rng = random.SystemRandom()
    return World(lambda x: x * rng.random(), [ON, ON], view=_differ)


@world(NEVER)
def numpy_global() -> World:
    return World(lambda x: x * float(np.random.rand()), [ON, ON])


@world(NEVER)
def numpy_generator_in_a_closure() -> World:
    rng = np.random.default_rng(3)
    return World(lambda x: x * float(rng.random()), [ON, ON])


@world(NEVER)
def numpy_generator_in_an_attribute() -> World:
    held = types.SimpleNamespace(rng=np.random.default_rng(3))
    return World(lambda x: x * float(held.rng.random()), [ON, ON])


@world(NEVER)
def numpy_random_state() -> World:
    rng = np.random.RandomState(3)
    return World(lambda x: x * float(rng.rand()), [ON, ON])


@world(NEVER)
def iterator_in_a_closure() -> World:
    it = iter([2, 3, 4, 5])
    return World(lambda x: x * next(it), [ON, ON])


@world(NEVER)
def iterator_in_a_global() -> World:
    m = module("IT = iter([2, 3, 4, 5])\ndef fn(x): return x * next(IT)")
    return World(m.fn, [ON, ON])


@world(NEVER)
def iterator_exhausted() -> World:
    it = iter([2])
    return World(lambda x: x * next(it, 7), [ON, ON, ON])


@world(NEVER)
def iterator_argument() -> World:
    it = iter([2, 3, 4, 5, 6])
    return World(lambda x, it: x * next(it), [Call(lambda: (values(3), it))] * 2)


@world(NEVER)
def fresh_iterator_argument() -> World:
    return World(
        lambda x, it: x * sum(it),
        [Call(lambda: (values(3), iter([2, 3]))), Call(lambda: (values(3), iter([4])))],
    )


@world(NEVER)
def generator_argument() -> World:
    return World(
        lambda x, it: x * sum(it),
        [
            Call(lambda: (values(3), (k for k in [2, 3]))),
            Call(lambda: (values(3), (k for k in [4]))),
        ],
    )


@world(NEVER)
def generator_in_a_closure() -> World:
    def numbers() -> Any:
        k = 2
        while True:
            yield k
            k += 1

    it = numbers()
    return World(lambda x: x * next(it), [ON, ON])


@world(NEVER)
def generator_sent_to() -> World:
    def numbers() -> Any:
        total = 0
        while True:
            total += yield total

    it = numbers()
    next(it)
    return World(lambda x: x * it.send(2), [ON, ON])


@world(NEVER)
def counter_of_itertools() -> World:
    it = itertools.count(2)
    return World(lambda x: x * next(it), [ON, ON])


@world(NEVER)
def cycle_of_itertools() -> World:
    it = itertools.cycle([2, 3])
    return World(lambda x: x * next(it), [ON, ON, ON])


@world(NEVER)
def map_object() -> World:
    it = map(abs, [-2, -3, -4, -5])
    return World(lambda x: x * next(it), [ON, ON])


@world(NEVER)
def loop_over_a_shared_iterator() -> World:
    it = iter([2, 3, 4, 5, 6, 7])

    def fn(x: Any) -> Any:
        for k in it:
            x = x * k
            break
        return x

    return World(fn, [ON, ON])


@world(NEVER)
def queue_taken_from() -> World:
    q: queue.Queue[int] = queue.Queue()
    for k in range(2, 9):
        q.put(k)
    return World(lambda x: x * q.get_nowait(), [ON, ON], q.qsize)


@world(NEVER)
def deque_taken_from() -> World:
    ks = collections.deque([2, 3, 4, 5])
    return World(lambda x: x * ks.popleft(), [ON, ON], lambda: list(ks))


@world(NEVER)
def list_taken_from() -> World:
    ks = [2, 3, 4, 5]
    return World(lambda x: x * ks.pop(), [ON, ON], lambda: ks)


@world(NEVER)
def dict_taken_from() -> World:
    ks = {"a": 2, "b": 3, "c": 4, "d": 5}
    return World(lambda x: x * ks.popitem()[1], [ON, ON], lambda: ks)


@world(NEVER)
def long_list_taken_from() -> World:
    ks = list(range(2000))
    return World(lambda x: x * ks.pop(), [ON, ON], lambda: len(ks))


@world(NEVER)
def counter_in_a_slot() -> World:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = 1

    def fn(x: Any) -> Any:
        c.k += 1
        return x * c.k

    return World(fn, [ON, ON], lambda: c.k)


@world(NEVER)
def counter_in_an_array() -> World:
    ks = array.array("i", [1])

    def fn(x: Any) -> Any:
        ks[0] += 1
        return x * ks[0]

    return World(fn, [ON, ON], lambda: ks[0])


@world(NEVER)
def counter_in_a_numpy_array() -> World:
    ks = np.array([1])

    def fn(x: Any) -> Any:
        ks[0] += 1
        return x * int(ks[0])

    return World(fn, [ON, ON], lambda: ks)


@world(NEVER)
def counter_in_a_bytearray() -> World:
    ks = bytearray([1])

    def fn(x: Any) -> Any:
        ks[0] += 1
        return x * ks[0]

    return World(fn, [ON, ON], lambda: bytes(ks))


@world(NEVER)
def counter_in_a_function_attribute() -> World:
    m = module("def fn(x):\n    fn.k += 1\n    return x * fn.k\nfn.k = 1")
    return World(m.fn, [ON, ON], lambda: m.fn.k)


@world(NEVER)
def counter_in_a_helpers_attribute() -> World:
    m = module("def by():\n    by.k += 1\n    return by.k\nby.k = 1\ndef fn(x): return x * by()")
    return World(m.fn, [ON, ON], lambda: m.by.k)


@world(NEVER)
def counter_in_a_nonlocal() -> World:
    k = 1

    def fn(x: Any) -> Any:
        nonlocal k
        k += 1
        return x * k

    return World(fn, [ON, ON], lambda: k)


@world(NEVER)
def counter_in_a_global() -> World:
    m = module("K = 1\ndef fn(x):\n    global K\n    K += 1\n    return x * K")
    return World(m.fn, [ON, ON], lambda: m.K)


@world(NEVER)
def counter_in_a_class() -> World:
    class C:
        k = 1

    def fn(x: Any) -> Any:
        C.k += 1
        return x * C.k

    return World(fn, [ON, ON], lambda: C.k)


@world(NEVER)
def counter_in_a_default() -> World:
    m = module("def fn(x, ks=[1]):\n    ks[0] += 1\n    return x * ks[0]")
    return World(m.fn, [ON, ON], lambda: m.fn.__defaults__)


@world(NEVER)
def counter_in_a_context_variable() -> World:
    var = contextvars.ContextVar("var", default=1)

    def fn(x: Any) -> Any:
        var.set(var.get() + 1)
        return x * var.get()

    return World(fn, [ON, ON], var.get)


@world(NEVER)
def counter_in_the_environment() -> World:
    os.environ["A_WORLD"] = "1"

    def fn(x: Any) -> Any:
        os.environ["A_WORLD"] += "1"
        return x * int(os.environ["A_WORLD"])

    return World(fn, [ON, ON], lambda: os.environ["A_WORLD"])


@world(NEVER)
def counter_in_a_tensor_attribute() -> World:
    w = values(3)
    w.k = 1  # type: ignore[attr-defined]

    def fn(x: Any) -> Any:
        w.k += 1  # type: ignore[attr-defined]
        return x * w * w.k  # type: ignore[attr-defined]

    return World(fn, [ON, ON], lambda: w.k)  # type: ignore[attr-defined]


@world(NEVER)
def counter_behind_a_property() -> World:
    class C:
        def __init__(self) -> None:
            self.hidden = 1

        @property
        def k(self) -> int:
            self.hidden += 1
            return self.hidden

    c = C()
    return World(lambda x: x * c.k, [ON, ON], lambda: c.hidden)


@world(NEVER)
def counter_in_an_installed_package() -> World:
    from tests.worlds.world import installed

    package = installed("K = [1]\ndef by(x):\n    K[0] += 1\n    return x * K[0]")
    return World(lambda x: package.by(x), [ON, ON], lambda: package.K)


@world(NEVER)
def counter_in_an_instance_of_a_package() -> World:
    from tests.worlds.world import installed

    package = installed(
        "class C:\n    def __init__(self): self.k = 1\n"
        "    def by(self, x):\n        self.k += 1\n        return x * self.k"
    )
    c = package.C()
    return World(lambda x: c.by(x), [ON, ON], lambda: c.k)


@world(NEVER)
def lru_cache_counts() -> World:
    @functools.lru_cache
    def by(k: int) -> int:
        return k

    def fn(x: Any) -> Any:
        by(2)
        return x * by.cache_info().hits

    return World(fn, [ON, ON, ON])


@world(NEVER)
def the_time() -> World:
    return World(
        lambda x: x.double() * 0 + time.time_ns() % 10**12,
        [ON, lambda: time.sleep(0.002), ON],
        view=_grow,
    )


@world(NEVER)
def the_performance_counter() -> World:
    return World(
        lambda x: x.double() * 0 + time.perf_counter(),
        [ON, lambda: time.sleep(0.002), ON],
        view=_grow,
    )


@world(NEVER)
def the_process_time() -> World:
    return World(
        lambda x: x.double() * 0 + time.process_time_ns(),
        [ON, lambda: sum(range(99999)), ON],
        view=_grow,
    )


@world(NEVER)
def the_date() -> World:
    def fn(x: Any) -> Any:
        return x.double() * 0 + datetime.datetime.now().timestamp() % 10**5

    return World(fn, [ON, lambda: time.sleep(0.002), ON], view=_differ)


@world(NEVER)
def a_clock_of_the_users() -> World:
    clock = [5.0]
    m = module("def fn(x): return x * now()", now=lambda: clock[0])
    return World(m.fn, [ON, item(clock, 0, 6.0), ON])


@world(NEVER)
def secrets_of_the_system() -> World:
    return World(lambda x: x.double() * 0 + secrets.randbelow(2**50), [ON, ON], view=_differ)


@world(NEVER)
def bytes_of_the_system() -> World:
    def fn(x: Any) -> Any:
        return x.double() * 0 + int.from_bytes(os.urandom(6), "little")

    return World(fn, [ON, ON], view=_differ)


@world(NEVER)
def unique_identifier() -> World:
    return World(lambda x: x.double() * 0 + uuid.uuid4().int % 2**50, [ON, ON], view=_differ)


@world(NEVER)
def file_read_on() -> World:
    file = tempfile.TemporaryFile("w+")  # noqa: SIM115
    file.write("2\n3\n4\n5\n")
    file.seek(0)
    return World(lambda x: x * int(file.readline()), [ON, ON], file.tell, undo=file.close)


@world(NEVER)
def text_buffer_read_on() -> World:
    text = io.StringIO("23456")
    return World(lambda x: x * int(text.read(1)), [ON, ON], text.tell)


@world(NEVER)
def fields_read_on_by_csv() -> World:
    import csv

    rows = csv.reader(["2", "3", "4", "5"])
    return World(lambda x: x * int(next(rows)[0]), [ON, ON])
