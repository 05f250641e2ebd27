"""The quick check of state against the definition, on random worlds that are mutated at random
between checks.
"""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import time
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import symshape
from symshape.tracing.state import compiled
from symshape.tracing.state.compare import checker as checkers
from symshape.tracing.state.compare.checker import Checker, Comparison, Hooks, Places, Table
from symshape.tracing.state.record.places import MISSING, Attribute, Cell, Container, items_of, same

VALUES = (
    0,
    1,
    1.0,
    True,
    False,
    2**70,
    -0.0,
    0.0,
    float("nan"),
    "a",
    b"a",
    None,
    torch.float32,
    (),
    object(),
    nn.ReLU(),
)


needs_versions = pytest.mark.skipif(
    compiled.VERSIONS is None, reason="dictionaries are not watched in C++ here"
)


Step = tuple[Callable[[], Any], Callable[[], Any]]
NAMES = ("a", "b", "c", "training", "weight", "d")


class Thing:
    """An object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("a", "b")


class Bag(dict[str, Any]):
    """A dictionary of a class of its own."""


@attrs.frozen(eq=False)
class Slot:
    """A place of a kind that the checker does not know."""

    owner: Any  # not a dictionary, and not to be taken for one
    key: str
    value: Any

    def holds(self) -> bool:
        return same(getattr(self.owner, self.key, MISSING), self.value)


@attrs.frozen(eq=False)
class Attributes:
    """The place of an object's own dictionary, which can be another one."""

    object: Any
    owner: dict[str, Any]

    def holds(self) -> bool:
        return vars(self.object) is self.owner


def fresh(value: Any) -> Any:
    """The same value in another object, where there is one."""
    if isinstance(value, (float, str, bytes)) or (type(value) is int and abs(value) > 1000):
        return eval(repr(value), {"nan": float("nan")})
    return value


