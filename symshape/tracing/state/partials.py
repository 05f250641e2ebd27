"""Record what a ``functools.partial``, ``partialmethod`` or ``singledispatchmethod`` calls."""

from __future__ import annotations

import functools
from typing import Any

from symshape.tracing.state.record.class_lookups import parts_of_member, touch_member
from symshape.tracing.state.record.recorder import Recorder


def touch_partial(recorder: Recorder, value: Any, name: str) -> None:
    """Record the function and the arguments of a ``functools.partial``."""
    label = name or "partial"
    for part in ("func", "args", "keywords"):  # __setstate__ may replace them
        recorder.attribute(value, part, getattr(value, part), f"{part} of {label}")
    recorder.touch(value.func, name)
    recorder.on_exchange(recorder, value)
    for i, each in enumerate(value.args):
        recorder.touch(each, f"{label} argument {i}")
    recorder.touch(value.keywords, f"keywords of {label}", True)


def touch_method_of_functools(recorder: Recorder, value: Any, name: str) -> None:
    """Record the function and the arguments of a ``functools.partialmethod`` or
    ``singledispatchmethod``.
    """
    parts_of_member(recorder, value, name)
    touch_member(recorder, value.func, name)
    if isinstance(value, functools.singledispatchmethod):
        recorder.touch(value.dispatcher, name)
        recorder.on_exchange(recorder, value)
        return
    for i, each in enumerate(value.args):
        recorder.touch(each, f"{name} argument {i}")
    recorder.touch(value.keywords, f"keywords of {name}", True)
