"""Sizes that were never seen find the bucket of their steps at once, and it is the one that the
guards would choose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.runtime.padding.planning import choose
from symshape.runtime.runners.padded.bucket_finder import BucketFinder
from symshape.runtime.runners.padded.runner import PaddedRunner


def _even(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0) * (2 if x.size(0) % 2 == 0 else 3)


def _few(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(1) * (2 if x.size(0) <= 13 else 3)


def _half(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(1) * (2 if x.size(0) > 2 * x.size(1) else 3)


def _finder(entry: Any) -> Any:
    assert isinstance(entry.runner, PaddedRunner)
    return entry.runner._finder


@pytest.mark.parametrize("fn", [_even, _few, _half])
def test_what_is_found_at_once_is_what_would_be_chosen(
    fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly: list[Any] = []
    find: Any = BucketFinder._find

    def noted(self: BucketFinder, key: Any) -> Any:
        slowly.append(key)
        return find(self, key)

    monkeypatch.setattr(BucketFinder, "_find", noted)
    compiled, rng, at_once = (
        symshape.compile(fn, dynamic=True, runner="padded"),
        random.Random(0),
        0,
    )
    for _ in range(150):
        rows, columns = rng.randint(2, 40), rng.randint(2, 40)
        slowly.clear()
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), fn(x))
        (served,) = (
            (_finder(entry), values)
            for entry in compiled.entries
            if (values := (rows, columns)) in entry.seen
        )
        finder, values = served
        bucket = finder.served().get(values)
        if bucket is None or slowly:
            continue
        sizes = {name: values[place] for name, place in finder._symbols}
        assert bucket.made.caps == choose(finder._program, sizes, finder.refusals).caps
        at_once += 1
    assert at_once > 10


def test_a_bucket_that_left_is_not_found() -> None:
    compiled = symshape.compile(lambda x: x.softmax(0), dynamic=True, runner="padded")
    for rows in (5, 6, 5):
        compiled(torch.randn(rows))
    finder = _finder(compiled.entries[0])
    assert finder._by_steps
    (bucket,) = finder.buckets()
    finder.give_up(bucket, "no memory")
    assert not finder._by_steps
    finder.prefer([{name: 7 for name, _ in finder._symbols}])
    x = torch.randn(6)
    torch.testing.assert_close(compiled(x), x.softmax(0))
    assert not finder._by_steps
