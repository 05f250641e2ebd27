"""Intervals as people see them: members, emptiness and text agree."""

from __future__ import annotations

import pytest

from guards.domains.interval import Interval


def test_an_interval_is_a_value() -> None:
    assert Interval(0, 3) == Interval(0, 3)
    assert len({Interval(0, 3), Interval(0, 3)}) == 1
    assert 3 in Interval(0, 3)
    assert 4 not in Interval(0, 3)
    assert Interval(2, 2).single == 2
    assert Interval(2, 3).single is None
    assert Interval(3, 2).empty
    assert str(Interval(2)) == "[2, inf)"
    assert str(Interval(None, 2)) == "(-inf, 2]"
    with pytest.raises(TypeError, match="integer or None"):
        Interval(1.5, 2)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        Interval(1, 2).lo = 3  # type: ignore[misc]


@pytest.mark.parametrize("lo", [None, -2, 0, 3])
@pytest.mark.parametrize("hi", [None, -3, 0, 3])
def test_members_say_the_rest(lo: int | None, hi: int | None) -> None:
    interval = Interval(lo, hi)
    members = [value for value in range(-9, 10) if value in interval]
    assert members == [
        v for v in range(-9, 10) if (lo is None or lo <= v) and (hi is None or v <= hi)
    ]
    assert interval.empty is (not members)
    if lo is not None and hi is not None:
        assert (interval.single is not None) is (len(members) == 1)
        assert interval.single in (None, *members)
