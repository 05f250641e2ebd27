"""Objects among the arguments: looked up as quickly as flat arguments, and never mistaken for
others.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls.call_key import FLAT, read
from symshape.calls.constant_keys import Nesting
from symshape.calls.nesting_codegen import KnownNestings
from symshape.calls.object_arguments import FlattenedObject, owner_of
from symshape.errors import InputError
from tests.sampling import sampled
from tests.symshape.calls.test_object_kinds import assert_same

Tensor = torch.Tensor


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any


@dataclasses.dataclass
class Below(Plain):
    """Of the same fields."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclasses.dataclass(eq=False)
class Hashed:
    a: Any
    b: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    b: Any


class Half(Slotted):
    """With a dictionary too."""


@attrs.define
class Defined:
    a: Any
    b: Any


class Pair(NamedTuple):
    a: Any
    b: Any


def _half(a: Any, b: Any) -> Half:
    made = Half(a, 1)
    made.c = b  # type: ignore[attr-defined]
    return made


def _space(a: Any, b: Any) -> Any:
    return types.SimpleNamespace(a=a, b=b)


MAKE: list[Callable[[Any, Any], Any]] = [
    Plain,
    Below,
    Frozen,
    Hashed,
    Slotted,
    _half,
    Defined,
    _space,
    lambda a, b: types.SimpleNamespace(b=a, a=b),
    lambda a, b: types.SimpleNamespace(**{"a": a, "b": b, "0": None}),
    lambda a, b: [a, b],
    lambda a, b: (a, b),
    lambda a, b: {"a": a, "b": b},
    lambda a, b: {"a": a, 0: b},
    Pair,
]
RECORDS = MAKE[:10]
TENSOR = torch.randn(2)


def _leaf(rng: random.Random) -> Any:
    size = rng.randint(0, 3)
    tensors = [
        torch.randn(size),
        torch.randn(size, 2),
        torch.randn(2, size).t(),
        torch.randn(size + 1)[1:],
        torch.randn(size, requires_grad=True),
        torch.zeros(size, dtype=torch.int64),
        TENSOR,
    ]
    others = [rng.randint(-2, 2), 0.5, -0.0, None, "a", True, torch.float32, int]
    return rng.choice(tensors if rng.random() < 0.6 else others)


def _value(rng: random.Random, depth: int = 0, kept: list[Any] | None = None) -> Any:
    kept = [] if kept is None else kept
    if depth == 3 or (depth and rng.random() < 0.6):
        return _leaf(rng)
    if kept and rng.random() < 0.1:
        return rng.choice(kept)
    make = rng.choice(MAKE if depth else RECORDS)
    made = make(_value(rng, depth + 1, kept), _value(rng, depth + 1, kept))
    kept.append(made)
    return made


