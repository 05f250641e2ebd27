"""Calls like one that was served, with other sizes: the tree is asked at once, never where it takes
more to tell.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.calls import compiled as calls_compiled

pytestmark = pytest.mark.skipif(
    calls_compiled.READING is None, reason="the reader in C++ is not built"
)


def _slow_calls(compiled: Any) -> list[int]:
    slow: list[int] = []
    find = compiled._dispatcher.search
    compiled._dispatcher.search = lambda *args: slow.append(1) or find(*args)  # type: ignore[func-returns-value]
    return slow


def _tensor(n: int) -> torch.Tensor:
    return torch.arange(3.0 * n).reshape(n, 3)


def test_new_sizes_are_not_searched_for() -> None:
    compiled: Any = symshape.compile(lambda x: x * x.shape[0])
    for n in (2, 3, 4):
        compiled(_tensor(n))
    slow = _slow_calls(compiled)
    for n in (5, 6, 7, 5, 6):
        assert torch.equal(compiled(_tensor(n)), _tensor(n) * n)
    stats = compiled.stats()
    assert (slow, stats.calls, stats.traces, stats.hits) == ([], 8, 2, 6)
    (entry,) = (each for each in compiled.entries if each.seen.keys() >= {(5, 3)})
    assert {values[0]: seen.calls for values, seen in entry.seen.items()} == {
        3: 1,
        4: 1,
        5: 2,
        6: 2,
        7: 1,
    }


def test_other_sizes_of_other_entries() -> None:
    """The guards decide which entry it is, or that there is none."""
    compiled: Any = symshape.compile(lambda x: x * 2 if x.shape[0] > 5 else x - 1)
    for n in (2, 3, 4, 9, 10, 5, 11, 1, 0, 8, 12, 6):
        assert torch.equal(compiled(_tensor(n)), _tensor(n) * 2 if n > 5 else _tensor(n) - 1)
    slow = _slow_calls(compiled)
    for n in (13, 14, 20):
        assert torch.equal(compiled(_tensor(n)), _tensor(n) * 2)
    assert not slow


def test_another_state_is_seen() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    model = Scaled()
    compiled: Any = symshape.compile(model)
    for n in range(2, 12):
        if n in (6, 9):
            model.by = n
        assert torch.equal(compiled(_tensor(n)), _tensor(n) * model.by)


def test_questions_are_asked() -> None:
    """A program that branches on a float argument asks each call for it."""
    compiled: Any = symshape.compile(lambda x, rate: x * 2 if rate > 0.5 else x - rate)
    for n, rate in (
        (2, 0.25),
        (3, 0.125),
        (4, 0.75),
        (5, 0.3),
        (6, 0.9),
        (7, 0.1),
        (8, 0.8),
        (9, 0.5),
    ):
        expected = _tensor(n) * 2 if rate > 0.5 else _tensor(n) - rate
        assert torch.equal(compiled(_tensor(n), rate), expected)


def test_lists_that_are_written_to() -> None:
    def append(x: torch.Tensor, found: list[Any]) -> torch.Tensor:
        found.append(x * 2)
        return x + 1

    compiled: Any = symshape.compile(append)
    for n in range(2, 9):
        found: list[Any] = []
        assert torch.equal(compiled(_tensor(n), found), _tensor(n) + 1)
        assert torch.equal(found[0], _tensor(n) * 2)


def test_what_fails_is_not_remembered() -> None:
    compiled: Any = symshape.compile(lambda x, at: x[at], dynamic=True)
    at = torch.tensor([1])
    for n in (3, 4, 5):
        compiled(_tensor(n), at)
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(_tensor(6), torch.tensor([7]))
        assert torch.equal(compiled(_tensor(7), at), _tensor(7)[at])


def test_after_a_reset_all_is_new() -> None:
    compiled: Any = symshape.compile(lambda x: x * 2)
    for n in (2, 3, 4, 5):
        compiled(_tensor(n))
    compiled.reset()
    assert torch.equal(compiled(_tensor(6)), _tensor(6) * 2)
    assert compiled.stats().traces == 1


def test_gradients_and_other_kinds_are_other_calls() -> None:
    compiled: Any = symshape.compile(
        lambda x: x * 2 if x.dtype is torch.float32 and not x.requires_grad else x * 3
    )
    for n in (2, 3, 4, 5):
        compiled(_tensor(n))
    for n in (6, 7, 8):
        assert torch.equal(compiled(_tensor(n)), _tensor(n) * 2)
        assert torch.equal(compiled(_tensor(n).double()), _tensor(n).double() * 3)
        assert torch.equal(compiled(_tensor(n).requires_grad_()), _tensor(n) * 3)
        with torch.no_grad():
            assert torch.equal(compiled(_tensor(n).t()), _tensor(n).t() * 2)
