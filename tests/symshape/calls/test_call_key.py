"""Keys and readings of calls: equal exactly where two calls differ in nothing that a program may depend on."""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from symshape.calls.arguments import take_apart, values_of
from symshape.calls.call_key import lasting_key, quick_key, read
from tests.symshape.eager import metadata

BASE = torch.arange(24.0).view(4, 6)
LEAVES: list[Any] = [
    BASE,
    BASE.clone(),
    BASE.double(),
    BASE.t(),
    BASE[1:],
    BASE[:, 1:],
    BASE[:, ::2],
    BASE[1:2],
    BASE.view(-1),
    BASE.to("meta"),
    BASE.clone().requires_grad_(),
    torch.nn.Parameter(BASE.clone()),
    torch.tensor(1.0),
    torch.tensor(1),
    torch.empty(0, 3),
    *(0, 1, 5, 2**70, -1, True, False, None, 0.0, -0.0, 1.0, float("nan"), "a", "", "True", torch.float32),
]


def facts(leaf: Any) -> Any:
    """All that may count, spelled out."""
    if isinstance(leaf, torch.Tensor):
        dtype, device, shape, _, offset, gradient = metadata(leaf)
        return "tensor", dtype, device, shape, None if leaf.is_contiguous() else leaf.stride(), offset, gradient[0]
    return type(leaf), repr(leaf)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_keys_mean_equal_calls(count: int) -> None:
    rng = random.Random(count)
    calls = [tuple(rng.choice(LEAVES) for _ in range(count)) for _ in range(400)]
    if count == 1:
        calls = [(leaf,) for leaf in LEAVES]
    keyed: dict[Any, Any] = {}
    for call in calls:
        key = quick_key(call)
        tensors = [leaf for leaf in call if isinstance(leaf, torch.Tensor)]
        if len({id(tensor) for tensor in tensors}) < len(tensors) or torch.float32 in call:
            assert key is None
            continue
        assert key is not None
        described = tuple(map(facts, call))
        kinds = tuple(type(leaf) is torch.nn.Parameter for leaf in call)
        assert keyed.setdefault(key, (described, kinds)) == (described, kinds)
    assert len(set(map(repr, keyed.values()))) == len(keyed)


def test_modes_are_part_of_the_key() -> None:
    call = (BASE,)
    keys = [quick_key(call)]
    with torch.no_grad():
        keys.append(quick_key(call))
    with torch.inference_mode():
        keys.append(quick_key(call))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        keys.append(quick_key(call))
    with torch.autocast("cpu", dtype=torch.float16):
        keys.append(quick_key(call))
    with torch.device("meta"):
        keys.append(quick_key(call))
    assert len(set(keys)) == 6
    assert quick_key(call) == keys[0]


def test_what_only_the_slow_path_can_tell() -> None:
    assert quick_key(()) is None
    assert quick_key(([BASE],)) is None
    assert quick_key((BASE, BASE)) is None
    assert quick_key((BASE, 1, BASE)) is None
    assert quick_key((object(),)) is None
    assert quick_key(tuple(range(17))) is None
    assert quick_key((1, 1)) is not None


def test_lazy_tensors_share_no_key_with_plain_ones() -> None:
    z = torch.ones(2, dtype=torch.complex64)
    assert lasting_key((z,)) is None
    lazy = z.conj().imag
    plain = torch.view_as_real(z)[..., 1]
    assert lazy.is_neg()
    assert quick_key((lazy,)) not in (quick_key((plain,)), quick_key((lazy,)))
    sparse, expanded = torch.eye(3).to_sparse(), torch.ones(1, 1).expand(3, 3)
    assert sparse.is_contiguous() == expanded.is_contiguous()
    assert quick_key((sparse,)) not in (quick_key((expanded,)), quick_key((sparse,)))
    assert read((lazy,), {}) is None
    assert read((z.conj(),), {}) is None
    assert read((z,), {}) is not None


CONTAINERS: list[Any] = [
    *LEAVES,
    [BASE],
    (BASE,),
    [BASE, 1],
    [[BASE], 1],
    [BASE, [1]],
    {"a": BASE},
    {"b": BASE},
    {"a": BASE, "b": 1},
    {"b": 1, "a": BASE},
    {"a": [BASE]},
    [],
    (),
    {},
    [[]],
]


def test_a_reading_is_the_calls_leaves_structure_and_integers() -> None:
    readings: dict[Any, Any] = {}
    for a, b in itertools.product(CONTAINERS, repeat=2):
        for args, kwargs in (((a, b), {}), ((a,), {"k": b}), ((), {"k": a, "l": b}), ((), {"l": a, "k": b})):
            reading = read(args, kwargs)
            assert reading is not None
            leaves, structure, values = reading
            expected, tree = pytree.tree_flatten((args, kwargs))
            assert all(x is y for x, y in zip(leaves, expected, strict=True))
            call = take_apart(lambda *args, **kwargs: None, args, kwargs, paths=False)
            assert values == values_of(call.leaves, call.keys)
            described = (tree, call.keys, call.duplicates)
            assert readings.setdefault(structure, described) == described
    assert len({repr(described) for described in readings.values()}) == len(readings)


def test_readings_of_calls_out_of_the_ordinary() -> None:
    class Strange(torch.Tensor):
        pass

    for leaf in (OrderedDict(a=BASE), {1: BASE}, object(), 1j, torch.eye(3).to_sparse(), BASE.as_subclass(Strange)):
        assert read((leaf,), {}) is None
