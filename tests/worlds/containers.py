"""Containers and memory that a program reads, and that change between calls (class 1 of issue
8).
"""

from __future__ import annotations

import array
import collections
import ctypes
import io
import queue
import types
import weakref
from typing import Any

import numpy as np
import torch

from tests.worlds.world import World, item, on, values, world

CONTAINERS = "1 containers"
ON = on(3)


@world(CONTAINERS)
def list_beyond_a_thousand() -> World:
    ks = list(range(2000))
    return World(lambda x: x * ks[1500], [ON, item(ks, 1500, 7), ON])


@world(CONTAINERS)
def dict_beyond_a_thousand() -> World:
    ks = {str(i): i for i in range(2000)}
    return World(lambda x: x * ks["1500"], [ON, item(ks, "1500", 7), ON])


@world(CONTAINERS)
def set_beyond_a_thousand() -> World:
    ks = set(range(2000))
    return World(lambda x: x * 2 if 1500 in ks else x * 3, [ON, lambda: ks.discard(1500), ON])


@world(CONTAINERS)
def list_of_functions_beyond_a_thousand() -> World:
    acts = [torch.relu] * 2000
    return World(lambda x: acts[3](x), [ON, item(acts, 3, torch.tanh), ON])


@world(CONTAINERS)
def nested_list_in_a_long_tuple() -> World:
    ks = tuple([i] for i in range(1500))
    return World(lambda x: x * ks[2][0], [ON, item(ks[2], 0, 3), ON])


@world(CONTAINERS)
def list_grows_to_beyond_a_thousand() -> World:
    ks = [1] * 900
    return World(lambda x: x * sum(ks), [ON, lambda: ks.extend([1] * 900), ON, item(ks, 0, 5), ON])


@world(CONTAINERS)
def deque_item() -> World:
    ks = collections.deque([2])
    return World(lambda x: x * ks[0], [ON, item(ks, 0, 3), ON])


@world(CONTAINERS)
def user_dict() -> World:
    ks = collections.UserDict(k=2)
    return World(lambda x: x * ks["k"], [ON, item(ks, "k", 3), ON])


@world(CONTAINERS)
def user_list() -> World:
    ks = collections.UserList([2])
    return World(lambda x: x * ks[0], [ON, item(ks, 0, 3), ON])


@world(CONTAINERS)
def chain_map() -> World:
    below = {"k": 2}
    ks = collections.ChainMap({}, below)
    return World(
        lambda x: x * ks["k"], [ON, item(ks, "k", 3), ON, ks.clear, item(below, "k", 4), ON]
    )


@world(CONTAINERS)
def mapping_proxy() -> World:
    below = {"k": 2}
    ks = types.MappingProxyType(below)
    return World(lambda x: x * ks["k"], [ON, item(below, "k", 3), ON])


@world(CONTAINERS)
def view_of_a_dict() -> World:
    below = {"k": 2}
    held = below.values()
    return World(lambda x: x * sum(held), [ON, item(below, "k", 3), ON])


@world(CONTAINERS)
def ordered_dict_reordered() -> World:
    ks = collections.OrderedDict(a=2, b=3)
    return World(lambda x: x * next(iter(ks.values())), [ON, lambda: ks.move_to_end("a"), ON])


@world(CONTAINERS)
def dict_reordered() -> World:
    ks = {"a": 2, "b": 3}
    return World(
        lambda x: x * next(iter(ks.values())), [ON, lambda: item(ks, "a", ks.pop("a"))(), ON]
    )


@world(CONTAINERS)
def counter() -> World:
    ks = collections.Counter("aab")
    return World(lambda x: x * ks["a"], [ON, lambda: ks.update("a"), ON])


@world(CONTAINERS)
def factory_of_a_default_dict() -> World:
    ks: Any = collections.defaultdict(lambda: 2)

    def change() -> None:
        ks.clear()
        ks.default_factory = lambda: 3

    return World(lambda x: x * ks["k"], [ON, change, ON], lambda: dict(ks))


