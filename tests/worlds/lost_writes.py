"""Writes of a program that a graph would not do again (class 3 of issue 8)."""

from __future__ import annotations

import array
import collections
import contextvars
import io
import json
import logging
import os
import queue
import sys
import tempfile
import threading
import types
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.worlds.world import Call, World, installed, module, on, values, world

WRITES = "3 lost writes"
ON = on(3)


def _argument(write: Any, make: Any) -> World:
    """A program that writes into its second argument; each call has a fresh one, and one that is
    kept.
    """
    kept = make()

    def fn(x: Any, into: Any) -> Any:
        write(into, x)
        return x * 2

    fresh = Call(lambda: (values(3), make()))
    return World(
        fn,
        [fresh, fresh, Call(lambda: (values(3), kept)), Call(lambda: (values(3), kept))],
        lambda: kept,
    )


def _outside(write: Any, into: Any, observe: Any = None) -> World:
    """A program that writes into an object outside."""

    def fn(x: Any) -> Any:
        write(into, x)
        return x * 2

    return World(fn, [ON, ON, ON], observe or (lambda: into))


@world(WRITES)
def dict_argument_gains_an_item() -> World:
    return _argument(lambda d, x: d.update(new=x + 1), dict)


@world(WRITES)
def dict_argument_loses_an_item() -> World:
    return _argument(lambda d, x: d.pop("k", None), lambda: {"k": 1, "l": 2})


@world(WRITES)
def dict_argument_number_counts() -> World:
    def write(d: Any, x: Any) -> None:
        d["n"] += 1

    return _argument(write, lambda: {"n": 1})


@world(WRITES)
def list_argument_appended_to() -> World:
    return _argument(lambda ks, x: ks.append(x + 1), list)


@world(WRITES)
def list_argument_item_replaced() -> World:
    return _argument(lambda ks, x: ks.__setitem__(0, x + 1), lambda: [values(3)])


@world(WRITES)
def list_argument_reversed() -> World:
    return _argument(lambda ks, x: ks.reverse(), lambda: [1, 2, 3])


@world(WRITES)
def list_argument_cleared() -> World:
    return _argument(lambda ks, x: ks.clear(), lambda: [values(2), values(3)])


@world(WRITES)
def list_argument_extended_in_place() -> World:
    def write(ks: Any, x: Any) -> None:
        ks += [x.shape[0]]

    return _argument(write, list)


@world(WRITES)
def nested_argument_appended_to() -> World:
    return _argument(lambda d, x: d["a"][0].append(3), lambda: {"a": [[]]})


@world(WRITES)
def set_argument_added_to() -> World:
    return _argument(lambda ks, x: ks.add(3), set)


@world(WRITES)
def deque_argument_appended_to() -> World:
    return _argument(lambda ks, x: ks.append(3), collections.deque)


@world(WRITES)
def object_argument_attribute_set() -> World:
    return _argument(lambda o, x: setattr(o, "k", o.k + 1), lambda: types.SimpleNamespace(k=1))


@world(WRITES)
def object_argument_keeps_a_tensor() -> World:
    return _argument(lambda o, x: setattr(o, "out", x + 1), types.SimpleNamespace)


@world(WRITES)
def cache_argument_of_past_keys() -> World:
    class Cache:
        def __init__(self) -> None:
            self.keys: Any = None

        def update(self, x: Any) -> Any:
            self.keys = x if self.keys is None else torch.cat([self.keys, x])
            return self.keys

    return _argument(lambda cache, x: cache.update(x), Cache)


@world(WRITES)
def attribute_of_a_tensor_argument_set() -> World:
    def fn(x: Any) -> Any:
        x.seen = True
        return x * 2

    return World(fn, [ON, ON])


@world(WRITES)
def list_argument_is_returned() -> World:
    call = Call(lambda: ([values(3), 2],))
    return World(lambda ks: ks, [call, call])


@world(WRITES)
def list_outside_appended_to() -> World:
    return _outside(lambda ks, x: ks.append(1), [])


@world(WRITES)
def list_outside_gains_a_tensor() -> World:
    return _outside(lambda ks, x: ks.append(x + 1), [])


@world(WRITES)
def list_outside_gains_a_size() -> World:
    ks: list[int] = []

    def fn(x: Any) -> Any:
        ks.append(x.shape[0])
        return x * 2

    return World(fn, [ON, on(4), on(5)], lambda: ks)


@world(WRITES)
def long_list_outside_appended_to() -> World:
    return _outside(lambda ks, x: ks.append(1), [0] * 2000)


@world(WRITES)
def deque_outside_appended_to() -> World:
    return _outside(lambda ks, x: ks.append(1), collections.deque())


@world(WRITES)
def ring_outside_appended_to() -> World:
    return _outside(lambda ks, x: ks.append(len(ks)), collections.deque(maxlen=2))


