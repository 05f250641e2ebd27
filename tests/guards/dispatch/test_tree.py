"""The dispatch tree answers what a scan in order of insertion answers."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from guards import GuardsError, GuardSet, Tree
from guards.dispatch.nodes import Record
from guards.terms.arithmetic import symbol
from guards.terms.boolean import eq, ge, gt, le, ne
from guards.terms.division import mod
from tests.guards.making import SLOTS, Family, families, overlapping, random_set

FAMILIES = families() + overlapping()
A, B = symbol("a"), symbol("b")


def ids(family: Family) -> str:
    return family.name


def test_empty() -> None:
    tree: Tree[str] = Tree(["s0"])
    assert tree.lookup((1,)) is None
    assert str(tree.miss((1,))) == "there are no entries"
    assert len(tree) == 0


def test_first_inserted_wins() -> None:
    tree: Tree[str] = Tree(["a"])
    tree.insert(GuardSet([ge(A, 5)]), "wide")
    tree.insert(GuardSet([eq(A, 8)]), "narrow")
    assert tree.lookup((8,)) == "wide"
    tree.remove(next(entry for _, entry in tree if entry == "wide"))
    assert tree.lookup((8,)) == "narrow"
    assert tree.lookup((9,)) is None


def test_always() -> None:
    tree: Tree[str] = Tree(["a"])
    tree.insert(GuardSet(), "any")
    tree.insert(GuardSet([eq(A, 1)]), "never reached")
    assert tree.lookup((1,)) == "any"
    assert tree.lookup((-1,)) == "any"


def test_no_slots() -> None:
    tree: Tree[str] = Tree([])
    tree.insert(GuardSet(), "the one")
    assert tree.lookup(()) == "the one"


def test_contradictory_set_is_kept_but_never_found() -> None:
    tree: Tree[str] = Tree(["a"])
    tree.insert(GuardSet([gt(A, 5), le(A, 2)]), "never")
    tree.insert(GuardSet([], {"a": (4, 1)}), "never either")
    assert tree.lookup((3,)) is None
    assert len(tree) == 2
    assert len(tree.miss((3,)).nearest) == 2


def test_symbol_without_slot() -> None:
    with pytest.raises(GuardsError, match="no slot"):
        Tree(["a"]).insert(GuardSet([eq(B, 1)]), "x")


def test_slot_twice() -> None:
    with pytest.raises(GuardsError, match="twice"):
        Tree(["a", "a"])


def test_remove_by_identity() -> None:
    tree: Tree[list[int]] = Tree(["a"])
    one, other = [1], [1]
    tree.insert(GuardSet([eq(A, 1)]), one)
    tree.insert(GuardSet([eq(A, 2)]), other)
    tree.insert(GuardSet([eq(A, 3)]), one)
    tree.remove(one)
    assert [entry is other for _, entry in tree] == [True]
    assert tree.lookup((1,)) is tree.lookup((3,)) is None
    with pytest.raises(KeyError):
        tree.remove(one)


def test_sizes_are_not_tested_for_their_sign() -> None:
    sized: Tree[str] = Tree(["a"], sizes=["a"])
    sized.insert(GuardSet([ne(A, 7)]), "x")
    assert sized.lookup((3,)) == "x"
    plain: Tree[str] = Tree(["a"])
    plain.insert(GuardSet([ne(A, 7)]), "x")
    assert plain.lookup((-1,)) is None


def test_division_by_zero_misses() -> None:
    tree: Tree[str] = Tree(["a", "b"])
    for rest in range(10):
        tree.insert(GuardSet([eq(mod(A, B), rest)]), f"rest {rest}")
    assert tree.lookup((23, 10)) == "rest 3"
    assert tree.lookup((23, 0)) is None


@pytest.mark.parametrize("family", FAMILIES, ids=ids)
@pytest.mark.parametrize("count", [1, 5, 33, 130])
def test_families_agree_with_a_scan(family: Family, count: int) -> None:
    rng = random.Random(count)
    tree: Tree[int] = Tree(family.slots)
    order = rng.sample(range(count), count)
    for index in order:
        tree.insert(family.guard_set(index), index)
    found = 0
    for _ in range(150):
        around = family.values(rng.randrange(count))
        moved = rng.randrange(2 * len(around))  # one value is moved, in half of the cases
        values = tuple(
            v + rng.choice([-8, -1, 1, 8]) * (position == moved)
            for position, v in enumerate(around)
        )
        answer = tree.lookup(values)
        assert answer == tree.scan(values), values
        found += answer is not None
    assert found > 20


def test_random_sets_agree_with_a_scan() -> None:
    rng = random.Random(3)
    for _ in range(20):
        tree: Tree[str] = Tree(SLOTS)
        entries = [f"entry {index}" for index in range(rng.choice([3, 10, 30]))]
        for entry in entries:
            tree.insert(random_set(rng), entry)
        tree.remove(rng.choice(entries))
        for _ in range(60):
            values = tuple(rng.randint(-1, 11) for _ in SLOTS)
            assert tree.lookup(values) == tree.scan(values)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_thousand_entries(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building entry by entry places each in few leaves, not in one of every other entry."""
    placed = 0
    test = Record.test

    def counted(record: Record, verified: Any, compiler: Any) -> Any:
        nonlocal placed
        placed += 1
        return test(record, verified, compiler)

    monkeypatch.setattr(Record, "test", counted)
    tree: Tree[int] = Tree(family.slots)
    sets = [family.guard_set(index) for index in range(1000)]
    for index, guards in enumerate(sets):
        tree.insert(guards, index)
    # the worst family: 61 for each; every entry beside every other: 500
    assert 1000 <= placed < 100 * 1000
    for index in range(0, 1000, 37):
        values = family.values(index)
        assert sets[tree.lookup(values)].holds(dict(zip(family.slots, values, strict=True)))  # type: ignore[index]


