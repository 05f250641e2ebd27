"""What a trace presumes of data, and that eager runs where it does not hold; nothing is presumed
where it could not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape import DataDependentError
from tests.symshape.eager import call_seen

R = torch.randn


def _mask(n: int, k: int) -> torch.Tensor:
    return torch.arange(n) < k


def _into_a_buffer(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(20, 3)
    found = x[m]
    out[: found.shape[0]] = found
    return out


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m: x[m] * x[:2],
        lambda x, m: x[:2] - x[m],
        lambda x, m: torch.where(x[m] > 0, x[m].exp(), x[:2]),
        lambda x, m: x[m].expand(2, 3) + 1,
        lambda x, m: x[m] + x.flip(0)[m.flip(0)] * torch.rand(2, 3),
        lambda x, m: torch.randperm(4)[:2, None] + x[m],
    ],
)
def test_sizes_are_equal_or_eager_runs(fn: Callable[..., Any]) -> None:
    compiled = symshape.compile(fn, fullgraph=True)
    for n, k in ((4, 2), (5, 2), (6, 2), (6, 1), (7, 2), (9, 1)):
        args = R(n, 3), _mask(n, k)
        assert call_seen(compiled, args, {}) == call_seen(fn, args, {})
    with pytest.raises(RuntimeError):
        compiled(R(6, 3), _mask(6, 3))
    assert compiled.stats().traces == 2


def test_what_fits_into_a_buffer() -> None:
    compiled = symshape.compile(_into_a_buffer, fullgraph=True)
    for n, k in ((4, 2), (5, 5), (6, 0), (7, 1), (30, 20), (1, 0), (1, 1)):
        args = R(n, 3), _mask(n, k)
        assert call_seen(compiled, args, {}) == call_seen(_into_a_buffer, args, {})
    with pytest.raises(RuntimeError):
        compiled(R(30, 3), _mask(30, 21))


def test_what_is_presumed_is_known_from_there_on() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        found = x[m] + x
        return found * 2 if found.shape[0] > 3 else found.view(x.shape)

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (5, 6, 2, 3, 9):
        args = R(n, 3), _mask(n, n)
        assert call_seen(compiled, args, {}) == call_seen(fn, args, {})
    assert compiled.stats().traces == 3


def _after_a_write(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x[m] * x[:2]


def _a_view_written(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    x[0].zero_()
    return x[m] * x[:2]


@pytest.mark.parametrize("fn", [_after_a_write, _a_view_written])
def test_nothing_is_presumed_where_eager_could_not_begin_anew(fn: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError):
        symshape.trace(fn, R(4, 3), _mask(4, 2))
    compiled = symshape.compile(fn)
    with pytest.warns(symshape.FallbackWarning):
        compiled(R(4, 3), _mask(4, 2))
    for k in (1, 2):
        x = R(400_000, 3)
        assert call_seen(compiled, (x.clone(), _mask(400_000, k)), {}) == call_seen(
            fn, (x.clone(), _mask(400_000, k)), {}
        )


def test_what_is_asserted_before_a_write() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        x[:2] = (x * 2)[m]
        return x

    compiled = symshape.compile(fn, fullgraph=True)
    for n, k in ((4, 2), (500_000, 2), (500_000, 1)):
        x, m = R(n, 3), _mask(n, k)
        assert call_seen(compiled, (x.clone(), m), {}) == call_seen(fn, (x.clone(), m), {})


def test_what_was_written_is_left_alone_by_what_needs_no_presumption() -> None:
    def queue(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        at = at.item()
        x[at : at + new.shape[0]] = new  # of two rows or more: only as many fit
        return x.sum()

    compiled = symshape.compile(queue)
    for at, n in ((0, 2), (2, 2), (1, 3), (4, 4)):
        args = R(8, 3), torch.tensor(at), R(n, 3)
        assert call_seen(compiled, args, {}) == call_seen(queue, args, {})


def test_what_is_required_is_asserted_beside_a_write() -> None:
    counts = torch.zeros(5, dtype=torch.long)

    def fn(x: torch.Tensor) -> torch.Tensor:
        counts.add_(torch.bincount(x, minlength=5))  # of five or more
        return x * 2

    compiled = symshape.compile(fn, fullgraph=True)
    for n in (3, 5, 0):
        compiled(torch.arange(n))
    assert counts.tolist() == [2, 2, 2, 1, 1]
    with pytest.raises(RuntimeError):
        compiled(torch.arange(7))
    assert counts.tolist() == [2, 2, 2, 1, 1]


def _of_the_largest(x: torch.Tensor) -> torch.Tensor:
    at = (x == x.max()).nonzero().squeeze()
    return x[at] * 2


def test_what_often_does_not_hold_is_not_presumed_any_longer(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Else each call would run twice: the graph, and then the function."""
    compiled = symshape.compile(_of_the_largest, dynamic=True)
    for n in range(5, 15):
        x = torch.arange(float(n))
        assert torch.equal(compiled(x), _of_the_largest(x))
    stats = compiled.stats()
    assert (stats.traces, stats.entries, stats.fallbacks) == (1, 0, 6)
    (told,) = (each for each in recwarn if each.category is symshape.FallbackWarning)
    assert "squeeze" in str(told.message)
    compiled.reset()
    for n in range(5, 25):
        # now and then only one
        x = torch.cat([torch.arange(float(n)), torch.full((n % 7 and 2,), n - 1.0)])
        assert torch.equal(compiled(x), _of_the_largest(x))
    stats = compiled.stats()
    assert (stats.traces, stats.fallbacks) == (1, 0)


def test_with_fullgraph_it_is_presumed_in_any_case() -> None:
    compiled = symshape.compile(_of_the_largest, dynamic=True, fullgraph=True)
    for n in range(5, 15):
        x = torch.arange(float(n))
        assert torch.equal(compiled(x), _of_the_largest(x))
    assert compiled.stats().traces == 1


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
def test_each_program_that_runs_in_vain_leaves() -> None:
    compiled = symshape.compile(_of_the_largest)
    for n in (5, 6, 7, 8, 9, 5, 5, 5, 5, 10):  # the first is for its own size
        x = torch.arange(float(n))
        assert torch.equal(compiled(x), _of_the_largest(x))
    assert (compiled.stats().traces, compiled.stats().entries) == (2, 0)
