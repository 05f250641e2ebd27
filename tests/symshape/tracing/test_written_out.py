"""A trace that needs the steps of its loops is begun once more."""

from __future__ import annotations

import pytest

from symshape.tracing.written_out import NeedsLoops, loops_are_written_out, written_out_where_needed


def test_once_more() -> None:
    seen: list[bool] = []

    @written_out_where_needed
    def trace(number: int) -> int:
        seen.append(loops_are_written_out())
        if number > len(seen):
            raise NeedsLoops(f"needs more than {len(seen)}")
        return number

    assert trace(1) == 1
    assert seen == [False]
    seen.clear()
    assert trace(2) == 2
    assert seen == [False, True]
    seen.clear()
    with pytest.raises(NeedsLoops, match="more than 1"):
        trace(3)
    assert seen == [False, True]
    assert not loops_are_written_out()
