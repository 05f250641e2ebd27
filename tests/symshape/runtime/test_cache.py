"""The recompile cache: bounded, least recently used first out, published whole, and right under
many threads.
"""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from guards.dispatch.tree import Tree
from symshape import Options, events


def numbers(f: Any) -> list[int]:
    return [entry.number for entry in f.entries]


def test_the_bound_holds_and_the_least_recently_used_leaves() -> None:
    f = symshape.compile(lambda x: x + 1, dynamic=False, options=Options(max_entries=3))
    gone: list[int] = []
    unsubscribe = events.subscribe(
        lambda e: gone.append(e.entry) if isinstance(e, events.Evicted) else None
    )
    try:
        for size in (1, 2, 3):
            f(torch.ones(size))
        f(torch.ones(1))  # entry 0 is used again
        f(torch.ones(4))
        assert numbers(f) == [0, 2, 3]
        for _ in range(600):  # by the memo, too
            f(torch.ones(3))
            f(torch.ones(1))
        f(torch.ones(5))
        assert numbers(f) == [0, 2, 4]
    finally:
        unsubscribe()
    assert gone == [1, 3]
    assert f.stats().evictions == 2
    assert f.stats().entries == 3


def test_the_tree_is_made_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    inserted: list[Any] = []
    insert = Tree.insert
    monkeypatch.setattr(
        Tree, "insert", lambda *args: inserted.append(args[2].number) or insert(*args)
    )
    f = symshape.compile(lambda x: x + 1, dynamic=True)
    for _ in range(3):
        f(torch.ones(3, 2))
    assert inserted == []  # the memo of exact calls answers
    f(torch.ones(4, 2))
    f(torch.ones(5, 2))
    assert inserted == [0]
    assert f.stats().traces == 1


def test_entries_that_wait_for_the_tree_leave_too(monkeypatch: pytest.MonkeyPatch) -> None:
    f = symshape.compile(lambda x: x + 1, dynamic=False, options=Options(max_entries=1))
    for size in (1, 2, 3):
        assert torch.equal(f(torch.ones(size)), torch.full((size,), 2.0))
    (family,) = f._cache.branches[0].families.values()
    assert [entry.number for _, entry in family.tree] == numbers(f) == [2]
    f._cache.discard(f.entries[0])
    assert not f._cache.branches
    assert len(family.tree) == 0


