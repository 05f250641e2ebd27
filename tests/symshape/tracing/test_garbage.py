"""The collector waits while a function is traced, and afterwards does what it did before."""

from __future__ import annotations

import gc
import os
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import symshape
from symshape.tracing import garbage, run
from symshape.tracing.garbage import RARELY, as_before, seldom_collected

X = torch.zeros(3)


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    frozen = gc.get_freeze_count()  # by conftest.py: nothing becomes old then
    gc.unfreeze()
    gc.set_threshold(701, 11, 12)
    yield
    gc.set_threshold(*before)
    if frozen:
        gc.freeze()


def _traced(monkeypatch: pytest.MonkeyPatch, during: Any) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    plain = run.LateRun

    def looking(*args: Any, **kwargs: Any) -> Any:
        found.append(gc.get_threshold())
        during()
        return plain(*args, **kwargs)

    monkeypatch.setattr(run, "LateRun", looking)
    symshape.trace(lambda x: x + 1, X)
    return found


def test_it_waits_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _traced(monkeypatch, lambda: None) == [(RARELY, 11, 12)]
    assert gc.get_threshold() == (701, 11, 12)


def test_what_somebody_sets_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    _traced(monkeypatch, lambda: gc.set_threshold(5, 6, 7))
    assert gc.get_threshold() == (5, 6, 7)


@pytest.mark.parametrize("threshold", [0, RARELY + 1])
def test_one_that_is_off_or_waits_longer_stays_so(
    monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    gc.set_threshold(threshold, 3, 4)
    assert _traced(monkeypatch, lambda: None) == [(threshold, 3, 4)]
    assert gc.get_threshold() == (threshold, 3, 4)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_after_an_error_too(monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    with pytest.raises(kind):
        _traced(monkeypatch, fail)
    assert gc.get_threshold() == (701, 11, 12)


def test_a_trace_inside_another_changes_nothing() -> None:
    with seldom_collected():
        symshape.trace(lambda x: x + 1, X)
        assert gc.get_threshold() == (RARELY, 11, 12)
    assert gc.get_threshold() == (701, 11, 12)
    as_before((701, 11, 12))
    assert gc.get_threshold() == (701, 11, 12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_child_that_is_forked_meanwhile_collects_as_before() -> None:
    """Another thread may be in a trace whose lock was made while the fork took all locks."""
    with seldom_collected(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
        child = os.fork()
        if not child:
            os._exit(0 if gc.get_threshold() == (701, 11, 12) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert gc.get_threshold() == (RARELY, 11, 12)
    assert gc.get_threshold() == (701, 11, 12)


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_a_program_does_not_have_the_collector_look_at_everything() -> None:
    gc.set_threshold(700, 10, 10)
    before = _full_collections()
    for _ in range(3):
        symshape.trace(lambda x: sum(x * n for n in range(200)), X)
    assert _full_collections() == before


@pytest.mark.slow
def test_only_so_many_become_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is dropped is found again by the collector's own rule."""
    frozen: list[int] = []
    monkeypatch.setattr(garbage, "MOST_AGED", 50_000)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    kept: list[list[list[int]]] = []

    def trace(count: int) -> int:
        before = len(frozen)
        gc.collect(0)
        with seldom_collected():
            kept.append([[n] for n in range(count)])
        return len(frozen) - before

    gc.collect()
    assert [trace(20_000) for _ in range(4)] == [1, 1, 0, 0]
    assert trace(100) == 0
    gc.collect()
    assert trace(20_000) == 1


def test_what_is_frozen_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        symshape.trace(lambda x: x + 1, X)
        assert gc.get_freeze_count() >= frozen - 1000  # but for what went by itself
    finally:
        gc.unfreeze()


def test_garbage_of_the_trace_goes() -> None:
    class Node:
        pass

    with seldom_collected():
        kept = [[n] for n in range(2 * garbage.MANY)]
        node = Node()
        node.me = node  # type: ignore[attr-defined]
        gone = weakref.ref(node)
        del node
    assert gone() is None
    assert kept


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """A process in which the next collection of young objects is a full one, and a list for
    objects that stay.
    """
    gc.freeze()  # few others are left, so that these are more than a quarter of all
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    gc.collect()
    kept = [[n] for n in range(100_000)]
    gc.collect(1)
    gc.set_threshold(700, 10, 0)
    yield kept
    gc.unfreeze()


def test_after_a_small_trace_the_next_allocation_collects_nothing(due: list[list[int]]) -> None:
    """A full collection took 240 ms after the second call of a model of transformers."""
    before = _full_collections()
    with seldom_collected():
        due += [[n] for n in range(5000)]
    due += [[n] for n in range(300)]
    assert _full_collections() == before
    due += [[n] for n in range(1000)]
    assert _full_collections() == before + 1, "that was the program's own doing"


def test_a_call_that_is_traced_begins_no_full_collection(due: list[list[int]]) -> None:
    before = _full_collections()
    double: Any = symshape.compile(lambda x: x * 2)
    for size in (3, 4, 5):
        double(torch.zeros(size))
    assert double.stats().traces == 2
    assert _full_collections() == before


def test_the_middle_generation_goes_by_its_own_threshold() -> None:
    gc.collect()
    gc.set_threshold(700, 10, 10)
    kept: list[list[int]] = []
    for _ in range(12):
        with seldom_collected():
            kept += [[n] for n in range(5000)]
    assert gc.get_count()[1] == 0
    assert gc.get_count()[2] == 1


def test_full_collections_are_not_put_off_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "MOST_FULL", 2)
    gc.collect()
    gc.set_threshold(700, 10, 10)
    for _ in range(3):
        gc.collect(1)
    asked: list[int] = []
    monkeypatch.setattr(gc, "collect", asked.append)
    kept: list[list[int]] = []
    with seldom_collected():
        kept += [[n] for n in range(5000)]
    assert asked == [], "the collector does it by itself"