@world(CONTAINERS)
def byte_array() -> World:
    ks = bytearray([2])
    return World(lambda x: x * ks[0], [ON, item(ks, 0, 3), ON])


@world(CONTAINERS)
def memory_view() -> World:
    below = bytearray([2, 4])
    ks = memoryview(below)[:1]
    return World(lambda x: x * ks[0], [ON, item(below, 0, 3), ON])


@world(CONTAINERS)
def array_of_numbers() -> World:
    ks = array.array("d", [2.0])
    return World(lambda x: x * ks[0], [ON, item(ks, 0, 3.0), ON])


@world(CONTAINERS)
def c_number() -> World:
    k = ctypes.c_int(2)
    return World(lambda x: x * k.value, [ON, lambda: setattr(k, "value", 3), ON])


@world(CONTAINERS)
def numpy_element() -> World:
    ks = np.array([2.0])
    return World(lambda x: x * float(ks[0]), [ON, item(ks, 0, 3.0), ON])


@world(CONTAINERS)
def numpy_from_numpy() -> World:
    ks = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    return World(lambda x: x * torch.from_numpy(ks), [ON, item(ks, 0, 5.0), ON])


@world(CONTAINERS)
def numpy_as_tensor() -> World:
    ks = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    return World(lambda x: x * torch.tensor(ks), [ON, item(ks, 0, 5.0), ON])


@world(CONTAINERS)
def numpy_sum_of_a_large_array() -> World:
    ks = np.ones(5000, dtype=np.float32)
    return World(lambda x: x * int(ks.sum()), [ON, item(ks, 9, 5.0), ON])


@world(CONTAINERS)
def numpy_array_operand() -> World:
    ks = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    return World(lambda x: x + torch.as_tensor(ks), [ON, item(ks, 0, 5.0), ON])


@world(CONTAINERS)
def numpy_object_array() -> World:
    ks = np.array([None, None], dtype=object)
    ks[0] = torch.relu
    return World(lambda x: ks[0](x), [ON, item(ks, 0, torch.tanh), ON])


@world(CONTAINERS)
def torch_tensor_of_a_list() -> World:
    ks = [2.0, 3.0, 4.0]
    return World(lambda x: x * torch.tensor(ks), [ON, item(ks, 0, 5.0), ON])


@world(CONTAINERS)
def buffer_read_by_frombuffer() -> World:
    ks = bytearray(values(3).numpy().tobytes())
    return World(
        lambda x: x + torch.frombuffer(ks, dtype=torch.uint8)[:3], [ON, item(ks, 0, 7), ON]
    )


@world(CONTAINERS)
def tensor_in_a_list_rewritten() -> World:
    ws = [values(3)]
    return World(lambda x: x * ws[0], [ON, lambda: ws[0].mul_(2), ON])


@world(CONTAINERS)
def tensor_in_a_list_replaced() -> World:
    ws = [values(3)]
    return World(lambda x: x * ws[0], [ON, lambda: item(ws, 0, values(3) + 1)(), ON])


@world(CONTAINERS)
def data_of_a_tensor_in_a_list() -> World:
    ws = [values(3)]
    return World(lambda x: x * ws[0].sum(), [ON, lambda: setattr(ws[0], "data", values(2, 2)), ON])


@world(CONTAINERS)
def tensor_in_a_dict_resized() -> World:
    ws = {"w": values(4)}
    return World(lambda x: ws["w"].new_ones(ws["w"].shape), [ON, lambda: ws["w"].resize_(2), ON])


@world(CONTAINERS)
def dtype_of_a_tensor_in_a_list() -> World:
    ws = [values(3)]
    return World(
        lambda x: x * ws[0],
        [ON, lambda: setattr(ws[0], "data", values(3, dtype=torch.float64)), ON],
    )


