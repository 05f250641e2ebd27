"""Keys and readings of calls: equal exactly where two calls differ in nothing that a program may
depend on.
"""

from __future__ import annotations

import itertools
import random
from collections import UserDict
from typing import Any

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls.arguments import EQUAL, TensorKey, duplicates, flatten_call, values_of
from symshape.calls.call_key import FLAT, QUICK, read, read_usual
from symshape.errors import InputError
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
    *(
        0,
        1,
        5,
        2**70,
        -1,
        True,
        False,
        None,
        0.0,
        -0.0,
        1.0,
        float("nan"),
        "a",
        "",
        "True",
        torch.float32,
    ),
]


EXACT = {"now": FLAT}
"""What makes the keys of this moment."""


@pytest.fixture(autouse=True, params=["in Python", "in C++"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes the keys; where C++ was not built, Python twice."""
    monkeypatch.setitem(EXACT, "now", FLAT if request.param == "in Python" else QUICK)


def quick_key(leaves: tuple[Any, ...], *names: str) -> Any:
    """The exact key of flat arguments, the last of them under these names."""
    return EXACT["now"].makers[len(leaves)](leaves, dict.fromkeys(names))


def nothing(*args: Any, **kwargs: Any) -> None:
    """What is called."""


def facts(leaf: Any) -> Any:
    """All that may count, spelled out."""
    if isinstance(leaf, torch.Tensor):
        dtype, device, shape, _, offset, gradient = metadata(leaf)
        return (
            "tensor",
            dtype,
            device,
            shape,
            None if leaf.is_contiguous() else leaf.stride(),
            offset,
            gradient[0],
        )
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
        assert key is not None
        kinds = tuple(type(leaf) is torch.nn.Parameter for leaf in call)
        described = tuple(map(facts, call)), kinds, duplicates(call)
        assert keyed.setdefault(key, described) == described
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
    assert quick_key((object(),)) is None, "a key would keep it alive"
    assert quick_key(({1},)) is None
    assert quick_key((BASE.to_sparse(),)) is None
    assert quick_key((1, 1)) is not None


def test_lazy_tensors_share_no_key_with_plain_ones() -> None:
    z = torch.ones(2, dtype=torch.complex64)
    assert quick_key((z,)) == quick_key((z.conj(),)), (
        "nothing to tell apart any more: remember them"
    )
    assert not FLAT.lasts((1, z))
    assert FLAT.lasts((1, BASE))
    lazy = z.conj().imag
    plain = torch.view_as_real(z)[..., 1]
    assert lazy.is_neg()
    assert quick_key((lazy,)) is None
    assert quick_key((plain,)) is not None
    sparse, expanded = torch.eye(3).to_sparse(), torch.ones(1, 1).expand(3, 3)
    assert sparse.is_contiguous() == expanded.is_contiguous()
    assert quick_key((sparse,)) is None
    assert quick_key((expanded,)) is not None
    assert read_usual((lazy,), {}) is None
    assert read_usual((z.conj(),), {}) is None
    assert read_usual((z,), {}) is not None


def test_names_of_keywords_are_part_of_the_key() -> None:
    keys = [
        quick_key((1, 2)),
        quick_key((1, 2), "a"),
        quick_key((1, 2), "b"),
        quick_key((1, 2), "a", "b"),
    ]
    keys.append(quick_key((1, 2), "b", "a"))
    assert len(set(keys)) == 5
    assert quick_key(([1], 2), "a") is None


def test_every_key_of_a_tensor_is_made_of_the_same_attributes() -> None:
    assert tuple(field.name for field in attrs.fields(TensorKey)) == (
        *EQUAL,
        "ndim",
        "layout",
        "kind",
    )
    others = {
        "dtype": BASE.double(),
        "device": BASE.to("meta"),
        "requires_grad": BASE.clone().requires_grad_(),
    }
    assert set(others) == set(EQUAL), "an attribute without a test"
    pairs = [(BASE, other) for other in others.values()]
    weight = torch.nn.Parameter
    pairs += [(weight(BASE), weight(others["dtype"])), (weight(BASE), weight(others["device"]))]
    pairs += [(weight(BASE), weight(BASE, requires_grad=False))]
    for one, other in pairs:
        assert quick_key((one,)) != quick_key((other,))
        assert read(nothing, (one,), {})[1] != read(nothing, (other,), {})[1]
        assert flatten_call(nothing, (one,), {}).keys != flatten_call(nothing, (other,), {}).keys


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_calls_with_one_exact_key_have_one_structure_and_one_tuple_of_integers(seed: int) -> None:
    """The three ways of reading a call agree: what the quick one takes for equal, the slow ones do
    too.
    """
    rng = random.Random(seed)
    pool = [make for make in MAKERS if rng.random() < 0.7] + MAKERS[:2]
    known: dict[Any, Any] = {}
    met = 0
    for _ in range(1500):
        leaves = tuple(rng.choice(pool)() for _ in range(rng.choice((1, 1, 2, 3))))
        names = rng.choice(((), ("k",), ("l",), ("k", "l")))[-len(leaves) :]
        args, kwargs = (
            leaves[: len(leaves) - len(names)],
            dict(zip(names, leaves[len(leaves) - len(names) :], strict=True)),
        )
        with torch.set_grad_enabled(rng.random() < 0.5):
            key = quick_key(leaves, *names)
            assert key is not None
            reading = read(nothing, args, kwargs)
        assert all(x is y for x, y in zip(reading[0], leaves, strict=True))
        call = flatten_call(nothing, args, kwargs)
        described = (*reading[1:], call.tree, call.keys, call.duplicates, call.paths)
        met += key in known
        assert known.setdefault(key, described) == described
    assert met > 100, "keys that never met prove nothing"
    assert len({repr(each[0]) + repr(each[1]) for each in known.values()}) > 20


MAKERS: list[Any] = [
    lambda: torch.ones(2, 3),
    lambda: torch.zeros(3, 2),
    lambda: torch.ones(2, 3).t(),
    lambda: torch.ones(4, 3)[2:],
    lambda: torch.ones(5, 3)[3:],
    lambda: torch.ones(2, 4)[:, 1:],
    lambda: torch.ones(2, 4)[:, :3],
    lambda: torch.ones(1, 3),
    lambda: torch.ones(3, 1).t(),
    lambda: torch.ones(1, 3).expand(2, 3),
    lambda: torch.ones(0, 3),
    lambda: torch.ones(0),
    lambda: torch.ones(()),
    lambda: torch.ones(2, 3, dtype=torch.int64),
    lambda: torch.ones(2, 3, requires_grad=True),
    lambda: torch.ones(2, 3, device="meta"),
    lambda: torch.nn.Parameter(torch.ones(2, 3)),
    lambda: torch.nn.Parameter(torch.ones(3, 2).t(), requires_grad=False),
    *(lambda value=value: value for value in (0, 1, True, False, None, 0.0, -0.0, 1.0, "a", "")),
]


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


@pytest.mark.slow
def test_a_reading_is_the_calls_leaves_structure_and_integers() -> None:
    readings: dict[Any, Any] = {}
    for a, b in itertools.product(CONTAINERS, repeat=2):
        for args, kwargs in (
            ((a, b), {}),
            ((a,), {"k": b}),
            ((), {"k": a, "l": b}),
            ((), {"l": a, "k": b}),
        ):
            reading = read_usual(args, kwargs)
            if a is b and isinstance(a, (list, dict)):
                assert reading is None
                continue
            assert reading is not None
            leaves, structure, values = reading
            expected, tree = pytree.tree_flatten((args, kwargs))
            assert all(x is y for x, y in zip(leaves, expected, strict=True))
            call = flatten_call(nothing, args, kwargs, paths=False)
            assert values == values_of(call.leaves, call.keys)
            described = (tree, call.keys, call.duplicates)
            assert readings.setdefault(structure, described) == described
    assert len({repr(described) for described in readings.values()}) == len(readings)


def test_readings_of_calls_out_of_the_ordinary() -> None:
    class Strange(torch.Tensor):
        pass

    for leaf in (
        {(1,): BASE},
        UserDict(a=BASE),
        object(),
        1j,
        torch.eye(3).to_sparse(),
        BASE.as_subclass(Strange),
    ):
        assert read_usual((leaf,), {}) is None


def test_calls_out_of_the_ordinary_are_read_all_the_same() -> None:
    for leaf in ({(1,): BASE}, 1j):
        leaves, structure, values = read(nothing, (leaf,), {})
        call = flatten_call(nothing, (leaf,), {}, paths=False)
        assert structure == read(nothing, (leaf,), {})[1]
        assert structure != read(nothing, (leaf, 1), {})[1]
        assert leaves == call.leaves
        assert values == values_of(call.leaves, call.keys)
    with torch.no_grad():
        assert read(nothing, (1j,), {})[1] != structure
    with pytest.raises(InputError, match=r"args\[0\] has layout"):
        read(nothing, (torch.eye(3).to_sparse(),), {})


def test_a_tensor_of_onednn_is_none_of_the_plain_ones() -> None:
    add = symshape.compile(torch.add)
    plain = torch.ones(4, 4)
    for _ in range(3):
        add(plain, torch.ones(4, 4))
    other = torch.ones(4, 4).to_mkldnn()
    assert FLAT.makers[2]((plain, plain.clone()), {}) is not None
    assert FLAT.makers[2]((plain, other), {}) is None
    with pytest.warns(symshape.FallbackWarning, match="layout"):
        assert add(other, torch.ones(4, 4).to_mkldnn()).layout is other.layout
