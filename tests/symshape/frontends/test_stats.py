"""The counters of a compiled function add up."""

from __future__ import annotations

import attrs
import pytest
import torch

import symshape
from symshape import Options, Stats


def test_calls_are_hits_or_misses_and_traces_are_entries_or_evictions() -> None:
    f = symshape.compile(lambda x: x * 2, dynamic=False, options=Options(max_entries=2))
    for size in (1, 2, 1, 3, 3, 1, 1):
        f(torch.ones(size))
    stats = f.stats()
    assert stats.calls == stats.hits + stats.misses == 7
    assert stats.traces == stats.misses == stats.entries + stats.evictions == 3
    assert stats.entries == len(f.entries) == 2


def test_they_are_frozen_and_start_at_nothing() -> None:
    stats = symshape.compile(lambda x: x).stats()
    assert stats == Stats(0, 0, 0, 0, 0, 0, 0, None, 0.0)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        stats.calls = 1  # type: ignore[misc]
