"""One trace from beginning to end: a call and its policies become a :class:`Program`."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch

from symshape import events
from symshape.calls.arguments import Call
from symshape.calls.variables import Variable
from symshape.errors import (
    InternalError,
    Reason,
    SymShapeError,
    UnsupportedError,
)
from symshape.graph.program import Program
from symshape.interrupts import PatientHandlers
from symshape.options import Options
from symshape.torch_internals.private import refuse_if_missing
from symshape.tracing.garbage import as_before, seldom_collected
from symshape.tracing.intercept.python_warnings import is_warning, told_as_in_eager
from symshape.tracing.memos import ATTEMPTS
from symshape.tracing.mode import asked_by_cpp
from symshape.tracing.restart import (
    Attempt,
    Change,
    Restart,
    traced_with_restarts,
    with_fewer_symbols,
)
from symshape.tracing.run import GivenUp, trace_once, tracing_lock
from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.instrument.placeholders import is_planted_by_another
from symshape.tracing.symbolic_arguments import Policies
from symshape.tracing.trace_errors import defect
from symshape.user_code import name_of, raised_at

P = ParamSpec("P")
T = TypeVar("T")


def wait_for_traces() -> bool:
    """Wait for another thread's trace, whose placeholder objects user code could see; return
    whether there was one.
    """
    if not is_planted_by_another():
        return False
    with tracing_lock:
        return True


def between_traces(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` so that no other thread traces while it runs.  Handlers of signals wait
    while C++ asks for sizes.

    A trace replaces the code of functions and puts placeholder objects where user code can see
    them.
    """

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        handlers = PatientHandlers(asked_by_cpp)
        try:
            with handlers, tracing_lock:
                return function(*args, **kwargs)
        finally:  # again: an interrupt may come before the `with` is entered
            handlers.put_back()

    return alone


def capture(
    fn: Callable[..., Any],
    call: Call,
    policies: Policies,
    options: Options,
    given_up: GivenUp | None = None,
    *,
    variables: Sequence[Variable] = (),
    serves: bool = True,
    asks: bool = False,
) -> Program:
    """Trace ``fn`` on symbolic tensors for this call and return the program.

    Writes of the function outside of its results are undone after the trace; each call of the
    program makes them again. A trace that needs other settings is started again (see
    ``restart.py``).  After an error of the function or of torch, the next attempt answers
    ``is_compiling()`` with no, if the function had asked.  Else it fixes sizes.

    Args:
        fn: the function to trace.
        call: the arguments of the call.
        policies: the policies of sizes and numbers.
        options: of the trace.
        given_up: called with the state that was read if an attempt fails.
        variables: the places whose values are the last leaves of the call.
        serves: whether the program serves calls of ``fn`` in its place: then ``fn`` may not print,
            log or warn; else it may not write outside.
        asks: whether ``GradientsRead`` is raised where gradients of earlier calls are no variables
            yet.

    Raises:
        SymShapeError: a class for each remedy; see ``symshape.errors``.  The function's own
            exceptions pass through.
    """
    refuse_if_missing()
    torch_functions.refuse_if_replaced()
    if inspect.iscoroutinefunction(fn.forward if isinstance(fn, torch.nn.Module) else fn):
        raise UnsupportedError(
            f"{name_of(fn)} is a coroutine function, whose calls compute nothing before they are "
            "awaited; compile the function that computes, and await around it",
            reason=Reason.COROUTINE,
        )
    thresholds, handlers = gc.get_threshold(), PatientHandlers(asked_by_cpp)
    try:
        with (
            handlers,
            tracing_lock,
            told_as_in_eager(serves) as forget,
            seldom_collected(),
            ATTEMPTS.begun(),
        ):

            def trace(attempt: Attempt) -> Program:
                forget()
                return trace_once(
                    fn, call, attempt.policies, options, given_up, variables, serves, asks
                )

            return traced_with_restarts(
                name_of(fn),
                Attempt.first(policies),
                trace,
                partial(_change_after, fn),
            )
    except BaseException:
        as_before(thresholds)  # an interrupt may come before the `with` is entered
        handlers.put_back()
        raise


def _change_after(fn: Callable[..., Any], error: Exception | Restart, attempt: Attempt) -> Change:
    """Return the change of settings for the next attempt to trace ``fn``, after ``error`` ended the
    last one.

    Raises:
        SymShapeError: no other attempt would help.
    """
    if isinstance(error, Restart) and error.prepares:
        return error.change
    if isinstance(error, Restart | SymShapeError) and ATTEMPTS.call_plainly():
        return lambda same, _: same
    if isinstance(error, SymShapeError) or is_warning(error):
        raise error
    if not isinstance(error, Restart) and not attempt.sizes_fixed:
        _raise_if_defect(error, fn)
    ATTEMPTS.forget()
    return error.change if isinstance(error, Restart) else with_fewer_symbols


def _raise_if_defect(error: Exception, fn: Callable[..., Any]) -> None:
    said, place = f"{type(error).__name__}: {error}", defect(error)
    if place is None:
        return
    events.emit(events.Defect(name_of(fn), said, place))
    raise InternalError(
        f"symshape itself failed while it traced {name_of(fn)} (at {raised_at(error)}): {said} at "
        f"{place}; "
        "this is a defect of symshape, please report it with the function; symshape.compile "
        "without fullgraph=True runs the function eagerly"
    ) from error
