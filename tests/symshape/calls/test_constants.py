"""Constants in exact keys: known exactly as the slow reading knows them, and never kept alive."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import itertools
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import symshape
from symshape.calls import call_key, compiled
from symshape.calls.call_key import FLAT, QUICK, constant, read
from symshape.calls.constant_keys import constant_key
from symshape.errors import InputError


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = 1


@dataclasses.dataclass(frozen=True)
class Below(Frozen):
    """Of the same fields."""


@dataclasses.dataclass(frozen=True)
class Turned:
    b: Any
    a: Any = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: Any = 1


@dataclasses.dataclass(frozen=True)
class Partly:
    """Equal although it is another."""

    a: Any
    b: Any = dataclasses.field(default=1, compare=False)


@attrs.frozen
class Defined:
    a: Any
    b: Any = 1


class Plain:
    """Known by which object it is."""

    def __init__(self, a: Any, b: Any = 1) -> None:
        self.a, self.b = a, b


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Number(enum.IntEnum):
    RED = 1


class Pair(NamedTuple):
    a: Any
    b: Any


class Rude:
    """Its hash is refused while it is told to."""

    refuses = False

    def __hash__(self) -> int:
        if Rude.refuses:
            raise ValueError
        return 0


OWN = [Plain(1), Plain(1), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), Rude()]
VALUES: list[Any] = [
    1,
    True,
    1.0,
    0.0,
    -0.0,
    float("nan"),
    "1",
    None,
    b"1",
    torch.float32,
    (1,),
    (True,),
    (0.0,),
    (-0.0,),
]
MAKE: list[Callable[[], Any]] = [
    *(
        functools.partial(kind, value)
        for kind in (Frozen, Below, Turned, Slotted, Partly, Defined)
        for value in VALUES
    ),
    *(
        functools.partial(kind, 1, b)
        for kind in (Frozen, Partly, Defined)
        for b in (2, 2.0, "2", Colour.RED, print)
    ),
    *(
        lambda each=each: each
        for each in (*OWN, *Colour, *Number, int, bool, Plain, print, len, torch.relu)
    ),
    *(functools.partial(slice, *each) for each in ((1,), (True,), (0, 1), (None, 1.0), (None, 1))),
    *(functools.partial(range, *each) for each in ((3,), (0, 3, 2), (0, 4, 2))),
    *(functools.partial(complex, *each) for each in ((1, 0), (1, -0.0), (0, 1))),
    *(functools.partial(decimal.Decimal, each) for each in ("1", "1.0")),
    *(functools.partial(datetime.timedelta, each) for each in (1, 2)),
    *(functools.partial(each, 1) for each in (np.int64, np.int32, np.float32, np.bool_)),
    lambda: frozenset({1}),
    lambda: frozenset({True}),
]


@pytest.fixture(params=["watched", "asked each time"])
def _classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With numbers for classes, and where they are not known."""
    if request.param == "asked each time":
        monkeypatch.setattr(call_key, "class_version", compiled._unknown)
    call_key._keys.clear()
    yield
    call_key._keys.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("_classes")
def test_equal_keys_mean_alike_constants() -> None:
    made = [make() for make in MAKE for _ in range(2)]
    for one, other in itertools.product(made, repeat=2):
        mine, theirs = constant(one), constant(other)
        assert mine is not None
        assert (mine == theirs) is (constant_key(one) == constant_key(other)), (one, other)
        if mine == theirs:
            assert hash(mine) == hash(theirs)


@pytest.mark.parametrize("make", [FLAT, QUICK])
def test_calls_with_one_key_have_one_structure(make: Any) -> None:
    rng, known, met = random.Random(0), dict[Any, Any](), 0
    kept = [each() for each in MAKE]
    tensor = torch.ones(3)
    for _ in range(1500):
        leaves = tuple(
            rng.choice([lambda: rng.choice(kept), rng.choice(MAKE), lambda: tensor])()
            for _ in range(3)
        )
        if rng.random() < 0.5:
            leaves = (leaves[0], leaves[0], leaves[2])
        if rng.random() < 0.9:
            leaves = (leaves[0], leaves[0], 1)
        key = make.makers[3](leaves, {})
        assert key is not None
        met += key in known
        reading = read(print, leaves, {})[1:]
        assert known.setdefault(key, reading) == reading
    assert met > 300


def test_what_is_no_constant() -> None:
    for each in (
        [1],
        {1},
        {},
        (1,),
        Pair(1, 2),
        torch.ones(2),
        torch.nn.Parameter(torch.ones(2)),
        bytearray(b"1"),
        np.zeros(1),
    ):
        assert constant(each) is None
    for each in (
        Frozen([1]),
        Frozen(torch.ones(2)),
        Frozen({"a": 1}),
        Defined((torch.ones(1),)),
        object(),
        slice([1], 2),
    ):
        assert constant(each) is None, "unhashable, flattened, or kept alive by its key"