@world(WRITES)
def counter_outside_updated() -> World:
    return _outside(lambda ks, x: ks.update("a"), collections.Counter())


@world(WRITES)
def default_dict_grows_by_reading() -> World:
    return _outside(lambda ks, x: ks["a"], collections.defaultdict(int))


@world(WRITES)
def user_dict_outside_updated() -> World:
    def write(d: Any, x: Any) -> None:
        d["n"] = d.get("n", 0) + 1

    return _outside(write, collections.UserDict())


@world(WRITES)
def set_outside_added_to() -> World:
    def write(ks: Any, x: Any) -> None:
        ks.add(len(ks))

    return _outside(write, set())


@world(WRITES)
def numpy_array_outside_written() -> World:
    def write(a: Any, x: Any) -> None:
        a[0] += 1

    return _outside(write, np.zeros(2))


@world(WRITES)
def array_outside_written() -> World:
    into = array.array("i", [0])

    def write(a: Any, x: Any) -> None:
        a[0] += 1

    return _outside(write, into, lambda: list(into))


@world(WRITES)
def bytes_outside_written() -> World:
    into = bytearray(1)

    def write(a: Any, x: Any) -> None:
        a[0] += 1

    return _outside(write, into, lambda: bytes(into))


@world(WRITES)
def queue_outside_filled() -> World:
    into: queue.Queue[int] = queue.Queue()
    return _outside(lambda q, x: q.put(1), into, into.qsize)


@world(WRITES)
def printed_to_the_screen() -> World:
    return World(lambda x: print("hello") or x * 2, [ON, ON])


@world(WRITES)
def printed_size() -> World:
    return World(lambda x: print(x.shape[0]) or x * 2, [ON, on(4), on(5), on(4)])


@world(WRITES)
def printed_to_a_file() -> World:
    into = io.StringIO()
    return _outside(lambda file, x: print("hello", file=file), into, into.getvalue)


@world(WRITES)
def written_to_the_screen() -> World:
    return World(lambda x: x * sys.stdout.write("ab"), [ON, ON])


@world(WRITES)
def written_to_a_text_buffer() -> World:
    into = io.StringIO()
    return _outside(lambda file, x: file.write("hello"), into, into.getvalue)


@world(WRITES)
def written_to_a_file() -> World:
    file = tempfile.TemporaryFile("w+")  # noqa: SIM115
    return World(lambda x: x * file.write("ab"), [ON, ON], file.tell, undo=file.close)


@world(WRITES)
def written_by_json() -> World:
    into = io.StringIO()
    return _outside(lambda file, x: json.dump([x.shape[0]], file), into, into.getvalue)


@world(WRITES)
def logged() -> World:
    lines: list[str] = []
    logger = logging.Logger("a_world")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger.addHandler(Handler())
    return World(
        lambda x: logger.warning("size %d", x.shape[0]) or x * 2,
        [ON, on(4), on(5), on(4)],
        lambda: lines,
    )


