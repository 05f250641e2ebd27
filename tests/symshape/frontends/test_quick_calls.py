"""Calls with objects, containers and state that nests: looked up without reading them anew, and
never mistaken.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import symshape
from symshape.calls import call_key, compiled, nesting_codegen
from tests.sampling import sampled
from tests.symshape.calls.test_object_kinds import assert_same

Tensor = torch.Tensor


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Batch:
    a: Any
    b: Any = 2


@dataclasses.dataclass
class Below(Batch):
    """Of the same fields."""


@dataclasses.dataclass(frozen=True)
class Conf:
    scale: float = 0.5
    heads: int = 2
    name: str = "n"


class Held:
    """Keys and values in lists."""

    def __init__(self, n: int) -> None:
        self.k = [torch.randn(1, n, 2) for _ in range(3)]
        self.v = [torch.randn(1, n, 2) for _ in range(3)]


def _slow_calls(compiled: Any) -> list[int]:
    slow: list[int] = []
    find = compiled._dispatcher.search
    compiled._dispatcher.search = lambda *args: slow.append(1) or find(*args)  # type: ignore[func-returns-value]
    return slow


def _written(batch: dict[str, Any]) -> Any:
    batch["c"] = batch["a"] + batch["b"]
    return batch["c"].sum()


def _popped(batch: dict[str, Any]) -> Any:
    return batch.pop("a") * 2 + batch["b"]


def _given_back(batch: dict[str, Any]) -> Any:
    batch["c"] = batch["a"] * 2
    return batch, [batch["c"]]


def _appended(rows: list[Any], x: Any) -> Any:
    rows.append(rows[0] * 2)
    rows[0] = rows[0] + x
    return len(rows), x * 2


def _decoded(x: Any, held: Held) -> Any:
    for i in range(3):
        held.k[i] = torch.cat([held.k[i], x], 1)
        held.v[i] = torch.cat([held.v[i], x], 1)
    return held.k[0] + held.v[2]


def _grown(x: Any, cache: Any) -> Any:
    return [(torch.cat([k, x], 1), torch.cat([v, x], 1)) for k, v in cache]


def _t(*sizes: int) -> Tensor:
    return torch.randn(sizes)


QUICK: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "dictionary written": (_written, lambda n: ({"a": _t(n), "b": _t(n)},)),
    "dictionary popped": (_popped, lambda n: ({"a": _t(n), "b": _t(n)},)),
    "dictionary given back": (_given_back, lambda n: ({"a": _t(n), "b": _t(n)},)),
    "list written": (_appended, lambda n: ([_t(n), 1], _t(n))),
    "keys and values in an object": (_decoded, lambda n: (_t(1, 1, 2), Held(n))),
    "keys and values in tuples": (
        _grown,
        lambda n: (_t(1, 1, 2), [(_t(1, n, 2), _t(1, n, 2)) for _ in range(12)]),
    ),
    "twenty tensors": (lambda *xs: sum(xs), lambda n: tuple(_t(n) for _ in range(20))),
    "forty in a dictionary": (
        lambda d: sum(d.values()),
        lambda n: ({str(i): _t(n) for i in range(40)},),
    ),
    "one tensor twice": (lambda x, y: x.mul_(2) + y, lambda n: (x := _t(n), x)),
    "in an object, too": (lambda b: b.a.mul_(2) + b.b, lambda n: (Batch(x := _t(n), x),)),
    "a configuration": (lambda x, c: x * c.scale, lambda n: (_t(n), Conf())),
    "in an object": (lambda b: b.a * b.b.scale, lambda n: (Batch(_t(n), Conf()),)),
    "a function in an object": (lambda b: b.b(b.a), lambda n: (Batch(_t(n), torch.relu),)),
    "a class in an object": (
        lambda b: b.a * (2 if b.b is int else 3),
        lambda n: (Batch(_t(n), int),),
    ),
    "a named tuple in an object": (
        lambda b: b.a.a + b.a.b * b.b,
        lambda n: (Batch(Pair(_t(n), 1)),),
    ),
    "strides and offsets": (
        lambda x, y: x + y,
        lambda n: (_t(2, n).t(), _t(2 * n + 1)[1:].view(n, 2)),
    ),
    "sizes of 1": (lambda x, y: x + y, lambda n: (_t(1, n, 1), _t(n, 1, 1))),
}


@pytest.mark.parametrize("name", QUICK)
def test_known_calls_are_not_read_anew(name: str) -> None:
    fn, make = QUICK[name]
    compiled = symshape.compile(fn, fullgraph=True)
    slow, last = _slow_calls(compiled), 0
    for number, n in enumerate((3, 5, 5, 5, 4, 4, 4, 3, 3, 4)):
        torch.manual_seed(number)
        mine = make(n)
        torch.manual_seed(number)
        theirs = make(n)
        assert_same(compiled(*mine), fn(*theirs))
        assert_same(mine, theirs)
        if number in (6, 8, 9):
            assert len(slow) == last
        last = len(slow)
    assert compiled.stats().traces <= 3


# -- state that nests


FIRST, SECOND = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))


class Stateful(nn.Module):
    """Reads and writes what it keeps, however that nests."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None
        self.table: Any = {}

    def forward(self, x: Tensor) -> Tensor:
        state, found = self.state, x * 1
        if isinstance(state, dict):
            for number, (key, each) in enumerate(state.items(), 1):
                found = found + number * each * (2 if key is FIRST else 1)
            if isinstance(state, collections.defaultdict) and state.default_factory is None:
                found = found * 2
        elif isinstance(state, (tuple, list)):
            for number, each in enumerate(state, 1):
                found = found + number * (0 if each is None else each)
            if len(state) == 2 and state[0] is state[1]:
                found = found + 7
        self.state = (found.detach(), found.detach() + 1) if state is None else state
        self.table["last"] = {"found": found.detach()}
        return found * (3 if type(state) is list else 4 if type(state) is Pair else 5)