class Counted(tuple[int, ...]):
    """Values that count how often one of them is read."""

    reads = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        type(self).reads += 1
        return tuple.__getitem__(self, index)

    def __eq__(self, other: object) -> bool:
        type(self).reads += 1
        return tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=ids)
def test_few_tests_for_each_look_up(family: Family) -> None:
    """The number of values read, which no noise of the machine changes, grows by no more than a
    little.
    """
    tree: Tree[int] = Tree(family.slots)
    for index in range(1000):
        tree.insert(family.guard_set(index), index)
    for index in (0, 17, 500, 999):
        Counted.reads = 0
        assert tree.lookup(Counted(family.values(index))) is not None
        assert Counted.reads <= 24, index


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_overlapping_boxes_agree_with_a_scan(seed: int) -> None:
    """Wide ranges that overlap, inserted and removed in between: many ways to be cut, one
    answer.
    """
    rng = random.Random(seed)
    tree: Tree[str] = Tree(["a", "b", "c"])
    live: list[str] = []
    for index in range(rng.choice([60, 250])):
        terms = []
        for s in (A, B, symbol("c")):
            low, kind = rng.randint(0, 100), rng.randrange(7)
            reach = rng.choice([0, 2, 20, 60, 200])
            if kind < 4:
                terms += [ge(s, low), le(s, low + reach)]
            elif kind == 4:
                terms.append(rng.choice([ge(s, low), le(s, low)]))
            elif kind == 5:
                terms.append(eq(mod(s, rng.choice([2, 4, 8])), rng.randrange(2)))
        live.append(f"entry {index}")
        tree.insert(GuardSet(terms), live[-1])
        if rng.random() < 0.05:
            tree.remove(live.pop(rng.randrange(len(live))))
        for _ in range(3):
            values = tuple(rng.randint(-1, 160) for _ in range(3))
            assert tree.lookup(values) == tree.scan(values), (seed, index, values)
    for _ in range(300):
        values = tuple(rng.randint(-1, 160) for _ in range(3))
        assert tree.lookup(values) == tree.scan(values), (seed, values)


def test_a_thousand_wide_ranges_need_no_deep_stack() -> None:
    """Each was set apart from the next, one inside the other, until Python's stack ended."""
    tree: Tree[int] = Tree(["a", "b"])
    for index in range(1000):
        tree.insert(GuardSet([ge(A, index), le(A, index + 500), ge(B, index % 3)]), index)
    assert tree.lookup((700, 0)) == tree.scan((700, 0)) == 201
    assert tree.lookup((1499, 0)) == tree.scan((1499, 0))


class TestMiss:
    def test_nearest_first(self) -> None:
        tree: Tree[str] = Tree(["a", "b"])
        tree.insert(GuardSet.read("a == 8", "b == 9"), "two fail")
        tree.insert(GuardSet.read("a == 8", "b == 4"), "one fails")
        miss = tree.miss((7, 4))
        assert [near.entry for near in miss.nearest] == ["one fails", "two fail"]
        assert [v.text for v in miss.nearest[0].violations] == ["a == 8, but a = 7"]
        assert miss.entries == 2
        assert dict(miss.values) == {"a": 7, "b": 4}

    def test_smaller_gap_first(self) -> None:
        tree: Tree[int] = Tree(["a"])
        for value in (100, 10, 50):
            tree.insert(GuardSet([eq(A, value)]), value)
        assert [near.entry for near in tree.miss((14,)).nearest] == [10, 50, 100]

    def test_limit_and_names(self) -> None:
        tree: Tree[int] = Tree(["a"])
        for value in range(10):
            tree.insert(GuardSet([eq(A, value)]), value)
        miss = tree.miss((99,), {"a": "x.size(0)"}, limit=2)
        assert [near.entry for near in miss.nearest] == [9, 8]
        assert "x.size(0) = 99" in str(miss)


def test_readers_need_no_lock() -> None:
    """What is inserted is found at once and stays found, while a writer inserts, removes and the
    tree is made anew.
    """
    tree: Tree[str] = Tree(["a", "b"])
    stays = [f"stays {index}" for index in range(10)]
    for index, entry in enumerate(stays):
        tree.insert(GuardSet([eq(A, index), eq(B, 1)]), entry)
    done = threading.Event()
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            index = rng.randrange(10)
            found = tree.lookup((index, 1))
            if found != stays[index]:
                wrong.append((index, found))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for reader in readers:
        reader.start()
    for index in range(300):
        entry = f"more {index}"
        tree.insert(GuardSet([gt(A, index), eq(B, index % 7)]), entry)
        assert tree.lookup((index + 1, index % 7)) is not None
        if index % 50 == 0:
            tree.remove(entry)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
