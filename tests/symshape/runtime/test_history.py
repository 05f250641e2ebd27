"""A bounded history."""

from __future__ import annotations

from typing import Any

from symshape.runtime.history import MOST, History


class Why:
    def __init__(self, entries: int) -> None:
        self.entries: tuple[Any, ...] = (None,) * entries

    def explain(self) -> str:
        return "because"


def test_new_sizes_do_not_push_traces_out() -> None:
    history = History()
    history.note("trace", 1, entry=0)
    for call in range(3 * MOST):
        history.note("new sizes", call, entry=0, values=(call,))
    moments = history.moments()
    assert len(moments) == MOST + 1
    assert moments[0].kind == "trace"
    assert moments[-1].values == (3 * MOST - 1,)


def test_the_reason_belongs_to_the_last_trace() -> None:
    history = History()
    history.note("trace", 1)
    history.note("trace", 2)
    history.note("evicted", 2)
    history.because(Why(3))
    assert [moment.text for moment in history.moments()] == ["", "because", ""]


def test_too_many_entries_to_compare_at_once() -> None:
    history = History()
    history.note("trace", 1)
    history.because(Why(1000))
    history.because(None)
    assert [moment.text for moment in history.moments()] == [""]
