"""Arguments that are written in parts: the same op writes them again, with eager's rows and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import symshape
from tests.symshape.runtime.runners.test_padded_writes import Decode, _check, _decoding

Calls = Sequence[tuple[torch.Tensor, ...]]


def _rows(count: int, *sizes: int) -> torch.Tensor:
    return torch.randn(count, *sizes)


def in_order(x: torch.Tensor, cache: torch.Tensor, index: torch.Tensor) -> Any:
    """Rows are written, read, and written again from what was read."""
    cache.index_copy_(0, index, x)
    total = cache.sum(0)
    cache.index_copy_(0, index[:1], (total * 0.5)[None])
    cache.index_fill_(0, index[-1:], 3.0)
    return cache.sum(0), total


def across(x: torch.Tensor, cache: torch.Tensor, other: torch.Tensor, index: torch.Tensor) -> Any:
    """Each of two arguments gets what the other one held, or holds by then."""
    kept = other[index]
    other[index] = cache[index] + x
    cache[index] = kept
    other[index[:1]] = cache[index[:1]]
    return other.sum() + cache.sum()


def ranges(x: torch.Tensor, cache: torch.Tensor) -> Any:
    """Ranges that depend on the sizes, in a view that is turned, and one element."""
    n = x.shape[0]
    cache[1 : 1 + n] = x
    cache.t()[2, n : 2 * n] = x[:, 0]
    cache[-1, -1] = 7.0
    cache[n].zero_()
    return cache.mean(0)


def grown(x: torch.Tensor, cache: torch.Tensor, index: torch.Tensor) -> Any:
    """The argument itself is padded: rows for each of a varying batch."""
    cache[:, index] = x
    return cache.cumsum(1)[:, -1], x * 2


def with_more(x: torch.Tensor, cache: torch.Tensor, index: torch.Tensor) -> Any:
    """All of it is written too: the whole is what goes back."""
    cache.index_copy_(0, index, x)
    cache.mul_(2)
    return cache[0]


def repeated(x: torch.Tensor, cache: torch.Tensor, index: torch.Tensor) -> Any:
    """Indices that are added at, some twice."""
    cache.index_put_(
        (torch.cat([index, index]) % 3 + 2,), torch.cat([x, x * 0 + 1]), accumulate=True
    )
    return cache + 0


def _by_index(batch: int = 0) -> Calls:
    return [(_rows(n, 4), _rows(16, 4), torch.randperm(16)[:n]) for n in (5, 7, 3, 9, 2)]


CASES: dict[str, tuple[Callable[..., Any], Callable[[], Calls], int]] = {
    "in order": (in_order, _by_index, 3),
    "across": (
        across,
        lambda: [
            (_rows(n, 4), _rows(16, 4), _rows(16, 4), torch.randperm(16)[:n]) for n in (5, 7, 3, 9)
        ],
        3,
    ),
    "ranges": (ranges, lambda: [(_rows(n, 4), _rows(24, 4)) for n in (5, 7, 3, 9)], 4),
    "with more": (with_more, _by_index, 0),
    "repeated": (repeated, _by_index, 1),
    "grown": (
        grown,
        lambda: [
            (_rows(b, n, 4), _rows(b, 16, 4), torch.randperm(16)[:n])
            for b, n in ((2, 3), (4, 5), (3, 2), (5, 7))
        ],
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_arguments_are_eager_s_afterwards(case: str) -> None:
    torch.manual_seed(0)
    fn, calls, writes = CASES[case]
    runner = _check(fn, calls())
    assert {len(bucket.made.padded.rewrites) for bucket in runner.buckets} == {writes}, (
        runner.padding()
    )
    whole = {len(bucket.made.padded.written) for bucket in runner.buckets}
    assert whole == ({1} if case == "with more" else {0})


class Written(TorchDispatchMode):
    """Elements that ops write to some tensors, by op."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self.storages = {each.untyped_storage()._cdata for each in tensors}
        self.ops: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            targets = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
            if any(each.untyped_storage()._cdata in self.storages for each in targets):
                self.ops.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("how", ["index_copy", "index_put"])
def test_a_decode_step_writes_back_its_rows_alone(how: str) -> None:
    torch.manual_seed(0)
    step = Decode(how).eval()
    compiled = symshape.compile(
        lambda *given: step(*given), dynamic=True, runner="padded", fullgraph=True
    )
    with torch.no_grad():
        for batch, first, new in ((3, 0, 6), (3, 6, 5), (2, 4, 7)):
            x, keys, values, place = _decoding(batch, first, new)
            theirs = [each.clone() for each in (x, keys, values, place)]
            if not compiled.entries:
                compiled(x.clone(), keys.clone(), values.clone(), place.clone())
            with Written(keys, values) as written:
                result = compiled(x, keys, values, place)
            assert written.ops == [f"aten::{how}_"] * 2
            expected = step(*theirs)
            assert torch.allclose(result[0], expected[0], atol=1e-5)
            rows = torch.zeros(keys.shape[2], dtype=torch.bool).index_fill_(0, place, True)
            for mine, other in ((keys, theirs[1]), (values, theirs[2])):
                assert torch.equal(mine[:, :, ~rows], other[:, :, ~rows])
                assert torch.allclose(mine, other, atol=1e-5)


def test_indices_out_of_range_are_eager_s_error() -> None:
    step = symshape.compile(in_order, dynamic=True, runner="padded", fullgraph=True)
    with torch.no_grad():
        for n in (5, 4):
            step(_rows(n, 4), _rows(16, 4), torch.arange(n))
        cache = _rows(16, 4)
        before = cache.clone()
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            step(_rows(5, 4), cache, torch.tensor([0, 1, 2, 3, 16]))
        assert torch.equal(cache[5:], before[5:])


class Counting(nn.Module):
    """A step that writes into a row what a buffer holds, and changes the buffer afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place", torch.arange(4.0))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache[0] = self.place
        self.place.add_(1)
        return x * 2


def test_a_row_from_a_buffer_that_is_written_afterwards_is_what_it_held() -> None:
    runner = _check(Counting(), [(_rows(n, 4), _rows(16, 4)) for n in (5, 7, 3)], Counting())
    assert {len(bucket.made.padded.rewrites) for bucket in runner.buckets} == {1}