class World:
    """Objects of every kind with places in them, and ways to change them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.modules = [
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(rng.randint(1, 3))
        ]
        self.objects = [Thing(**self.some()) for _ in range(rng.randint(1, 4))]
        self.slotted = [Slotted() for _ in range(2)]
        self.cells = [types.CellType(self.value()) for _ in range(3)]
        self.lists: list[Any] = [
            [self.value()],
            deque([self.value()] * 2),
            {1, 2},
            [self.value()] * 3,
            [],
        ]
        self.dicts: list[Any] = [self.some(), Bag(self.some()), OrderedDict(self.some()), {}]
        self.kind = type("Kind", (), self.some())
        self.parts = [part for each in self.modules for part in each.modules()]

    def value(self) -> Any:
        return fresh(self.rng.choice(VALUES))

    def some(self) -> dict[str, Any]:
        return {name: self.value() for name in self.rng.sample(NAMES, self.rng.randint(0, 4))}

    def places(self) -> Places:
        cells: list[Cell] = [Cell(each, "", each.cell_contents, "") for each in self.cells]
        tables, hooks, others = [], [], []
        owners: list[Any] = [*map(vars, self.objects), *self.dicts, self.kind.__dict__]
        for part in self.parts:
            owners += [part._parameters, part._modules, part._buffers]
            tables.append(Table(vars(part), frozenset(vars(part)), frozenset(NAMES)))
            hooks += [
                Hooks(each, tuple(each.values()))
                for each in (part._forward_hooks, part._backward_hooks)
            ]
            cells.append(Cell(vars(part), "training", part.training, ""))
        for owner in owners:
            read = [key for key in owner if not key.startswith("__") and self.rng.random() < 0.8]
            absent = [key for key in NAMES if key not in owner and self.rng.random() < 0.2]
            cells += [Cell(owner, key, owner.get(key, MISSING), "") for key in (*read, *absent)]
            if self.rng.random() < 0.5:
                names = self.rng.choice([None, frozenset(self.rng.sample(NAMES, 3))])
                tables.append(Table(owner, frozenset(owner), names))
        containers = [Container(each, items_of(each), "") for each in (*self.lists, *self.dicts)]
        others += [
            Slot(each, key, getattr(each, key, MISSING))
            for each in self.slotted
            for key in ("a", "b")
        ]
        others += [Attributes(each, vars(each)) for each in self.objects]
        return Places(cells, containers, tables, hooks, others)

    def change(self) -> Step:
        """Some change, and what takes it back."""
        kinds = (
            self.attribute,
            self.item,
            self.contents,
            self.hook,
            self.swap,
            self.slot,
            self.nothing,
        )
        return self.rng.choice(kinds)()

    def attribute(self) -> Step:
        owner: Any = self.rng.choice([*self.objects, *self.parts, self.kind])
        name, value = self.rng.choice([*NAMES, "unread", "counter"]), self.value()
        then = vars(owner).get(name, MISSING)
        if isinstance(owner, nn.Module) and (name == "weight" or isinstance(value, nn.Module)):
            return self.nothing()
        write: Any = setattr
        if self.rng.random() < 0.3 and not isinstance(owner, type):
            write = lambda owner, name, value: vars(owner).update({name: value})  # noqa: E731

        def back() -> None:
            if then is not MISSING:
                setattr(owner, name, fresh(then))
            elif name in vars(owner):
                delattr(owner, name)

        if name in vars(owner) and self.rng.random() < 0.3:
            return lambda: delattr(owner, name), back
        return lambda: write(owner, name, value), back

    def item(self) -> Step:
        part = self.rng.choice(self.parts)
        owner: Any = self.rng.choice([*self.dicts, part._buffers, part._parameters, part._modules])
        name, value, then = self.rng.choice([*NAMES, *owner]), self.value(), dict(owner)

        def back() -> None:
            owner.clear()
            owner.update(then)

        if isinstance(owner, OrderedDict) and len(owner) > 1 and self.rng.random() < 0.3:
            return lambda: owner.move_to_end(next(iter(owner))), back
        doing = (
            lambda: owner.update({name: value}),
            lambda: owner.pop(name, None),
            lambda: owner.clear(),
            lambda: owner.setdefault(name, value),
            lambda: [
                owner.pop(next(iter(owner)), None) if owner else None,
                owner.update({name: value}),
            ],
        )
        return self.rng.choice(doing), back

    def contents(self) -> Step:
        if self.rng.random() < 0.5:
            cell, value = self.rng.choice(self.cells), self.value()
            then = Cell(cell, "", None, "").read()

            def fill() -> None:
                if then is not MISSING:
                    cell.cell_contents = fresh(then)

            if self.rng.random() < 0.2 and then is not MISSING:
                return lambda: delattr(cell, "cell_contents"), fill
            return lambda: setattr(cell, "cell_contents", value), fill
        owner, value = self.rng.choice(self.lists), self.value()
        items = list(owner)

        def back() -> None:
            owner.clear()
            (owner.update if isinstance(owner, set) else owner.extend)(map(fresh, items))

        def write() -> None:
            if isinstance(owner, set):
                owner.add(3)
            elif owner and self.rng.random() < 0.6:
                owner[0] = value
            else:
                owner.append(value)

        return write, back

    def hook(self) -> Step:
        table = self.rng.choice(self.parts)._forward_hooks
        then = dict(table)

        def back() -> None:
            table.clear()
            table.update(then)

        if len(table) > 1 and self.rng.random() < 0.5:
            return lambda: table.move_to_end(next(iter(table))), back
        return lambda: table.update({len(table) + 7: self.value}), back

    def swap(self) -> Step:
        """An object's own dictionary, or a module, is replaced by an equal one."""
        if self.rng.random() < 0.5:
            owner = self.rng.choice(self.objects)
            then = vars(owner)
            return lambda: setattr(owner, "__dict__", dict(then)), lambda: setattr(
                owner, "__dict__", then
            )
        parent = self.rng.choice(self.modules)
        child = parent[0]
        return lambda: parent.__setitem__(0, nn.Linear(2, 2)), lambda: parent.__setitem__(0, child)

    def slot(self) -> Step:
        owner, key, value = self.rng.choice(self.slotted), self.rng.choice("ab"), self.value()
        then = getattr(owner, key, MISSING)

        def back() -> None:
            if then is MISSING:
                if hasattr(owner, key):
                    delattr(owner, key)
            else:
                setattr(owner, key, then)

        return lambda: setattr(owner, key, value), back

    def nothing(self) -> Step:
        return lambda: None, lambda: None


def holds(places: Places) -> bool:
    """The definition, place by place."""
    for cell in places.cells:
        if not same(cell.read(), cell.value):
            return False
    for each in places.containers:
        now = each.read()
        if len(now) != len(each.items) or not all(map(same, now, each.items)):
            return False
    for table in places.tables:
        new = table.owner.keys() - table.known
        if new and (table.names is None or new & table.names):
            return False
    for hooks in places.hooks:
        now = tuple(hooks.owner.values())
        if len(now) != len(hooks.functions) or any(
            a is not b for a, b in zip(now, hooks.functions, strict=True)
        ):
            return False
    return all(place.holds() for place in places.others)


