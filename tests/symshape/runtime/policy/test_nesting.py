"""Ways to round sizes up are nested: what the finest rounds alike, all round alike."""

from __future__ import annotations

import pytest

from symshape.runtime.policy.nesting import LEVELS, fine_step_up, octave_up, step_up


@pytest.mark.parametrize("level", LEVELS)
def test_a_capacity_holds_its_size_and_is_its_own(level: object) -> None:
    assert callable(level)
    for value in range(5000):
        cap = level(value)
        assert value <= cap <= max(2, 2 * value)
        assert level(cap) == cap


def test_levels_are_nested() -> None:
    coarse: dict[int, set[int]] = {}
    for value in range(1, 5000):
        coarse.setdefault(fine_step_up(value), set()).add(step_up(value))
        assert value <= fine_step_up(value) <= step_up(value) <= octave_up(value)
    assert all(len(each) == 1 for each in coarse.values())