def test_threads_that_ask_a_tree_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = Tree.insert
    monkeypatch.setattr(Tree, "insert", lambda *args: time.sleep(0.02) or insert(*args))
    f = symshape.compile(lambda x: x + 1, dynamic=True)
    f(torch.ones(3, 2))
    start, wrong = threading.Barrier(8), []

    def call(size: int) -> None:
        start.wait()
        if not torch.equal(f(torch.ones(size, 2)), torch.full((size, 2), 2.0)):
            wrong.append(size)

    threads = [threading.Thread(target=call, args=(4 + number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (wrong, f.stats().traces) == ([], 1)


def test_an_evicted_size_is_traced_again() -> None:
    f = symshape.compile(lambda x: x * 2, dynamic=False, options=Options(max_entries=1))
    for size in (1, 2, 1, 2, 2):
        assert torch.equal(f(torch.ones(size)), torch.full((size,), 2.0))
    assert f.stats().traces == 4
    assert len(f.entries) == 1


def test_the_memo_is_bounded() -> None:
    f = symshape.compile(lambda x: x * 2, dynamic=True, options=Options(memo_size=8))
    for size in range(100):
        f(torch.ones(size))
        assert len(f._cache.branches[0].memo) <= 8
    assert f.stats().traces == 1


def test_eviction_leaves_no_trace_of_an_entry() -> None:
    module = nn.Linear(2, 2)
    f = symshape.compile(lambda x, n: module(x) * n, dynamic=False, options=Options(max_entries=2))
    for n in range(6):
        f(torch.ones(1, 2), n)
        if n % 2:
            module.eval()
        else:
            module.train()
    alive = set(f.entries)
    for branch in f._cache.branches:
        assert branch.families
        assert set(branch.entries()) <= alive
        assert {entry for entry, _, _ in branch.memo.values()} <= alive
    assert sum(len(branch.entries()) for branch in f._cache.branches) == 2


def test_a_tree_of_many_entries_answers_what_each_entry_says() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = x.shape[0], y.shape[0]
        if a > b:
            x = x + 1
        if a % 3 == 0:
            x = x * 2
        if a + b > 12:
            x = x - 3
        return x.sum() + y.sum() * (5 if a == 2 * b else 7)

    f = symshape.compile(fn, dynamic=True)
    rng = random.Random(0)
    for _ in range(150):
        x, y = torch.randn(rng.randrange(12)), torch.randn(rng.randrange(12))
        torch.testing.assert_close(f(x, y), fn(x, y), rtol=0, atol=0)
    assert f.stats().traces == len(f.entries) <= 16
    for entry in f.entries:  # no two hold at once: the branches exclude each other
        for other in f.entries:
            assert entry is other or entry.guards.disjoint(other.guards)


def test_states_and_structures_in_turn_find_their_entries() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))
    f = symshape.compiled_of(symshape.compile(module))
    x, y = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.float32, requires_grad=True)
    for _ in range(3):
        for training in (True, False):
            module.train(training)
            f(x), f(y)
            with torch.no_grad():
                f(x)
    assert f.stats().traces == 6
    assert len(f._cache.branches) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [Options(), Options(max_entries=2, memo_size=2, free_traces=None)]
)
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_threads(options: Options, dynamic: bool | None) -> None:
    """Eight threads with sizes of their own and in common: right results, no exception, a cache in
    order.
    """
    weight = nn.Parameter(torch.randn(3))

    def fn(x: torch.Tensor, k: int, *, scale: float = 1.0) -> torch.Tensor:
        y = x * weight * scale + k
        return y.sum(0) if x.shape[0] > 4 else y

    f = symshape.compile(fn, dynamic=dynamic, options=options)
    problems: list[object] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        try:
            for _ in range(40):
                x = torch.full((rng.choice((1, 2, 3, 5, 8)), 3), float(seed))
                k, scale = rng.choice((1, 2)), rng.choice((0.5, 2.0))
                with torch.set_grad_enabled(rng.random() < 0.5):
                    now, then = f(x, k, scale=scale), fn(x, k, scale=scale)
                    if not torch.equal(now, then) or now.requires_grad != then.requires_grad:
                        problems.append((x.shape, k, scale))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not problems
    assert len(f.entries) <= options.max_entries
    stats = f.stats()
    assert stats.entries + stats.evictions == stats.traces == stats.misses
    assert len({entry.number for entry in f.entries}) == len(f.entries)


def test_threads_that_reset() -> None:
    f = symshape.compile(lambda x: x * 2)
    problems: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(60):
                x = torch.ones(rng.randrange(6))
                if not torch.equal(f(x), x * 2):
                    problems.append(x.shape)
                if seed == 0:
                    f.reset()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not problems


def test_example_tensors_are_not_kept() -> None:
    import gc
    import weakref

    f = symshape.compile(lambda x, extra: (x * 2, extra["y"] + 1))
    x, y = torch.ones(1000), torch.ones(1000)
    watch = weakref.ref(x), weakref.ref(y)
    f(x, {"y": y})
    f(x[1:], {"y": y[1:]})
    del x, y
    gc.collect()
    assert [each() for each in watch] == [None, None]


def test_a_once_hot_entry_does_not_outrank_newer_ones() -> None:
    f = symshape.compile(lambda x: x + 1, dynamic=False, options=Options(max_entries=3))
    for _ in range(500):
        f(torch.ones(1))  # hot, but long ago
    for size in (2, 3, 2, 3):
        f(torch.ones(size))
    f(torch.ones(4))
    assert numbers(f) == [1, 2, 3]


