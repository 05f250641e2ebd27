"""Errors of the data that a program meets half way, and functions with a memo: what is left when a
call has ended.
"""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace
from typing import Any

import torch

from tests.worlds.world import Call, World, on, values, world

LEFT = "14 failures and memos"
_BAD = (False, False, True, False, True, False)


def _calls(size: int = 3) -> list[Call]:
    return [
        Call(lambda bad=bad, n=n: (values(n), torch.tensor([n + 5 if bad else 0])))
        for bad in _BAD
        for n in (size,)
    ]


@world(LEFT)
def error_that_is_caught() -> World:
    s = SimpleNamespace(told=[])

    def fn(x: Any, index: Any) -> Any:
        try:
            s.told.append("asks")
            return x[index]
        except IndexError as error:
            s.told.append(str(error))
            return x * 3
        finally:
            s.told.append("ends")

    return World(fn, _calls(), lambda: s.told)


@world(LEFT)
def error_that_is_suppressed() -> World:
    def fn(x: Any, index: Any) -> Any:
        y = x * 2
        with contextlib.suppress(IndexError):
            y = x[index]
        return y + 1

    return World(fn, _calls())


@world(LEFT)
def error_after_a_write_in_place() -> World:
    s = SimpleNamespace(n=0)

    def fn(x: Any, index: Any) -> Any:
        s.n += 1
        x.add_(1)
        s.n += 10
        return x[index]

    return World(fn, _calls(), lambda: s.n)


@world(LEFT)
def error_after_a_large_write_in_place() -> World:
    s = SimpleNamespace(n=0)

    def fn(x: Any, index: Any) -> Any:
        s.n += 1
        x.add_(1)
        return x[index]

    return World(fn, _calls(1 << 19), lambda: s.n, view=lambda results: results[-1].shape)


@world(LEFT)
def memo_that_is_written() -> World:
    made = functools.cache(torch.zeros)
    return World(
        lambda x: made(x.shape[0]).add_(x) * 1,
        [on(3), on(3), on(4), on(3), on(4)],
        lambda: [made(3), made(4)],
    )


@world(LEFT)
def memo_of_what_has_changed() -> World:
    s = SimpleNamespace(k=2)
    made = functools.cache(lambda n: torch.ones(n) * s.k)

    def change() -> None:
        s.k = 5

    return World(
        lambda x: x * made(x.shape[0]), [on(3), on(4), change, on(3), on(5), on(4)], lambda: made(4)
    )


@world(LEFT)
def memo_that_draws() -> World:
    made = functools.cache(torch.rand)
    return World(
        lambda x: x + torch.rand(1) + made(x.shape[0]),
        [on(3), on(4), on(3), on(4)],
        lambda: made(3),
    )


@world(LEFT)
def memo_that_counts_its_answers() -> World:
    made = functools.cache(torch.ones)
    return World(lambda x: x * made(x.shape[0]), [on(3), on(3), on(4)], lambda: made.cache_info())


@world(LEFT)
def memo_that_forgets_the_oldest() -> World:
    s = SimpleNamespace(k=2)
    made = functools.lru_cache(2)(lambda n: torch.ones(n) * s.k)

    def change() -> None:
        s.k += 1

    steps: list[Any] = [on(3), on(4), change, on(3), on(5), change, on(3), on(4)]
    return World(lambda x: x * made(x.shape[0]), steps)