@pytest.mark.usefixtures("_classes")
def test_an_object_that_is_changed_is_another() -> None:
    one = Frozen(1, 2.0)
    keys = [constant(one)]
    for value in (2, 2.0, True):
        object.__setattr__(one, "a", value)
        keys.append(constant(one))
    one.__dict__["c"] = 1
    assert constant(one) == call_key._itself(one), "there is more to it than its fields"
    del one.__dict__["c"]
    assert constant(one) == keys[-1]
    assert len({*keys, constant(one)}) == 4
    object.__setattr__(one, "a", torch.ones(1))
    assert constant(one) is None
    object.__delattr__(one, "a")
    assert constant(one) not in keys


@pytest.mark.usefixtures("_classes")
def test_a_class_that_is_changed() -> None:
    @dataclasses.dataclass(frozen=True)
    class Late:
        a: Any

    one, other = Late(1), Late(1)
    assert constant(one) == constant(other)
    Late.a = property(lambda self: 5)  # type: ignore[assignment,misc]
    assert constant(one) != constant(other), "its parts are not what its fields hold"
    del Late.a
    assert constant(one) == constant(other)
    Late.__getattribute__ = lambda self, name: object.__getattribute__(self, name)  # type: ignore[method-assign,assignment]
    assert constant(one) != constant(other)
    del Late.__getattribute__
    Late.__hash__ = None  # type: ignore[assignment]
    assert constant(one) is None
    Late.__hash__ = lambda self: 1  # type: ignore[method-assign,assignment]
    assert constant(one) == constant(other)
    one.__dict__["a"] = {}
    assert constant(one) is not None
    pytree.register_dataclass(Late)
    assert constant(other) is None


@pytest.mark.usefixtures("_classes")
def test_a_hash_that_is_refused() -> None:
    assert constant(OWN[4]) is not None
    Rude.refuses = True
    try:
        assert constant(OWN[4]) is None
        with pytest.raises(InputError):
            read(print, (OWN[4],), {})
    finally:
        Rude.refuses = False


def test_no_key_keeps_an_object_alive() -> None:
    compiled_one = symshape.compile(lambda x, c: x * c.a)
    x = torch.ones(2)
    for _ in range(3):
        gone = []
        for number in range(5):
            each = Plain(number)
            for _ in range(3):
                assert torch.equal(compiled_one(x, each), x * number)
            gone.append(weakref.ref(each))
            del each
        gc.collect()
        assert not any(ref() for ref in gone)


def test_objects_in_the_place_of_those_that_died() -> None:
    ids = set()
    keys = []
    for number in range(50):
        each = Plain(number)
        keys.append(constant(each))
        ids.add(id(each))
        del each
    assert len(ids) < 50, "an id comes again"
    assert len(set(keys)) == 50


@pytest.mark.slow
def test_changes_between_calls_are_seen_as_in_eager() -> None:
    def fn(x: Any, one: Any, other: Any) -> Any:
        return x * one.a + other.b + (10 if one is other else 0)

    compiled_one = symshape.compile(fn)
    x, rng = torch.ones(3), random.Random(0)
    kept: list[Any] = [
        Frozen(1, 2),
        Frozen(1, 2),
        Plain(1, 2),
        Plain(3, 4),
        Defined(1, 2),
        Slotted(2, 3),
    ]
    for _ in range(120):
        one, other = rng.choice(kept), rng.choice(kept)
        if rng.random() < 0.3:
            object.__setattr__(one, rng.choice("ab"), rng.choice([1, True, 2, 2.0, -0.0, 0.0, 3]))
        for _ in range(2):
            assert torch.equal(compiled_one(x, one, other), fn(x, one, other))


def test_an_object_of_a_class_that_is_taken_apart_from_its_second_on() -> None:
    class Data:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

    compiled_one = symshape.compile(lambda d: d.x * d.n)
    first = Data(torch.ones(2), 2)
    for _ in range(3):
        for each in (first, Data(torch.ones(2), 3), first, Data(torch.ones(2), 4)):
            assert torch.equal(compiled_one(each), each.x * each.n)
        first.n += 1
        assert torch.equal(compiled_one(first), first.x * first.n)
        first.x = torch.zeros(2)
        assert torch.equal(compiled_one(first), first.x * first.n)


@pytest.mark.parametrize(
    "argument",
    [
        Frozen(2, 0.5),
        Defined(2),
        OWN[0],
        OWN[2],
        Colour.RED,
        print,
        int,
        slice(0, 2),
        range(3),
        1j,
        np.float32(2),
    ],
)
def test_they_are_looked_up_as_quickly_as_numbers(argument: Any) -> None:
    compiled_one = symshape.compile(lambda x, c, nested: x * 2 if c is nested["c"] else x)
    x = torch.ones(3)
    for _ in range(3):
        compiled_one(x, argument, {"c": argument})
    slow: list[int] = []
    find = compiled_one._dispatcher.search
    compiled_one._dispatcher.search = lambda *args: slow.append(1) or find(*args)  # type: ignore[func-returns-value]
    for _ in range(3):
        assert torch.equal(compiled_one(x, argument, {"c": argument}), x * 2)
    assert not slow