def test_an_entry_that_has_left_is_not_remembered() -> None:
    """A call that found its entry just before another thread's call evicted it."""
    f = symshape.compile(lambda x: x + 1, dynamic=False, options=Options(max_entries=1))
    x = torch.ones(3)
    f(x)
    (old,), (branch,) = f.entries, f._cache.branches
    f(torch.ones(4))
    assert old.gone
    key = f._cache.makers[1]((x,), {})
    f._cache.remember(branch, (x,), key, old, (3,))
    assert f._cache.find_exact(key) is None
    (new,) = f.entries
    assert not new.gone
    f.reset()
    assert new.gone


def test_complex_calls_are_not_remembered() -> None:
    f = symshape.compile(lambda z: z * 2)
    z = torch.ones(3, dtype=torch.complex64)
    for _ in range(3):
        f(z)
    assert f._cache.branches[0].memo == {}
    assert f.stats().traces == 1


def test_what_is_remembered_holds_for_its_state_alone() -> None:
    module = nn.Dropout(0.5)
    f = symshape.compiled_of(symshape.compile(module))
    x = torch.ones(3)
    module.eval()
    f(x)
    key = f._cache.makers[1]((x,), {})
    found = f._cache.find_exact(key)
    assert found is not None
    assert found[1] == (3,)
    module.train()
    assert f._cache.find_exact(key) is None
    module.eval()
    assert f._cache.find_exact(key) == found


def test_the_clock_counts_calls() -> None:
    f = symshape.compile(lambda x, n: x * n, dynamic=True)
    for n in range(5):
        f(torch.ones(3), n)
        f(torch.ones(3), [n][0])
        assert f._cache.clock == f.entries[0].last_used == f.stats().calls == 2 * n + 2
    f.reset()
    assert f._cache.clock == 0


def test_an_entry_that_reads_nothing_of_a_changing_state_stays() -> None:
    weight, flag = torch.ones(3), SimpleNamespace(n=0)

    def fn(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x * weight if y is None else x * weight * flag.n + y

    f, x, z = symshape.compile(fn), torch.ones(2, 3), torch.ones(2, 3)
    for n in (0, 1, 2, 0, 1, 2, 0):
        flag.n = n
        for args in ((x,), (x, z), (x,), (x, z)):
            assert torch.equal(f(*args), fn(*args))
    assert f.stats().traces == 4  # one without the flag, three with it
    assert sorted(len(branch.entries()) for branch in f._cache.branches) == [1, 1, 1, 1]
    hits = [f._cache.find_exact(f._cache.makers[len(args)](args, {})) for args in ((x,), (x, z))]
    assert None not in hits  # both by the memo, though they are of two states
    weight.requires_grad_()
    assert torch.equal(f(x), fn(x))
    assert f.stats().traces == 5


def test_an_entry_that_left_its_state_is_joined_by_those_alike() -> None:
    flag = SimpleNamespace(n=0)
    weight = torch.ones(3)

    def fn(x: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "flag":
            return x * flag.n
        return x * weight + len(kind)

    f, x = symshape.compile(fn), torch.ones(2, 3)
    for n in (0, 1, 2):
        flag.n = n
        for kind in ("flag", "a", "b", "ab", "flag"):
            assert torch.equal(f(x, kind), fn(x, kind))
    assert f.stats().traces == 6
    assert sorted(len(branch.entries()) for branch in f._cache.branches) == [1, 1, 1, 3]


def test_an_entry_alone_leaves_when_its_object_dies() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = object.__hash__

    flag = SimpleNamespace(n=0)

    def fn(x: torch.Tensor, scale: Scale | None = None) -> torch.Tensor:
        return x * flag.n if scale is None else x * scale.by

    f, x, scale = symshape.compile(fn), torch.ones(2), Scale(3.0)
    for n in (1, 2, 1):
        flag.n = n
        assert torch.equal(f(x), fn(x))
        assert torch.equal(f(x, scale), fn(x, scale))
    gone = weakref.ref(scale)
    del scale
    gc.collect()
    assert gone() is None
    assert len(f.entries) == 2
