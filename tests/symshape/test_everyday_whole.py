"""Whole programs of every day: right at six shapes, with gradients and effects, in as few programs as they need."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from tests.symshape.everyday.whole.known import KNOWN, TRACES
from tests.symshape.everyday.whole.loaded import PROGRAMS
from tests.symshape.everyday.whole.program import difference, run


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str) -> None:
    found = run(name, symshape.compile)
    assert not difference(found, run(name, lambda fn: fn))
    compiled: Any = found.compiled
    compiled = symshape.compiled_of(compiled) if isinstance(compiled, torch.nn.Module) else compiled
    stats = compiled.stats()
    assert bool(stats.fallbacks) is (name in KNOWN), f"see known.py: {compiled.explain_fallback()}"
    assert stats.traces <= TRACES.get(name, 2), compiled.explain_miss()


def test_known_ones_are_programs() -> None:
    assert PROGRAMS.keys() >= KNOWN.keys() | TRACES.keys()


def test_there_are_many() -> None:
    assert len(PROGRAMS) >= 100
