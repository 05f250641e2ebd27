"""The global state of torch and Python that a trace changes, restored even if an interrupt cuts off
a context manager.

Python delivers a signal between any two steps of Python code, also inside ``__enter__`` and
``__exit__``, so that ``with`` alone guarantees nothing. So the whole state is saved before the
first change and compared after an exception. (Private names of torch, read on 2.11 and 2.13.)
"""

from __future__ import annotations

import contextlib
import gc
import io
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from symshape.calls.generator_states import state_of
from symshape.torch_internals import autograd
from symshape.torch_internals.dispatch import function_modes as _get_current_function_mode_stack
from symshape.torch_internals.dispatch import note_mode_in_cpp
from symshape.torch_internals.dispatch import python_dispatch as _python_dispatch
from symshape.tracing.intercept.exchanges import own, put
from symshape.tracing.intercept.python_numbers import builtins
from symshape.tracing.intercept.python_numbers.methods import METHODS
from symshape.tracing.state.instrument import hooks, placeholders
from symshape.tracing.symbolic.nodes import texts
from symshape.tracing.traced_modes import autocast_modes, set_autocast_modes

# to restore everything, which takes milliseconds: an alarm may ring again and again
_ATTEMPTS = 100
_PLACES: Sequence[tuple[Any, str]] = (
    (torch.compiler, "_is_compiling_flag"),
    (_python_dispatch, "_is_in_torch_dispatch_mode"),
    (_python_dispatch, "_is_in_non_infra_torch_dispatch_mode"),
    (_python_dispatch, "_is_in_any_mode_without_ignore_compile_internals"),
    (torch.nn.functional, "scaled_dot_product_attention"),
    (torch.overrides, "has_torch_function"),
    (torch.autograd, "_engine_run_backward"),
    (torch.utils.weak, "id"),
    (torch.random, "default_generator"),
    (torch.cuda, "default_generators"),
    *((sys, name) for name in ("stdout", "stderr")),
    *((texts._thread, name) for name in ("asked", "places")),
    (builtins, "_stand_ins"),
    (hooks, "_active"),
    (placeholders, "_planted_by"),
    *METHODS,
)
_SWITCHES: Sequence[tuple[Callable[[], Any], Callable[[Any], object]]] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (autograd.is_multithreading, autograd.set_multithreading),
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (sys.getprofile, sys.setprofile),
)


class Surroundings:
    """The state of torch and Python around a trace, saved so that it can be restored.

    Args:
        later: see :meth:`afterwards`.
    """

    def __init__(self, *later: Callable[[], object]) -> None:
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        places = (*_PLACES, (dynamo, "_stance")) if dynamo is not None else _PLACES
        self._places = [(owner, name, own(owner, name)) for owner, name in places]
        self._switches = [(read, write, read()) for read, write in _SWITCHES]
        self._autocast = autocast_modes()
        self._dispatch = _python_dispatch._get_current_dispatch_mode_stack()
        self._function = _get_current_function_mode_stack()
        self._later = [*later]

    def afterwards(self, *put_back: Callable[[], object]) -> None:
        """Add callbacks to run after the modes are restored: they may run twice, and the last one
        added runs first.
        """
        self._later += put_back

    def put_back(self, error: BaseException) -> None:
        """Restore what ``error`` left changed; start again whenever another interrupt comes.

        Raises:
            BaseException: the last of those interrupts.
        """
        interrupt: BaseException | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._put_back(error)
                break
            except BaseException as another:
                interrupt = another
        if interrupt is not None:
            raise interrupt

    def _put_back(self, error: BaseException) -> None:
        _close_suspended(error)
        self._settle_all()
        for each in reversed(self._later):
            each()
        # callbacks restore the values that the program found, which may have been ours
        self._settle_all()

    def _settle_all(self) -> None:
        _settle(self._dispatch, _python_dispatch._get_current_dispatch_mode_stack, _python_dispatch)
        _settle(self._function, _get_current_function_mode_stack, torch.overrides)
        for owner, name, value in self._places:
            if own(owner, name) is not value:
                put(owner, name, value)
        note_mode_in_cpp(_python_dispatch._is_in_any_mode_without_ignore_compile_internals)
        for read, write, before in self._switches:
            if read() != before:
                write(before)
        if autocast_modes() != self._autocast:
            set_autocast_modes(self._autocast)


def _settle(before: Sequence[Any], now: Callable[[], Sequence[Any]], stack: Any) -> None:
    """Restore a stack of torch's modes."""
    found = now()
    same = 0
    while same < min(len(before), len(found)) and before[same] is found[same]:
        same += 1
    for _ in found[same:]:
        stack._pop_mode()
    for mode in before[same:]:
        stack._push_mode(mode)


def _close_suspended(error: BaseException) -> None:
    """End context managers that were entered but whose ``with`` was cut off: only the traceback
    holds them.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        trace = each.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == contextlib.__file__:
                with contextlib.suppress(RuntimeError):  # it is running
                    trace.tb_frame.clear()
            trace = trace.tb_next


# -- Undo for a trace that fails: random generators that no graph owns, and printed output.
#
# The program then runs again in eager and must find the same state.
# :mod:`symshape.tracing.state` restores attributes, globals, closures and containers.
_DEBUGGERS = ("pdb", "bdb", "code", "codeop")


class _Held(io.TextIOBase):
    """Standard output that buffers what one thread writes; other threads, and debuggers, write
    through.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = threading.get_ident()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread or _debugging():
            return int(self._stream.write(text))
        self.texts.append(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Flush the stream below; this thread's text stays buffered."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _HeldText(_Held, io.StringIO):
    """The same buffer for a stream that is an ``io.StringIO``: a program may test whether its
    output is captured.
    """


def _debugging() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False


@contextmanager
def output_held() -> Iterator[None]:
    """Buffer what the thread prints inside; print it at the end, unless an error ends the block."""
    outer = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    held = {
        name: (_HeldText if isinstance(each, io.StringIO) else _Held)(each)
        for name, each in outer.items()
        if each is not None
    }
    for name, each in held.items():
        setattr(sys, name, each)
    lost = False
    try:
        yield
    except BaseException:
        lost = True
        raise
    finally:
        for name, each in held.items():
            if each.texts and not lost:
                outer[name].write("".join(each.texts))
        for name, each in held.items():
            if getattr(sys, name) is each:
                setattr(sys, name, outer[name])


@contextmanager
def generators_put_back() -> Iterator[None]:
    """Put the global generators (torch's, Python's, NumPy's) back if an error ends the block.

    NumPy's generator has no state to keep before ``numpy.random`` is imported, which takes longer
    than a small trace.
    """
    of_numpy = sys.modules.get("numpy.random")
    ours, pythons = state_of(torch.default_generator), random.getstate()
    numpys = of_numpy.get_state() if of_numpy is not None else None
    try:
        yield
    except BaseException:
        torch.set_rng_state(ours)
        random.setstate(pythons)
        if of_numpy is not None:
            of_numpy.set_state(numpys)
        raise