@pytest.fixture(params=["watched", "compared"])
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A checker that watches at once, and again at once; and one that cannot watch."""
    monkeypatch.setattr(checkers, "_FIRST_WAIT", 2)
    monkeypatch.setattr(checkers, "_LONGEST_WAIT", 2)
    monkeypatch.setattr(checkers, "_MANY", 1)
    # some by columns, the others by an expression
    monkeypatch.setattr(checkers, "_FIRST_CHECKS", 60)
    if request.param == "compared":
        monkeypatch.setattr(compiled, "VERSIONS", None)
    elif compiled.VERSIONS is None:
        pytest.skip("dictionaries are not watched in C++ here")
    return request.param


@pytest.mark.parametrize("seed", range(24))
def test_random_worlds(seed: int, impatient: str) -> None:
    rng = random.Random(seed)
    world = World(rng)
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 2)):
            rng.choice(world.parts).register_forward_hook(lambda *_: None)
    places = world.places()
    check = Checker(places)
    undo: list[Callable[[], Any]] = []
    seen, watched, quick = {True: 0, False: 0}, 0, {check._whole.quick}
    for step in range(250):
        expected = holds(places)
        assert check() is expected, f"seed {seed}, step {step}"
        assert check() is expected, f"seed {seed}, step {step}, asked again"
        seen[expected] += 1
        watched += check._watched is not None
        quick.add(check._whole.quick)
        if undo and rng.random() < 0.6:
            while undo:
                undo.pop()()
            continue
        if rng.random() < 0.5:
            change, back = world.change()
            undo.append(back)
            change()
    assert min(seen.values()) > 20, f"seed {seed}: {seen}"
    assert (watched > 20) == (impatient == "watched" and bool(check._dicts)), (
        f"seed {seed}: {watched} watched"
    )
    assert len(quick) == (2 if check._dicts else 1)


def model(width: int = 12) -> tuple[nn.Module, Places]:
    """A module of some dozen parts, with everything that it holds as places."""
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(width)))
    cells, tables, hooks = [], [], []
    for part in module.modules():
        for table in (part._parameters, part._modules, part._buffers):
            cells += [Cell(table, key, value, key) for key, value in table.items()]
            tables.append(Table(table, frozenset(table)))
        cells.append(Cell(vars(part), "training", part.training, "training"))
        tables.append(Table(vars(part), frozenset(vars(part)), frozenset({"scale", "training"})))
        hooks.append(Hooks(part._forward_hooks))
    return module, Places(cells, (), tables, hooks)


def calls_until_watched(check: Checker, most: int = 100) -> int:
    for count in range(1, most):
        assert check()
        if check._watched is not None:
            return count
    return most


@needs_versions
def test_a_counter_written_between_calls_is_left_out_of_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, places = model()
    check = Checker(places)
    for count in range(60):
        module.counter = count
        assert check()
    assert check._watched is not None
    watched, counts = check._watched, []
    monkeypatch.setattr(Comparison, "holds", lambda self: counts.append(1) or True)
    for count in range(60):
        module.counter = count
        assert check()
    assert check._watched is watched
    assert not any(counts[:-2]), "each call looks twice"
    monkeypatch.undo()
    module.scale = 2.0  # type: ignore[assignment]
    assert not check()


@needs_versions
def test_a_watch_that_is_lost_again_and_again_becomes_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    watched = checkers._Watched
    monkeypatch.setattr(checkers, "_Watched", lambda *args: made.append(1) or watched(*args))
    module, places = model()
    check = Checker(places)
    rng = random.Random(0)
    parts = list(module.modules())
    for step in range(3000):
        if step % 25 == 0:
            rng.choice(parts).counter = step  # type: ignore[assignment]
        assert check()
    assert 1 <= len(made) <= 5


@needs_versions
def test_modes_that_alternate_are_compared_and_not_watched() -> None:
    module, places = model()
    check = Checker(places)
    for _ in range(100):
        assert check()
        module.eval()
        assert not check()
        module.train()
    assert check._watched is None
    assert calls_until_watched(check) < 100


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_what_is_dropped_dies(watched: bool) -> None:
    module, places = model()
    check = Checker(places)
    if watched:
        calls_until_watched(check)
    module.itself = check  # a circle: what it watches holds it
    gone = [weakref.ref(part) for part in module.modules()]
    del module, places
    gc.collect()
    assert gone[1]() is not None
    assert check()
    del check
    gc.collect()
    assert [each() for each in gone] == [None] * len(gone)


@pytest.mark.slow
def test_objects_that_die_under_the_watch_are_no_danger() -> None:
    for _ in range(5):
        module, places = model(40)
        check = Checker(places)
        calls_until_watched(check)
        attributes = [vars(part) for part in module.modules()]
        for part in list(module.modules()):
            # the watched dictionary is nobody's now but the checker's
            part.__dict__ = dict(vars(part))
        del module, part
        gc.collect()
        assert check()
        attributes[3]["scale"] = 1
        assert not check()


@pytest.mark.slow
def test_threads_never_see_a_stale_answer() -> None:
    """One thread changes the state in turns; a yes in a turn that is wholly changed would be
    stale.
    """
    module, places = model(30)
    check = Checker(places)
    parts = list(module.modules())
    # an odd turn: changed; the number grows before and after a write
    stop, wrong, turn = (threading.Event(), [], [0])

    def ask() -> None:
        while not stop.is_set():
            before = turn[0]
            answer = check()
            if before == turn[0] and before % 4 in (0, 2) and answer is not (before % 4 == 0):
                wrong.append((before, answer))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    rng = random.Random(1)
    for _ in range(50):
        part: Any = rng.choice(parts)
        time.sleep(0.002)
        turn[0] += 1
        part.training = False
        turn[0] += 1
        time.sleep(0.001)
        turn[0] += 1
        part.training = True
        turn[0] += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
    assert turn[0] == 200


@needs_versions
def test_compiled_modules_are_watched_and_seen() -> None:
    module = nn.Sequential(*(nn.Linear(3, 3) for _ in range(12)))
    compiled = symshape.compile(module)
    x = torch.ones(2, 3)
    for _ in range(12):
        assert torch.equal(compiled(x), module(x))
    checker: Any = symshape.compiled_of(compiled)._cache.branches[0].state
    assert checker._checker._watched is not None
    module[5] = nn.ReLU()
    assert torch.equal(compiled(x), module(x))
    module[2].bias.data = torch.ones(3)
    module[2].weight = nn.Parameter(torch.zeros(3, 3))
    assert torch.equal(compiled(x), module(x))
    module[3].register_forward_hook(lambda *_: torch.zeros(2, 3))
    assert torch.equal(compiled(x), module(x))
    # a weight like the one before takes its place
    assert len(symshape.compiled_of(compiled)._cache.branches) == 3


class TestClasses:
    """Attributes of classes are watched in the dictionaries behind them."""

    @needs_versions
    @pytest.mark.parametrize(
        "change",
        [
            lambda base, derived: setattr(base, "a", 2),
            lambda base, derived: setattr(derived, "a", 2),
            lambda base, derived: delattr(base, "a"),
            lambda base, derived: setattr(base, "new", 2),
            lambda base, derived: setattr(derived, "__bases__", (Thing,)),
            lambda base, derived: type.__setattr__(derived, "a", 2),
        ],
    )
    def test_a_write_is_seen(self, change: Callable[[Any, Any], Any]) -> None:
        root: Any = type("Root", (), {})
        base: Any = type("Base", (root,), {"a": 1})
        derived: Any = type("Derived", (base,), {})
        things = [Thing(a=i) for i in range(60)]
        cells: list[Any] = [Cell(vars(each), "a", each.a, "a") for each in things]
        cells += [Attribute(derived, "a", 1, "a"), Attribute(derived, "new", MISSING, "new")]
        cells += [Cell(derived.__dict__, "a", MISSING, "a")]
        checker = Checker(Places(cells))
        for _ in range(20):
            assert checker()
        assert checker._watched is not None
        left = checker._watched.others._places.cells
        assert [each.key for each in left] == ["__mro__"]
        change(base, derived)
        assert not checker()
        assert not checker()


def _function(x: Any = 1, *, y: Any = 2) -> Any:
    return x, y


class TestPointers:
    """What functions, classes and closures refer to is compared in C++ where that was built, and
    seen either way.
    """

    @pytest.fixture(params=["in C++", "in Python"], autouse=True)
    def _both(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param == "in Python":
            monkeypatch.setattr(compiled, "POINTERS", None)
        elif compiled.POINTERS is None:
            pytest.skip("compiled_checks was not built")

    @staticmethod
    def _places() -> tuple[types.FunctionType, type, types.CellType, list[Cell | Attribute]]:
        function = types.FunctionType(_function.__code__, {}, "f", (1,))
        function.__kwdefaults__ = {"y": 2}
        kind = type("Kind", (type("First", (), {}),), {})
        cell = types.CellType(1000)
        cells: list[Cell | Attribute] = [
            Attribute(function, key, getattr(function, key), key)
            for key in ("__code__", "__defaults__", "__kwdefaults__", "__name__")
        ]
        cells += [
            Attribute(kind, "__mro__", kind.__mro__, "mro"),
            Attribute(Thing(), "b", MISSING, "b"),
        ]
        return function, kind, cell, [*cells, Cell(cell, "x", cell.cell_contents, "x")]

    @pytest.mark.parametrize(
        "change",
        [
            lambda function, kind, cell: setattr(
                function, "__code__", (lambda x, *, y: 0).__code__
            ),
            lambda function, kind, cell: setattr(function, "__defaults__", None),
            lambda function, kind, cell: setattr(function, "__defaults__", (2,)),
            lambda function, kind, cell: setattr(function, "__kwdefaults__", None),
            lambda function, kind, cell: setattr(function, "__name__", "g"),
            lambda function, kind, cell: setattr(kind, "__bases__", (type("Second", (), {}),)),
            lambda function, kind, cell: setattr(cell, "cell_contents", 2),
            lambda function, kind, cell: delattr(cell, "cell_contents"),
        ],
    )
    def test_a_change_is_seen(self, change: Callable[[Any, Any, Any], Any]) -> None:
        function, kind, cell, cells = self._places()
        check = Comparison(Places(cells))
        assert check.quick()
        assert check.holds()
        change(function, kind, cell)
        with contextlib.suppress(checkers.UNREADABLE):
            assert not check.quick()
        assert not check.holds()

    def test_what_is_equal_is_quick_again(self) -> None:
        function, _, cell, cells = self._places()
        check = Comparison(Places(cells))
        cell.cell_contents = int("1000")
        assert not check.quick()
        assert check.holds()
        assert check.quick()
        function.__defaults__ = (5,)
        assert not check.quick()

    def test_none_and_what_is_not_there_are_one(self) -> None:
        function = types.FunctionType(_function.__code__, {})
        cells = [Attribute(function, key, None, key) for key in ("__defaults__", "__kwdefaults__")]
        check = Comparison(Places(cells))
        assert check.quick()
        function.__defaults__ = ()
        assert not check.quick()

    def test_an_empty_variable_and_a_class_that_answers_otherwise(self) -> None:
        class Meta(type):
            __mro__ = (int,)

        empty, odd = types.CellType(), Meta("Odd", (), {})
        check = Comparison(
            Places([Cell(empty, "x", MISSING, "x"), Attribute(odd, "__mro__", odd.__mro__, "mro")])
        )
        assert check.holds()
        assert check.quick()
        empty.cell_contents = 1
        assert not check.quick()
        assert not check.holds()


@pytest.mark.skipif(compiled.POINTERS is None, reason="compiled_checks was not built")
def test_pointers_of_other_kinds_are_refused() -> None:
    for place in (
        (_function, "__name__", "f"),
        (Thing(), "__mro__", ()),
        (Thing, "__dict__", {}),
        (1, "", 1),
        3,
    ):
        with pytest.raises(TypeError):
            compiled.POINTERS((place,))


def test_what_differed_last_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = {"first": 0, "last": 1}
    kept = [[1, 2], [3]]
    cells = [Cell(owner, key, value, key) for key, value in owner.items()]
    check = Checker(Places(cells, [Container(each, items_of(each), "kept") for each in kept]))
    looks: list[int] = []
    look = Comparison.holds
    monkeypatch.setattr(Comparison, "holds", lambda self: looks.append(1) or look(self))
    for change, back in (
        (lambda: owner.update(last=2), lambda: owner.update(last=1)),
        (lambda: owner.pop("last"), lambda: owner.update(last=1)),
        (lambda: kept[1].append(4), lambda: kept[1].pop()),
        (lambda: kept[0].clear(), lambda: kept[0].extend([1, 2])),
    ):
        assert check()
        change()
        looks.clear()
        assert not check()
        before = len(looks)
        assert not check()
        assert not check()
        assert len(looks) == before <= 1
        back()
        assert check()
    owner["last"] = 2
    assert not check()
    owner.update(first=5, last=1)  # another differs now
    assert not check()
    assert not check()
    owner["first"] = 0
    assert check()