def _states(n: int, rng: random.Random) -> Any:
    a, b = torch.full((n,), 2.0), torch.full((n,), 3.0)
    one, other = rng.choice(
        [(FIRST, SECOND), (SECOND, FIRST), (None, FIRST), ("a", "b"), ("b", "a"), (1, True)]
    )
    table = {one: a, other: b} if one != other else {one: a}
    return rng.choice(
        [
            None,
            (a, b),
            [a, b],
            Pair(a, b),
            (a, a),
            [a, a],
            (a, 1),
            (a, True),
            (a, 2),
            (a, None),
            (a,),
            (a, 0.5),
            table,
            table,
            collections.OrderedDict(table),
            collections.defaultdict(None, table),
            collections.defaultdict(list, table),
        ]
    )


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("seed", range(6))
def test_state_that_is_exchanged_between_calls(seed: int) -> None:
    rng = random.Random(seed)
    mine, theirs = Stateful(), Stateful()
    compiled = symshape.compile(mine)
    for _ in range(60):
        n = rng.choice((2, 3))
        if rng.random() < 0.6:
            state = _states(n, rng)
            mine.state, theirs.state = state, copy.copy(state)
        elif isinstance(theirs.state, dict) and theirs.state and rng.random() < 0.5:
            for each in (mine.state, theirs.state):
                each[next(iter(each))] = torch.full((n,), 9.0)
        if any(isinstance(each, Tensor) and each.shape != (n,) for each in _parts(theirs.state)):
            mine.state = theirs.state = None
        x = torch.arange(float(n))
        for _ in range(rng.choice((1, 3))):
            assert_same(compiled(x), theirs(x))
            assert_same(list(_parts(mine.state)), list(_parts(theirs.state)))
            assert_same(mine.table, theirs.table)


def _parts(state: Any) -> Any:
    return (
        state.values()
        if isinstance(state, dict)
        else state
        if isinstance(state, (tuple, list))
        else ()
    )


def test_state_that_nests_is_not_read_anew() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.state = nn.LSTMCell(4, 4), (torch.zeros(3, 4), torch.zeros(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            h, c = self.cell(x, self.state)
            self.state = (h.detach(), c.detach())
            return h

    plain = Cell()
    module = symshape.compile(copy.deepcopy(plain))
    compiled = symshape.compiled_of(module)
    slow, x = _slow_calls(compiled), torch.randn(3, 4)
    for number in range(8):
        torch.testing.assert_close(module(x), plain(x))
        if number == 4:
            slow.clear()
    assert not slow


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.AdamW])
def test_the_state_of_an_optimiser_is_not_read_anew(make: Any) -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())

    def step_of(net: nn.Module) -> Callable[[Tensor], Tensor]:
        optimiser = make(net.parameters(), lr=0.01)

        def step(x: Tensor) -> Tensor:
            optimiser.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

        return step

    mine, theirs = step_of(nets[0]), step_of(nets[1])
    compiled = symshape.compile(mine)
    slow = _slow_calls(compiled)
    for number in range(10):
        x = torch.randn(5, 4)
        torch.testing.assert_close(compiled(x), theirs(x))
        if number == 6:
            slow.clear()
    assert not slow
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


# -- what is written to containers


OUTSIDE: list[Any] = []
TABLE: dict[str, Any] = {}


def _fills(first: Any, second: Any) -> Any:
    first.append(second[0] * 2)
    return first[-1] + len(second) + len(OUTSIDE)


