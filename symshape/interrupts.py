"""Exceptions of signal handlers, as distinct from a program's own: they say nothing about the
program.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import _thread
import signal
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

__all__ = ["PatientHandlers", "interrupt_in", "pass_on"]

_NUMBERS = tuple(map(int, signal.valid_signals()))
"""The signals.  (The functions of ``signal`` make an enum of each: 100 µs for all of them.)"""
_PAUSE = 0.001  # seconds until a signal that has to wait is delivered again


def interrupt_in(error: BaseException) -> BaseException | None:
    """Return the exception of a signal's handler (of a time limit, say) behind an error; None if
    there is none.
    """
    codes = _codes_of_handlers()
    seen: set[int] = set()
    each: BaseException | None = error
    while codes and each is not None and id(each) not in seen:
        seen.add(id(each))
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(each.__traceback__)):
            return each
        each = each.__cause__ or each.__context__
    return None


def pass_on(error: BaseException) -> None:
    """Raises what a signal's handler raised, if this error is that or came of it."""
    found = interrupt_in(error)
    if found is not None:
        raise found


def _codes_of_handlers() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = _own(signal.getsignal(number))
        for each in (handler, getattr(handler, "func", None), vars(type(handler)).get("__call__")):
            code = getattr(getattr(each, "__func__", each), "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found


class PatientHandlers:
    """A context in which the handlers of signals wait at some steps of Python code: they run a
    little later, at the latest when the context is left.

    Some functions of torch's C++ ask Python, and end the process if the answer is an exception.
    Only the main thread runs handlers, so other threads change nothing here.  Handlers of C, and
    signals that are ignored, stay as they are.

    Args:
        must_wait: returns whether no exception may be raised in a frame.
    """

    def __init__(self, must_wait: Callable[[FrameType | None], bool]) -> None:
        self._must_wait = must_wait
        self._replaced: dict[int, _Patient] = {}
        self._due: list[int] = []

    def __enter__(self) -> PatientHandlers:
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                handler = _signal.getsignal(number)
                if callable(handler) and not isinstance(handler, _Patient):
                    patient = _Patient(handler, self._must_wait, self._due)
                    self._replaced[number] = patient
                    _signal.signal(number, patient)
        return self

    def __exit__(self, *_: object) -> None:
        self.put_back()

    def put_back(self) -> None:
        """Restore the handlers, but for those that the program has replaced, and run those that
        wait; may be called again after an interrupt.
        """
        for number, patient in self._replaced.items():
            if _signal.getsignal(number) is patient:
                _signal.signal(number, patient.handler)
        waiting = _next(self._due)
        if waiting is not None:
            try:
                signal.raise_signal(waiting)
            finally:
                self.put_back()  # others may wait too


class _Patient:
    """A handler that runs another one, now or a little later.

    Attributes:
        handler: the other one.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        must_wait: Callable[[FrameType | None], bool],
        due: list[int],
    ) -> None:
        self.handler = handler
        self._must_wait = must_wait
        self._due = due

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if not self._must_wait(frame):
            return self.handler(number, frame)
        if number in self._due:  # as the system does with a signal that is pending
            return None
        self._due.append(number)
        return _thread.start_new_thread(_deliver, (self._due,))


def _deliver(due: list[int]) -> None:
    """Deliver a signal that waits, unless the context was left before."""
    time.sleep(_PAUSE)
    number = _next(due)
    if number is None or not callable(_signal.getsignal(number)):
        return
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)  # wakes it, too, if it sleeps
    else:
        _thread.interrupt_main(signal.Signals(number))


def _next(due: list[int]) -> int | None:
    try:
        return due.pop()
    except IndexError:
        return None


def _own(handler: Any) -> Any:
    """Return the program's own handler."""
    return handler.handler if isinstance(handler, _Patient) else handler
