"""Whole programs of every day: right at six shapes, with gradients and effects, in as few programs
as they need.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import symshape
from symshape.runtime import eager_or_program, trials
from tests.sampling import sampled
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


@pytest.mark.parametrize(("name", "first"), sampled(PROGRAMS, ["programs", "itself"], every=3))
def test_where_the_function_itself_takes_turns(
    name: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a call leaves behind, the next one goes on from there, whoever serves it: all calls
    are of a trial.
    """
    monkeypatch.setattr(trials, "PAIRS", 4)  # the order changes in between

    def tried(fn: Any) -> Any:
        compiled = symshape.compile(fn)
        inside = symshape.compiled_of(compiled)
        trial = eager_or_program._Trial(inside._plain, inside.fn, inside, inside._cache)
        trial._times.plain.extend([(0, 0.0)] * (first == "itself"))
        inside._cache.plain, inside._cache.plain_until = trial, 1000
        return compiled

    found = run(name, tried)
    assert not difference(found, run(name, lambda fn: fn))
    assert symshape.compiled_of(found.compiled).stats().plain == 3 + (first == "itself")


def test_known_ones_are_programs() -> None:
    assert PROGRAMS.keys() >= KNOWN.keys() | TRACES.keys()


def test_there_are_many() -> None:
    assert len(PROGRAMS) >= 100