@world(CONTAINERS)
def requires_grad_of_a_tensor_in_a_list() -> World:
    ws = [values(3)]
    return World(lambda x: x * ws[0], [ON, lambda: ws[0].requires_grad_(), ON])


@world(CONTAINERS)
def tensor_in_a_set() -> World:
    ws = {values(3)}

    def fn(x: Any) -> Any:
        for each in ws:
            x = x * each
        return x

    return World(fn, [ON, lambda: ws.add(values(3) + 1), ON])


@world(CONTAINERS)
def tensor_in_a_deque() -> World:
    ws = collections.deque([values(3)])
    return World(lambda x: x * ws[0], [ON, lambda: ws.appendleft(values(3) + 1), ON])


@world(CONTAINERS)
def number_of_a_tensor_read() -> World:
    w = torch.tensor(2.0)
    return World(lambda x: x * float(w), [ON, lambda: w.fill_(3.0), ON])


@world(CONTAINERS)
def element_of_a_storage_read() -> World:
    w = torch.tensor([2.0])
    storage = w.untyped_storage()
    return World(lambda x: x * storage[3], [ON, lambda: w.fill_(3e9), ON])


@world(CONTAINERS)
def queue_peeked() -> World:
    q: queue.Queue[int] = queue.Queue()
    q.put(2)
    return World(lambda x: x * q.queue[0], [ON, lambda: q.queue.appendleft(3), ON])


@world(CONTAINERS)
def weak_value_dictionary() -> World:
    class C:
        k = 2

    owner = [C()]
    ks: Any = weakref.WeakValueDictionary(k=owner[0])
    return World(lambda x: x * 2 if "k" in ks else x * 3, [ON, owner.clear, ON])


@world(CONTAINERS)
def weak_key_dictionary() -> World:
    class C:
        pass

    key = C()
    ks: Any = weakref.WeakKeyDictionary({key: 2})
    return World(lambda x: x * ks[key], [ON, item(ks, key, 3), ON])


@world(CONTAINERS)
def text_buffer_read_whole() -> World:
    text = io.StringIO("ab")
    return World(
        lambda x: x * len(text.getvalue()), [ON, lambda: text.seek(0, 2) and text.write("c"), ON]
    )


@world(CONTAINERS)
def list_subclass_attribute() -> World:
    class L(list):  # type: ignore[type-arg]
        pass

    ks = L([1])
    ks.k = 2
    return World(lambda x: x * ks.k, [ON, lambda: setattr(ks, "k", 3), ON])


@world(CONTAINERS)
def list_three_deep() -> World:
    ks: Any = [[[2]]]
    return World(lambda x: x * ks[0][0][0], [ON, lambda: item(ks[0][0], 0, 3)(), ON])


@world(CONTAINERS)
def value_becomes_alike() -> World:
    ks: list[Any] = [1]
    return World(lambda x: x.int() * ks[0], [ON, item(ks, 0, 1.0), ON, item(ks, 0, True), ON])


@world(CONTAINERS)
def negative_zero_in_a_list() -> World:
    ks = [0.0]
    return World(lambda x: torch.copysign(x, torch.tensor(ks[0])), [ON, item(ks, 0, -0.0), ON])


@world(CONTAINERS)
def keys_become_alike() -> World:
    ks: dict[Any, int] = {1: 2}

    def fn(x: Any) -> Any:
        return x * 2 if isinstance(next(iter(ks)), bool) else x * 3

    return World(fn, [ON, lambda: ks.clear() or item(ks, True, 2)(), ON])


@world(CONTAINERS)
def set_changes_members() -> World:
    ks = {2, 3}
    return World(lambda x: x * max(ks), [ON, lambda: ks.discard(3) or ks.add(5), ON])


@world(CONTAINERS)
def container_holds_itself() -> World:
    ks: list[Any] = [2]
    ks.append(ks)
    return World(lambda x: x * ks[1][1][0], [ON, item(ks, 0, 3), ON])
