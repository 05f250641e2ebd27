"""Functions with a memo keep what they made first, whoever asked first: real tensors, of the world
as it was then.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import symshape

Fn = Callable[[torch.Tensor], torch.Tensor]
Made = tuple[Fn, Callable[[int], Any], Any]
"""A function, the one with the memo that it calls, and what stands outside."""


def _mask(memo: Any) -> Made:
    made = memo(lambda n: torch.arange(n) * 2.0)
    return lambda x: x + made(x.shape[0]), made, None


def _of_state(memo: Any) -> Made:
    world = SimpleNamespace(w=torch.nn.Parameter(torch.tensor(2.0)), k=3)
    made = memo(lambda n: world.w.detach() * n * world.k)
    return lambda x: x * made(x.shape[0]), made, world


def _plain(memo: Any) -> Made:
    world = SimpleNamespace(w=torch.tensor(1.0), k=3)
    made = memo(lambda n: n * world.k)
    return lambda x: x * made(x.shape[0]), made, world


def _written(memo: Any) -> Made:
    made = memo(lambda n: torch.zeros(n))
    return lambda x: made(x.shape[0]).add_(x) * 2, made, None


def _returned(memo: Any) -> Made:
    made = memo(lambda n: torch.zeros(n))
    return lambda x: made(x.shape[0]), made, None


def _one_in_another(memo: Any) -> Made:
    inner = memo(lambda n: torch.ones(n))
    made = memo(lambda n: inner(n + 1)[:n] + n)
    return lambda x: x * made(x.shape[0]), made, None


def _one_decides_of_another(memo: Any) -> Made:
    first = memo(lambda n: n % 2)
    made = memo(lambda n: torch.full((n,), 3.0))
    return lambda x: x * made(x.shape[0]) if first(x.shape[0]) else x, made, None


def _under_no_grad(memo: Any) -> Made:
    world = SimpleNamespace(w=torch.nn.Parameter(torch.tensor(2.0)), k=3)
    made = memo(lambda n: world.w * n)

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = made(x.shape[0])
        return x * scale

    return fn, made, world


def _random(memo: Any) -> Made:
    made = memo(lambda n: torch.rand(n))
    return lambda x: torch.rand(1) + made(x.shape[0]), made, None


def _beside_a_draw(memo: Any) -> Made:
    made = memo(lambda n: torch.ones(n))
    return lambda x: torch.nn.functional.dropout(x, 0.5) * made(x.shape[0]), made, None


def _counting(memo: Any) -> Made:
    world = SimpleNamespace(w=torch.tensor(1.0), k=0, calls=[])

    def make(n: int) -> torch.Tensor:
        world.calls.append(n)
        return torch.ones(n)

    made = memo(make)
    return lambda x: x * made(x.shape[0]), made, world


def _after_a_write(memo: Any) -> Made:
    world = SimpleNamespace(w=torch.tensor(1.0), k=0)
    made = memo(lambda n: torch.ones(n) * world.k)

    def fn(x: torch.Tensor) -> torch.Tensor:
        world.k += 1
        return x * made(x.shape[0])

    return fn, made, world


def _raising(memo: Any) -> Made:
    def make(n: int) -> torch.Tensor:
        if n > 4:
            raise ValueError(n)
        return torch.ones(n)

    made = memo(make)

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * made(x.shape[0])
        except ValueError:
            return x * 7

    return fn, lambda n: made(min(n, 4)), None


WORLDS = [
    *(
        _mask,
        _of_state,
        _plain,
        _written,
        _returned,
        _one_in_another,
        _one_decides_of_another,
        _under_no_grad,
    ),
    *(_random, _beside_a_draw, _counting, _after_a_write, _raising),
]
REFUSED = {_random, _counting, _after_a_write, _under_no_grad}


def _lived(
    world: Callable[[Any], Made], size: int | None, calls: Any, *, compiled: bool
) -> list[Any]:
    fn, made, outside = world(functools.lru_cache(size))
    run = symshape.compile(fn) if compiled else fn
    torch.manual_seed(3)
    found = []
    for number, n in enumerate(calls):
        x = torch.arange(1.0, n + 1, requires_grad=number % 3 == 0)
        result = run(x)
        found.append(
            (result.tolist(), result.requires_grad, result is made(n), repr(made(n)), repr(outside))
        )
        if outside is not None and number % 2:
            outside.w.data.mul_(2)
            outside.k += 1
    return found


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("size", [None, 128])
@pytest.mark.parametrize("world", WORLDS)
def test_what_a_memo_keeps(world: Callable[[Any], Made], size: int | None) -> None:
    rng = random.Random(0)
    for calls in ((3, 3, 4, 5, 3, 4, 6, 3), [rng.randrange(2, 6) for _ in range(8)]):
        assert _lived(world, size, calls, compiled=True) == _lived(
            world, size, calls, compiled=False
        )


@pytest.mark.parametrize("world", WORLDS)
def test_most_are_traced(world: Callable[[Any], Made]) -> None:
    fn, made, _ = world(functools.lru_cache)
    compiled = symshape.compile(fn, fullgraph=True)
    for number, n in enumerate((3, 4, 3, 4)):
        if world in REFUSED and number < 2:
            with pytest.raises(
                symshape.UnsupportedError, match=r"memo of .* keeps; call .* once before"
            ):
                compiled(torch.ones(n))
            made(n)
        assert compiled(torch.ones(n)).shape == (n,)
    assert compiled.stats().traces <= 4


def test_a_memo_that_grows_misses_nothing() -> None:
    made = functools.cache(lambda n: torch.ones(n))
    compiled = symshape.compile(lambda x: x * made(3).sum(), fullgraph=True)
    for n in range(4, 10):
        compiled(torch.ones(2))
        made(n)
    assert compiled.stats().traces == 1
    made.cache_clear()
    compiled(torch.ones(2))
    assert compiled.stats().traces == 2


@functools.lru_cache
def _table(n: int) -> torch.Tensor:
    return torch.arange(n) * 2.0


def test_what_is_kept_between_processes_makes_it_again(tmp_path: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + _table(x.shape[0])

    for _ in range(2):
        _table.cache_clear()
        compiled = symshape.compile(fn, store=str(tmp_path), fullgraph=True)
        assert compiled(torch.ones(3)).tolist() == [1.0, 3.0, 5.0]
    assert compiled.stats().loaded == 1
    _table.cache_clear()