def _arguments(way: int) -> tuple[Any, Any]:
    x = torch.ones(2)
    one = [x]
    return [
        (one, [x * 3]),
        (one, one),
        (one, OUTSIDE),
        (OUTSIDE, one),
        (OUTSIDE, OUTSIDE),
        (one, (x,)),
        ([], [x]),
    ][way]


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("seed", range(4))
def test_which_containers_are_one(seed: int) -> None:
    rng = random.Random(seed)
    compiled = symshape.compile(_fills)
    for _ in range(40):
        way = rng.randrange(7)
        seen = []
        for fn in (compiled, _fills):
            OUTSIDE[:] = [torch.zeros(2)]
            arguments = _arguments(way)
            seen.append([fn(*arguments), *arguments, list(OUTSIDE)])
        assert_same(*seen)


def _into_table(batch: Any) -> Any:
    TABLE["n"] = TABLE.get("n", 0) + 1
    batch["n"] = batch["x"] * 2
    return batch["n"] + TABLE["n"]


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("seed", range(4))
def test_a_dictionary_that_is_also_written_outside_or_is_the_attributes_of_an_object(
    seed: int,
) -> None:
    rng = random.Random(seed)
    compiled = symshape.compile(_into_table)
    for _ in range(30):
        way, seen = rng.randrange(4), []
        for fn in (compiled, _into_table):
            TABLE.clear()
            TABLE.update(n=3, x=torch.ones(2))
            plain = {"n": 1, "x": torch.ones(2)}
            space = types.SimpleNamespace(**plain)
            batch = (plain, TABLE, vars(space), collections.OrderedDict(plain))[way]
            seen.append([fn(batch), dict(batch), dict(TABLE), vars(space)])
        assert_same(*seen)


# -- objects that hold objects


def _reads(batch: Any) -> Any:
    found = batch.a.a * batch.b.scale + batch.b.heads
    return (
        found
        + len(batch.b.name)
        + (5 if type(batch) is Below else 0)
        + len(vars(batch))
        + 11 * (batch.a.b is batch.b)
    )


CHANGES: list[Callable[[Any], Any]] = [
    lambda v: object.__setattr__(v.b, "scale", 0.25),
    lambda v: object.__setattr__(v.b, "scale", 1),
    lambda v: object.__setattr__(v.b, "scale", True),
    lambda v: object.__setattr__(v.b, "heads", 2.0),
    lambda v: object.__setattr__(v.b, "name", "other"),
    lambda v: setattr(v, "b", Conf(heads=3)),
    lambda v: setattr(v, "b", types.SimpleNamespace(scale=0.5, heads=2, name="n")),
    lambda v: setattr(v, "a", Batch(v.a.a, v.b)),
    lambda v: setattr(v, "a", Pair(v.a.a, v.b)),
    lambda v: setattr(v, "a", Pair(v.a.a, None)),
    lambda v: setattr(v, "a", Below(v.a.a, torch.relu)),
    lambda v: setattr(v, "a", Batch(v.a.a, int)),
    lambda v: setattr(v, "more", 1),
    lambda v: vars(v).pop("more", None),
    lambda v: vars(v).update(a=vars(v).pop("a")),
    lambda v: setattr(v, "__class__", Below if type(v) is Batch else Batch),
]


@pytest.fixture(params=["watched", "asked each time"])
def _classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numbers for classes, and where they are not known."""
    if request.param == "asked each time":
        monkeypatch.setattr(call_key, "class_version", compiled._unknown)
        monkeypatch.setattr(nesting_codegen, "class_version", compiled._unknown)


@pytest.mark.slow
@pytest.mark.usefixtures("_classes")
@pytest.mark.parametrize("seed", sampled(range(8), every=3))
def test_changes_deep_in_objects_are_seen(seed: int) -> None:
    rng = random.Random(seed)
    compiled_one = symshape.compile(_reads)
    for _ in range(8):
        value = Batch(Batch(torch.ones(2), 1), Conf())
        for _ in range(8):
            for _ in range(2):
                assert_same(compiled_one(value), _reads(value))
            rng.choice(CHANGES)(value)


@pytest.mark.usefixtures("_classes")
def test_a_class_of_a_constant_that_is_changed_is_seen() -> None:
    @dataclasses.dataclass(frozen=True)
    class Late:
        scale: float = 0.5
        heads: int = 2
        name: str = "n"

    compiled_one = symshape.compile(_reads)
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(Late, "scale", property(lambda self: 4.0, lambda self, value: None)),
        lambda: delattr(Late, "scale"),
        lambda: setattr(Late, "heads", property(lambda self: 9)),
        lambda: delattr(Late, "heads"),
        lambda: setattr(
            Late,
            "__getattribute__",
            lambda self, n: 3 if n == "heads" else object.__getattribute__(self, n),
        ),
        lambda: delattr(Late, "__getattribute__"),
    ]
    kept = Batch(Batch(torch.ones(2), 1), Late())
    for step in steps:
        step()
        for value in (kept, kept, Batch(Batch(torch.ones(2), 1), kept.b)):
            assert_same(compiled_one(value), _reads(value))