@world(WRITES)
def warned() -> World:
    lines: list[str] = []
    before = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: lines.append(str(message))  # type: ignore[assignment]

    def fn(x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a world", stacklevel=1)
        return x * 2

    return World(
        fn, [ON, ON], lambda: list(lines), undo=lambda: setattr(warnings, "showwarning", before)
    )


@world(WRITES)
def callback_called() -> World:
    seen: list[Any] = []

    class Callback:
        def __call__(self, value: Any) -> None:
            seen.append(value)

    callback = Callback()
    return World(lambda x: callback(1) or x * 2, [ON, ON], lambda: seen)


@world(WRITES)
def grad_mode_left_off() -> World:
    def fn(x: Any) -> Any:
        torch.set_grad_enabled(False)
        return x * 2

    return World(fn, [ON, lambda: torch.set_grad_enabled(True), ON])


@world(WRITES)
def default_dtype_left_changed() -> World:
    def fn(x: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        return x * 2

    return World(fn, [ON, lambda: torch.set_default_dtype(torch.float32), ON])


@world(WRITES)
def autocast_left_on() -> World:
    def fn(x: Any) -> Any:
        torch.set_autocast_enabled("cpu", True)
        return x * 2

    off = lambda: torch.set_autocast_enabled("cpu", False)  # noqa: E731
    return World(fn, [ON, off, ON, off])


@world(WRITES)
def determinism_left_on() -> World:
    def fn(x: Any) -> Any:
        torch.use_deterministic_algorithms(True)
        return x * 2

    return World(fn, [ON, lambda: torch.use_deterministic_algorithms(False), ON])


@world(WRITES)
def number_of_threads_left_changed() -> World:
    before = torch.get_num_threads()

    def fn(x: Any) -> Any:
        torch.set_num_threads(before + 1)
        return x * 2

    return World(fn, [ON, lambda: torch.set_num_threads(before), ON])


@world(WRITES)
def attribute_of_a_parameter_set() -> World:
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        w.calls = getattr(w, "calls", 0) + 1
        return x * w

    return World(fn, [ON, ON], lambda: w.calls)


@world(WRITES)
def function_attribute_set() -> World:
    m = module("def fn(x):\n    fn.last = x.shape[0]\n    return x * 2")
    return World(m.fn, [ON, on(4), on(5), on(4)], lambda: m.fn.last)


@world(WRITES)
def slot_set() -> World:
    class C:
        __slots__ = ("last",)

    c = C()

    def fn(x: Any) -> Any:
        c.last = x.shape[0]
        return x * 2

    return World(fn, [ON, on(4), on(5), on(4)], lambda: c.last)


@world(WRITES)
def slot_keeps_a_tensor() -> World:
    class C:
        __slots__ = ("last",)

    c = C()

    def fn(x: Any) -> Any:
        c.last = x * 3
        return x * 2

    return World(fn, [ON, on(4), ON], lambda: c.last)


@world(WRITES)
def class_attribute_set() -> World:
    class C:
        calls = 0

    def fn(x: Any) -> Any:
        C.calls += 1
        return x * 2

    return World(fn, [ON, ON], lambda: C.calls)


@world(WRITES)
def descriptor_set() -> World:
    seen: list[Any] = []

    class C:
        @property
        def k(self) -> int:
            return 1

        @k.setter
        def k(self, value: int) -> None:
            seen.append(value)

    c = C()

    def fn(x: Any) -> Any:
        c.k = 2
        return x * 2

    return World(fn, [ON, ON], lambda: seen)


@world(WRITES)
def setattr_method_notes() -> World:
    class C:
        def __setattr__(self, name: str, value: Any) -> None:
            noted[name] = noted.get(name, 0) + 1

    c, noted = C(), collections.UserDict[str, int]()

    def fn(x: Any) -> Any:
        c.k = 2
        return x * 2

    return World(fn, [ON, ON], lambda: noted.data)


@world(WRITES)
def environment_set() -> World:
    os.environ["A_WORLD"] = "0"

    def fn(x: Any) -> Any:
        os.environ["A_WORLD"] += "1"
        return x * 2

    return World(fn, [ON, ON], lambda: os.environ["A_WORLD"])


@world(WRITES)
def context_variable_set() -> World:
    var = contextvars.ContextVar("var", default=0)

    def fn(x: Any) -> Any:
        var.set(x.shape[0])
        return x * 2

    return World(fn, [ON, on(4), on(5), on(4)], var.get)


@world(WRITES)
def thread_local_set() -> World:
    local = threading.local()

    def fn(x: Any) -> Any:
        local.k = x.shape[0]
        return x * 2

    return World(fn, [ON, on(4), on(5), on(4)], lambda: local.k)


@world(WRITES)
def global_set_by_key() -> World:
    m = module('K = 0\ndef fn(x):\n    globals()["".join("K")] += 1\n    return x * 2')
    return World(m.fn, [ON, ON], lambda: m.K)


@world(WRITES)
def global_of_another_module_set() -> World:
    other = module("K = 0")

    def fn(x: Any) -> Any:
        other.K = other.K + 1
        return x * 2

    return World(fn, [ON, ON], lambda: other.K)


@world(WRITES)
def global_of_an_installed_package_set() -> World:
    package = installed("K = 0\ndef note():\n    global K\n    K += 1")
    return World(lambda x: package.note() or x * 2, [ON, ON], lambda: package.K)


@world(WRITES)
def gradient_left_by_backward() -> World:
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        (w * x).sum().backward()
        return x * 2

    return World(fn, [ON, ON], lambda: w.grad)


@world(WRITES)
def gradient_of_an_argument_left_by_backward() -> World:
    def fn(x: Any) -> Any:
        (x * x).sum().backward()
        return x.detach() * 2

    return World(fn, [on(3, grad=True), on(3, grad=True)])


@world(WRITES)
def gradient_set_to_none() -> World:
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        w.grad = None
        return x * 2

    return World(fn, [ON, lambda: setattr(w, "grad", torch.ones(3)), ON], lambda: w.grad is None)


@world(WRITES)
def argument_requires_grad() -> World:
    def fn(x: Any) -> Any:
        x.requires_grad_()
        return x * 2

    return World(fn, [ON, ON])


@world(WRITES)
def argument_resized() -> World:
    def fn(x: Any) -> Any:
        x.resize_(2)
        return x * 2

    return World(fn, [ON, ON])


@world(WRITES)
def argument_transposed_in_place() -> World:
    def fn(x: Any) -> Any:
        x.t_()
        return x * 2

    return World(fn, [on(2, 3), on(2, 3)])


@world(WRITES)
def data_of_an_argument_set() -> World:
    def fn(x: Any) -> Any:
        x.data = x.data * 2
        return x * 2

    return World(fn, [ON, ON])


@world(WRITES)
def hook_registered_on_an_argument() -> World:
    seen: list[int] = []

    def fn(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: seen.append(1))
        return y.sum()

    def backward() -> tuple[Any, ...]:
        return (values(3).requires_grad_(),)

    wrapped = Call(backward)
    return World(fn, [wrapped, wrapped], lambda: seen, view=lambda results: results[-1].backward())


@world(WRITES)
def module_put_into_eval() -> World:
    m = nn.Dropout(0.5)

    def fn(x: Any) -> Any:
        m.eval()
        return m(x)

    return World(fn, [ON, lambda: m.train(), ON], lambda: m.training)


@world(WRITES)
def parameter_frozen() -> World:
    w = nn.Parameter(values(3))

    def fn(x: Any) -> Any:
        w.requires_grad_(False)
        return x * 2

    return World(fn, [ON, lambda: w.requires_grad_(True), ON], lambda: w.requires_grad)


@world(WRITES)
def buffer_registered_while_running() -> World:
    class M(nn.Module):
        def forward(self, x: Any) -> Any:
            if not hasattr(self, "mean"):
                self.register_buffer("mean", x.mean())
            return x - self.mean

    m = M()
    return World(m, [ON, Call(lambda: (values(3) * 2,))], lambda: dict(m.named_buffers()))


@world(WRITES)
def buffer_written_in_place() -> World:
    m = nn.BatchNorm1d(3, affine=False)

    def fn(x: Any) -> Any:
        m.running_mean.add_(x)  # type: ignore[union-attr]
        return x * 2

    return World(fn, [ON, ON], lambda: m.running_mean)


@world(WRITES)
def tensor_in_a_deque_written_in_place() -> World:
    ws = collections.deque([values(3)])

    def fn(x: Any) -> Any:
        ws[0].add_(x)
        return x * 2

    return World(fn, [ON, ON], lambda: ws[0])


@world(WRITES)
def write_before_an_exception() -> World:
    seen: list[int] = []

    def fn(x: Any) -> Any:
        seen.append(1)
        x.add_(1)
        raise KeyError("a world")

    return World(fn, [ON, ON], lambda: seen)


@world(WRITES)
def write_in_finally() -> World:
    class Note:
        calls = 0

    def fn(x: Any) -> Any:
        try:
            return x * 2
        finally:
            Note.calls += 1

    return World(fn, [ON, ON], lambda: Note.calls)


@world(WRITES)
def write_by_leaving_a_context() -> World:
    seen = collections.deque[int]()

    class Context:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> None:
            seen.append(1)

    def fn(x: Any) -> Any:
        with Context():
            return x * 2

    return World(fn, [ON, ON], lambda: list(seen))


@world(WRITES)
def write_by_a_finaliser() -> World:
    seen = collections.deque[int]()

    class C:
        def __del__(self) -> None:
            seen.append(1)

    def fn(x: Any) -> Any:
        C()
        return x * 2

    return World(fn, [ON, ON], lambda: list(seen))


@world(WRITES)
def write_by_a_module_hook() -> World:
    seen = collections.deque[int]()
    m = nn.ReLU()
    m.register_forward_hook(lambda mod, args, out: seen.append(1))
    return World(nn.Sequential(m), [ON, ON], lambda: list(seen))


@world(WRITES)
def activations_kept_by_a_hook() -> World:
    kept: dict[str, Any] = {}
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    m[0].register_forward_hook(lambda mod, args, out: kept.update(out=out))
    return World(m, [ON, Call(lambda: (values(3) * 2,))], lambda: kept)


@world(WRITES)
def write_from_a_thread() -> World:
    seen = collections.deque[int]()

    def fn(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(1))
        thread.start()
        thread.join()
        return x * 2

    return World(fn, [ON, ON], lambda: list(seen))


@world(WRITES)
def python_random_seeded() -> World:
    import random

    def fn(x: Any) -> Any:
        random.seed(3)
        return x * 2

    return World(fn, [ON, random.random, ON])


@world(WRITES)
def generator_function() -> World:
    def fn(x: Any) -> Any:
        yield x * 2
        yield x * 3

    return World(fn, [ON, ON], view=lambda results: list(results[-1]))


@world(WRITES)
def coroutine_function() -> World:
    async def fn(x: Any) -> Any:
        return x * 2

    def run(results: list[Any]) -> Any:
        try:
            results[-1].send(None)
        except StopIteration as stop:
            return stop.value

    return World(fn, [ON, ON], view=run)
