"""Recordings of plain functions, without a trace around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symshape.tracing.state.compare.state import State
from symshape.tracing.state.instrument.hooks import recorder_of, recording
from symshape.tracing.state.record.recorder import Recorder


def recorded(fn: Callable[..., Any], *args: Any, serves: bool = True) -> Recorder:
    """What ``fn`` read when called so."""
    recorder = recorder_of(fn, args, serves=serves)
    with recording(recorder):
        fn(*args)
    return recorder


def names(recorder: Recorder) -> set[str]:
    """The places and containers that were read, by name."""
    return {each.name for each in (*recorder.places, *recorder.containers)}


def state_of(fn: Callable[..., Any], *args: Any) -> State:
    """What ``fn`` read, as it is compared."""
    recorder = recorded(fn, *args)
    return State(recorder.places, recorder.containers)


def seen(fn: Callable[..., Any], change: Callable[[], Any], *args: Any) -> bool:
    """Whether a change is seen by what ``fn`` read before; that nothing else seemed changed is
    asserted.
    """
    state = state_of(fn, *args)
    assert state.unchanged()
    assert state.changes() == []
    change()
    assert state.unchanged() is not bool(state.changes())
    return not state.unchanged()
