"""A recording is of one thread and of its time: functions get their own code back, and others are
not disturbed.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape import UnsupportedError
from symshape.tracing.state.instrument.hooks import HOOKS, recorder_of, recording
from symshape.tracing.state.instrument.rewriter import is_instrumented
from tests.symshape.tracing.looked_at import Found, found_by
from tests.symshape.tracing.state.recorded import names, recorded

LEVEL = types.SimpleNamespace(read=1, other=2)


def _helper() -> Any:
    return LEVEL.read


def _outer() -> Any:
    return _helper()


def _codes() -> tuple[types.CodeType, ...]:
    return _outer.__code__, _helper.__code__, nn.Linear.forward.__code__


def test_functions_have_their_own_code_back() -> None:
    before = _codes()
    recorder = recorder_of(_outer)
    with recording(recorder):
        assert is_instrumented(_outer.__code__, HOOKS)
        assert _outer() == 1
        assert is_instrumented(_helper.__code__, HOOKS)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))
    symshape.trace(nn.Linear(2, 2), torch.ones(3, 2))
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@pytest.mark.parametrize("error", [KeyError, UnsupportedError, KeyboardInterrupt])
def test_also_after_an_exception(error: type[BaseException]) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        _outer()
        raise error("mine")

    before, own = _codes(), fails.__code__
    with pytest.raises(error, match="mine"):
        symshape.trace(fails, torch.ones(2))
    assert fails.__code__ is own
    assert all(now is then for now, then in zip(_codes(), before, strict=True))
    assert not recorded(lambda: None).refusals  # the next recording begins anew


def test_a_recording_inside_another_has_its_own_loads() -> None:
    def inner() -> Any:
        return LEVEL.other

    before = _codes()
    outer = recorder_of(_outer)
    with recording(outer):
        nested = recorded(inner)
        assert _outer() == 1
    assert "LEVEL.other" in names(nested)
    assert "LEVEL.read" not in names(nested)
    assert "LEVEL.read" in names(outer)
    assert "LEVEL.other" not in names(outer)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def test_another_thread_is_undisturbed_and_not_recorded() -> None:
    def reads(name: str) -> Any:
        return getattr(LEVEL, name), isinstance(LEVEL, types.SimpleNamespace), len(name)

    seen: list[Any] = []
    recorder = recorder_of(reads, ("read",))
    with recording(recorder):
        thread = threading.Thread(target=lambda: seen.append(reads("other")))
        thread.start()
        thread.join()
        assert reads("read") == (1, True, 4)
    assert seen == [(2, True, 5)]
    assert "LEVEL.read" in names(recorder)
    assert "LEVEL.other" not in names(recorder)


def test_a_thread_that_calls_a_function_all_the_while() -> None:
    stop, wrong = threading.Event(), []

    def asks() -> None:
        while not stop.is_set():
            try:
                if _outer() != 1:
                    wrong.append("another answer")
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=asks)
    thread.start()
    try:
        for _ in range(20):
            symshape.trace(lambda x: x * _outer(), torch.ones(2))
    finally:
        stop.set()
        thread.join()
    assert wrong == []


def test_code_that_stays_instrumented_outside_computes_the_same() -> None:
    """A function that is made inside a trace has calls in its code for good."""

    def makes(x: torch.Tensor) -> torch.Tensor:
        raise Found(lambda: (LEVEL.read, isinstance(3, int), LEVEL is None, max(1, 2)))

    made = found_by(lambda: symshape.trace(makes, torch.ones(2)))
    assert is_instrumented(made.__code__, HOOKS)
    assert made() == (1, True, False, 2)


def test_a_name_that_is_nowhere_is_named() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return nowhere + x  # type: ignore[name-defined, no-any-return]  # noqa: F821

    with pytest.raises(NameError, match="name 'nowhere' is not defined") as raised:
        symshape.trace(fn, torch.ones(2))
    assert raised.value.name == "nowhere"


def test_names_of_attributes_that_a_class_reads_by_itself() -> None:
    class Own:
        def __init__(self) -> None:
            self.hidden = 3

        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__("hidden" if name == "shown" else name)

    thing = Own()
    traced = symshape.trace(lambda x: x * thing.shown, torch.ones(2))
    assert traced.check(torch.ones(2))
    thing.hidden = 4
    assert not traced.check(torch.ones(2))


def test_objects_die_afterwards() -> None:
    class Thing:
        def __init__(self) -> None:
            self.scale = 2.0
            self.weight = torch.ones(2)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.weight

    thing = Thing()
    gone = [weakref.ref(thing), weakref.ref(thing.weight)]
    traced = symshape.trace(thing.run, torch.ones(2))
    assert torch.equal(traced(torch.ones(2)), thing.run(torch.ones(2)))
    del traced, thing
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_lines_of_errors_are_those_of_the_program() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        missing = LEVEL.nothing
        return x * missing

    with pytest.raises(AttributeError) as raised:
        symshape.trace(fails, torch.ones(2))
    lines = [each.lineno for each in raised.traceback[-3:] if each.name == "fails"]
    trace, found = raised.value.__traceback__, []
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    assert ("fails", fails.__code__.co_firstlineno + 1) in found
    assert lines
    assert sys.exc_info() == (None, None, None)