def _near(value: Any, rng: random.Random) -> Any:
    """A copy that differs here or there, or not at all."""
    if rng.random() < 0.08:
        return _value(rng, 1)
    if isinstance(value, Tensor):
        return torch.empty_like(value).copy_(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        items = [_near(each, rng) for each in value]
        return type(value)(*items) if isinstance(value, Pair) else type(value)(items)
    if isinstance(value, dict):
        return {key: _near(each, rng) for key, each in value.items()}
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return rng.choice([value, value, value, _leaf(rng)])
    if not isinstance(value, (Plain, Frozen, Hashed, Slotted, Defined, types.SimpleNamespace)):
        return value
    made = copy.copy(value)
    names = [*getattr(type(value), "__slots__", ()), *getattr(value, "__dict__", ())]
    for name in names:
        if hasattr(value, name) and name != "__weakref__":
            object.__setattr__(made, name, _near(getattr(value, name), rng))
    if rng.random() < 0.05 and hasattr(made, "__dict__"):
        made.__dict__["more"] = rng.randint(0, 1)
    if rng.random() < 0.05 and getattr(made, "__dict__", None):
        made.__dict__.pop(rng.choice(list(made.__dict__)))
    if rng.random() < 0.05 and type(made) is Plain:
        made.__class__ = Below
    return made


def _readable(rng: random.Random) -> Any:
    """Not a frozen object with something in it that has no hash, and no tensor: it is neither
    flattened nor known.
    """
    while True:
        value = _value(rng)
        with contextlib.suppress(InputError):
            read(print, (value, 3), {})
            return value


@pytest.mark.parametrize("seed", sampled(range(120), every=4))
def test_equal_keys_mean_equal_readings(seed: int) -> None:
    rng = random.Random(seed)
    nests, first = KnownNestings(), _readable(rng)
    nests.learn((first, 3), {})
    others = [first, *(_near(first, rng) for _ in range(60)), *(_value(rng) for _ in range(20))]
    readings: dict[Any, Any] = {}
    for value in others:
        found = nests.flat((value, 3), {})
        key = None if found is None else FLAT.makers[len(found)](found, {})
        if found is None or key is None:
            continue
        leaves, *reading = read(print, (value, 3), {})
        assert type(found[-1]) is Nesting
        assert len(found) == len(leaves) + 1
        assert all(owner_of(one) is other for one, other in zip(found, leaves, strict=False))
        assert readings.setdefault(key, reading) == reading
        nests.learn((value, 3), {})


def test_most_objects_have_a_quick_key() -> None:
    quick = 0
    for seed in range(120):
        nests, value = KnownNestings(), _value(random.Random(seed))
        found = nests.flat((value,), {}) if nests.learn((value,), {}) else None
        quick += found is not None and FLAT.makers[len(found)](found, {}) is not None
    assert quick >= 50


def _total(value: Any) -> Any:
    """What depends on all that is in a value, and on what is what."""
    if isinstance(value, Tensor):
        return (value.double() * (1 + value.dim() + value.requires_grad)).sum() + value.stride()[
            -1:
        ].__len__()
    if isinstance(value, (int, float)):
        return value + (3 if type(value) is bool else 0)
    if value is None or isinstance(value, (str, torch.dtype)):
        return len(str(value))
    if isinstance(value, (list, tuple)):
        return sum((i + 2) * _total(each) for i, each in enumerate(value))
    table = value if isinstance(value, dict) else vars(value) if hasattr(value, "__dict__") else {}
    names = [*table, *(each for each in ("a", "b") if each not in table and hasattr(value, each))]
    found = sum(
        (len(name) + 5)
        * (i + 1)
        * _total(value[name] if isinstance(value, dict) else getattr(value, name))
        for i, name in enumerate(names)
    )
    same = type(value) is not dict and "a" in names and "b" in names and value.a is value.b
    return found + (7 if isinstance(value, Below) else 0) + (11 if same else 0)


def _set(name: str, make: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda v: setattr(v, name, make(v))


CHANGES: list[Callable[[Any], Any]] = [
    _set("a", lambda v: torch.randn(2)),
    _set("a", lambda v: torch.randn(5)),
    _set("a", lambda v: torch.randn(2, 2)),
    _set("a", lambda v: torch.randn(2, 3).t()),
    _set("a", lambda v: torch.randn(2).double()),
    _set("a", lambda v: torch.randn(2, requires_grad=True)),
    _set("a", lambda v: torch.nn.Parameter(torch.randn(2))),
    _set("a", lambda v: torch.randn(3)[1:]),
    _set("a", lambda v: 3),
    _set("a", lambda v: True),
    _set("a", lambda v: 2.5),
    _set("a", lambda v: None),
    _set("a", lambda v: "text"),
    _set("a", lambda v: v.b),
    _set("a", lambda v: Plain(torch.ones(2), 1)),
    _set("a", lambda v: Below(torch.ones(2), 1)),
    _set("a", lambda v: Plain(torch.ones(2), torch.ones(2))),
    _set("a", lambda v: [torch.ones(2), 2]),
    _set("a", lambda v: (torch.ones(2), 2)),
    _set("a", lambda v: {"a": torch.ones(2), "b": 2}),
    _set("a", lambda v: {"b": torch.ones(2), "a": 2}),
    _set("a", lambda v: Frozen(torch.ones(2), 2)),
    _set("a", lambda v: Frozen(1, 2)),
    _set("b", lambda v: 4),
    _set("b", lambda v: v.a),
]
ON_DICTIONARY: list[Callable[[Any], Any]] = [
    _set("more", lambda v: 1),
    _set("more", lambda v: torch.ones(3)),
    lambda v: vars(v).pop("more", None),
    lambda v: vars(v).update({"a": vars(v).pop("a")}),  # another order
    lambda v: setattr(v, "__class__", Below if type(v) is Plain else Plain),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "seed"), sampled([Plain, Hashed, Slotted, Defined, _space], range(3), every=4)
)
def test_changes_between_calls_are_seen(kind: Callable[..., Any], seed: int) -> None:
    rng = random.Random(seed)
    compiled = symshape.compile(_total)
    changes = [
        *CHANGES,
        *(
            ON_DICTIONARY
            if kind is Plain
            else ON_DICTIONARY[:4]
            if kind in (Hashed, _space)
            else ()
        ),
    ]
    value = kind(torch.randn(2), 2)
    for _ in range(60):
        for _ in range(rng.randint(1, 2)):
            rng.choice(changes)(value)
        for _ in range(2):
            found, expected = compiled(value), _total(value)
            assert type(found) is type(expected)
            torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("seed", range(4))
def test_one_object_or_two(seed: int) -> None:
    def fn(x: Plain, y: Plain, z: Hashed) -> Any:
        x.a.add_(1)
        x.b = x.b + 1
        z.a.append(y.b)
        return (x is y) + 2 * (x.a is y.a), y.a * y.b, len(z.a)

    rng = random.Random(seed)
    compiled = symshape.compile(fn)

    def arguments(way: int) -> tuple[Any, ...]:
        x, z = Plain(torch.ones(2), 1), Hashed([1], torch.ones(1))
        y = {0: x, 1: Plain(x.a, 1), 2: Plain(torch.ones(2), 1), 3: Plain(torch.ones(2), 1)}[way]
        return (x, y, z)

    for _ in range(30):
        way = rng.randint(0, 3)
        mine, theirs = arguments(way), arguments(way)
        assert_same(compiled(*mine), fn(*theirs))
        assert_same(mine, theirs)


def _slow_calls(compiled: Any) -> list[int]:
    slow: list[int] = []
    find = compiled._dispatcher.search
    compiled._dispatcher.search = lambda *args: slow.append(1) or find(*args)  # type: ignore[func-returns-value]
    return slow


def _write(v: Any) -> Any:
    v.a = v.a + v.b
    return v.a.sum()


def _both(v: Any) -> Any:
    v.a = v.a * 2
    v.b = v.b + 0
    return v, [v.a]


@pytest.mark.parametrize("make", [Plain, Below, Slotted, Defined, _space, _half])
@pytest.mark.parametrize(
    "fn", [_write, _both, lambda v: v, lambda v: Plain(v.a, v.b), lambda v: v.a.mul_(2)]
)
def test_objects_that_programs_write_to_or_give_back_are_quick_too(make: Any, fn: Any) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    slow = _slow_calls(compiled)
    for i in range(6):
        mine, theirs = make(torch.ones(3), 2), make(torch.ones(3), 2)
        found, expected = compiled(mine), fn(theirs)
        assert_same(found, expected)
        assert_same(mine, theirs)
        assert (found is mine) is (expected is theirs)
        assert len(slow) == min(i + 1, 2)


def test_what_frozen_objects_hold_decides_what_they_are() -> None:
    nests, kept = KnownNestings(), Hashed(1, 2)
    assert nests.learn((Hashed(torch.ones(2), 2),), {})
    assert nests.flat((Hashed(torch.ones(3), 2),), {}) is not None
    assert nests.flat((kept,), {}) is None
    compiled = symshape.compile(lambda f, x: x * f.a)
    x = torch.ones(2)
    for _ in range(3):
        for each in (
            Hashed(torch.ones(2), 2),
            kept,
            Hashed(1, 2),
            Hashed(torch.ones(2), 2),
            Frozen(3, 1),
        ):
            assert torch.equal(compiled(each, x), x * each.a)


def test_a_class_that_is_registered_later() -> None:
    @dataclasses.dataclass
    class Late:
        a: Tensor
        n: int

    nests, value = KnownNestings(), Late(torch.ones(2), 1)
    assert nests.learn((value,), {})
    assert nests.flat((value,), {}) is not None
    pytree.register_dataclass(Late)
    assert nests.flat((value,), {}) is None
    read(print, (value,), {})
    assert nests.learn((value,), {})
    assert not any(type(each) is FlattenedObject for each in nests.flat((value,), {}) or ())


def test_an_emptied_slot_and_an_object_that_holds_itself() -> None:
    nests, value = KnownNestings(), Slotted(torch.ones(2), 1)
    assert nests.learn((value,), {})
    del value.b
    assert nests.flat((value,), {}) is None
    assert not nests.learn((value,), {})
    inner = Plain(torch.ones(2), Plain(1, 2))
    assert nests.learn((inner,), {})
    inner.b = inner
    assert nests.flat((inner,), {}) is None
    assert not nests.learn((inner,), {})


def test_new_sizes_are_no_new_nest() -> None:
    compiled = symshape.compile(lambda v: v.a * v.b)
    for n in range(2, 20):
        assert torch.equal(compiled(Plain(torch.ones(n), 2)), 2 * torch.ones(n))
    compiled(_space(torch.ones(2), 2))
    slow = _slow_calls(compiled)
    compiled(_space(torch.ones(2), 2))
    compiled(_space(torch.ones(2), 2))
    assert len(slow) == 1


def test_names_and_who_is_who_where_all_else_is_equal() -> None:
    names = symshape.compile(lambda v: v.a - 2 * v.b)
    same = symshape.compile(lambda v, w, x: x * (2 if v is w else 3) * v.a)
    one, x = Plain(1, 2), torch.ones(2)
    for _ in range(3):
        a, b = torch.randn(2), torch.randn(2)
        for value in (_space(a, b), types.SimpleNamespace(b=a, a=b), Plain(a, b), Below(a, b)):
            assert torch.equal(names(value), value.a - 2 * value.b)
        for v, w in ((one, Plain(1, 2)), (one, one), (Plain(1, 2), one)):
            assert torch.equal(same(v, w, x), x * (2 if v is w else 3))
