"""One trace from beginning to end: a call and its policies become a :class:`Program`."""

from __future__ import annotations

import contextvars
import gc
import inspect
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch

from guards.sets.guard_set import GuardSet
from symshape import events, forks
from symshape.calls.argument_writes import ArgumentContents, ArgumentWrites
from symshape.calls.arguments import Call, skeleton
from symshape.calls.container_aliasing import forbidden_containers
from symshape.calls.modes import modes
from symshape.calls.outputs import writes_records
from symshape.calls.questions import Question
from symshape.calls.variables import Variable, Write, all_written, note_written
from symshape.errors import (
    InternalError,
    Problem,
    Reason,
    SymShapeError,
    UnsupportedError,
    refusals_noted,
)
from symshape.graph.autograd_history import without_unseen_history
from symshape.graph.codegen import LateRun
from symshape.graph.graph import Graph
from symshape.graph.program import Program, limits_of, symbol_positions
from symshape.graph.steps import Step, written_values
from symshape.interrupts import PatientHandlers
from symshape.options import Options
from symshape.torch_internals.private import refuse_if_missing
from symshape.torch_internals.pytree import TreeSpec
from symshape.tracing.aborted_traces import generators_put_back, output_held
from symshape.tracing.garbage import as_before, seldom_collected
from symshape.tracing.global_state import Surroundings
from symshape.tracing.intercept.python_numbers.identity import Identity
from symshape.tracing.intercept.python_warnings import is_warning, told_as_in_eager
from symshape.tracing.intercept.torch_functions.random_state import Draws
from symshape.tracing.memos.calls import ATTEMPTS, MemoCalls
from symshape.tracing.mode import asked_by_cpp
from symshape.tracing.outputs import outputs_of, steps_for, written_by
from symshape.tracing.restart import (
    Attempt,
    Change,
    Restart,
    traced_with_restarts,
    with_fewer_symbols,
)
from symshape.tracing.run import run_on_symbols
from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.instrument.hooks import (
    recorder_of,
)
from symshape.tracing.state.instrument.placeholders import is_planted_by_another
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo import side_effects
from symshape.tracing.state.undo.writes import (
    Changes,
    items_but,
    may_grow,
    variables_read,
    where_of,
)
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic_arguments import Policies, SymbolicArguments
from symshape.tracing.trace_errors import defect
from symshape.tracing.traced_modes import without_autocast
from symshape.tracing.tracer import Tracer
from symshape.user_code import name_of, raised_at

_tracing_lock = forks.lock(outer=1)
"""Held while a function is traced: torch's ``is_compiling`` flag is global."""
P = ParamSpec("P")
T = TypeVar("T")


def wait_for_traces() -> bool:
    """Wait for another thread's trace, whose placeholder objects user code could see; return
    whether there was one.
    """
    if not is_planted_by_another():
        return False
    with _tracing_lock:
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
            with handlers, _tracing_lock:
                return function(*args, **kwargs)
        finally:  # again: an interrupt may come before the `with` is entered
            handlers.put_back()

    return alone


GivenUp = Callable[[State], object]


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
    _refuse_if_replaced()
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
            _tracing_lock,
            told_as_in_eager(serves) as forget,
            seldom_collected(),
            ATTEMPTS.begun(),
        ):

            def trace(attempt: Attempt) -> Program:
                forget()
                return _trace(
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


def _refuse_if_replaced() -> None:
    """Raise an UnsupportedError if a function of torch or Python is replaced by another one."""
    torch_functions.settle()
    refused = torch_functions.refusal()
    if refused is not None:
        raise refused


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


def _trace(
    fn: Callable[..., Any],
    call: Call,
    policies: Policies,
    options: Options,
    given_up: GivenUp | None,
    variables: Sequence[Variable],
    serves: bool,
    asks: bool,
) -> Program:
    start, refusals = time.perf_counter(), list[BaseException]()
    with _tracing_lock:
        recorder = recorder_of(
            fn, call.constants, call.classes, serves=serves, stored=bool(options.store)
        )
        draws = Draws(name_of(fn))
        recorder.on_generator = draws.watch
        tracer = Tracer(ShapeEnv(), recorder.tensors, draws.known)
        tracer.asks = asks
        arguments = SymbolicArguments(tracer, call, policies, options)
        memos = MemoCalls(tracer, recorder, arguments, Identity(tracer, call.leaves))
        around = Surroundings(
            lambda: given_up and given_up(_state(recorder, variables)), draws.put_back
        )
        try:
            with generators_put_back(), output_held(), refusals_noted() as refusals:
                try:
                    result, changes = contextvars.copy_context().run(
                        run_on_symbols,
                        fn,
                        call,
                        tracer,
                        arguments,
                        recorder,
                        draws,
                        variables,
                        around,
                        memos,
                    )
                except (Exception, Restart):
                    # the program caught that, and failed on its other way
                    tracer.raise_if_gradients_were_read()
                    raise
                tracer.raise_if_gradients_were_read()
                # in the trace, by another thread or by code that no hook sees
                _refuse_if_replaced()
                if refusals:  # caught by the program, which went another way than it goes in eager
                    raise refusals[0]
                roots = tracer.arguments | {each.value for each in tracer.lifting.lifted.values()}
                outputs, specs, tree = outputs_of(tracer, result, roots)
                if changes.changes and not serves:
                    side_effects.refuse(
                        [Problem(changes.changes[0].text, Reason.STATE)], name_of(fn)
                    )
                written, every = written_by(tracer, changes, result, roots, len(outputs))
                writes, given = _given(changes, every, recorder)
                outputs += tuple(written)
                steps = _silent(tracer, call, arguments, steps_for(tracer, outputs), outputs)
        except BaseException as error:
            try:
                around.put_back(error)
            finally:  # again: a second interrupt may come where the first one begins
                around.put_back(error)
            _raise_caught_restart(error, refusals)
            raise
    tracer.own.forget()
    state = _state(recorder, variables)
    graph = Graph(
        tuple(arguments.inputs), tuple(tracer.lifting.lifted.values()), steps, outputs, tree
    )
    guards = _guards(tracer.env, options)
    slots, modes_then = tuple(arguments.slots), modes()
    run = without_autocast(LateRun(graph, symbol_positions(slots)), modes_then)
    taken = (time.perf_counter() - start) * 1e3
    events.emit(events.Traced(name_of(fn), len(graph.nodes), len(guards), taken))
    new_variables = _variables(recorder, writes, variables)
    questions = {
        **tracer.questions,
        **tracer.env.data.questions(call.leaves),
        **_whether_inference(graph, call.leaves, writes or given),
    }
    tracer.lifting.let_go()
    return Program(
        name=name_of(fn),
        call=skeleton(call),
        slots=slots,
        symbols=dict(tracer.env.symbols),
        guards=guards,
        graph=graph,
        output_specs=specs,
        state=state,
        modes=modes_then,
        run=run,
        milliseconds=taken,
        questions=questions,
        writes=writes,
        variables=new_variables,
        given=given,
        apart=_apart(call, tree, writes, given, recorder),
    )


def _raise_caught_restart(error: BaseException, refusals: Sequence[BaseException]) -> None:
    """Raise the restart that a program caught before it failed in another way, if there is one."""
    first = refusals[0] if refusals else None
    if isinstance(first, Restart) and first is not error and isinstance(error, Exception | Restart):
        raise first from error


def _silent(
    tracer: Tracer,
    call: Call,
    arguments: SymbolicArguments,
    steps: tuple[Step, ...],
    outputs: tuple[Any, ...],
) -> tuple[Step, ...]:
    """Return the steps; those whose autograd history no output shows do not record gradients."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return steps
    lifted = tracer.lifting.lifted.values()
    roots = [each.value for each in arguments.inputs] + [each.value for each in lifted]
    asking = [
        each.value
        for each in arguments.inputs
        if getattr(call.keys[each.position], "requires_grad", False)
    ]
    asking += [each.value for each in lifted if each.tensor.requires_grad]
    return without_unseen_history(steps, roots, asking, outputs)


def _whether_inference(
    graph: Graph, leaves: Sequence[Any], outside: object
) -> dict[Question, Hashable]:
    """Return the question whether each argument that is written in place is an inference tensor,
    with its answer.

    Only a program that also writes ``outside`` of its arguments needs these questions.  Outside of
    inference mode torch raises an error when an inference tensor is written.  By then the program
    may have written elsewhere, and the function could not run eagerly instead.  The answers keep
    such calls from the program before it runs.
    """
    if not outside:
        return {}
    written = {
        id(value.storage)
        for node in graph.nodes
        if not node.inference
        for value in written_values(node)
    }
    asked = (
        Question(each.position, "is_inference")
        for each in graph.inputs
        if id(each.value.storage) in written
    )
    return {each: each.answer(leaves[each.position]) for each in asked}


def _given(
    changes: Changes, every: Sequence[Write], recorder: Recorder
) -> tuple[list[Write], ArgumentWrites | None]:
    """Return the writes outside of the arguments, and the writes to lists and dictionaries among
    the arguments.
    """
    outside = [each for each in every if not isinstance(each.variable, ArgumentContents)]
    own = [each for each in every if isinstance(each.variable, ArgumentContents)]
    if not own and not changes.returned_arguments:
        return outside, None
    read = {id(each.owner) for each in recorder.containers} | recorder.namespaces.keys()
    return outside, ArgumentWrites(own, changes.returned_arguments, frozenset(read))


def _apart(
    call: Call,
    tree: TreeSpec,
    writes: Sequence[Write],
    given: ArgumentWrites | None,
    recorder: Recorder,
) -> frozenset[int]:
    """Return the ids of lists and dictionaries that the program reads or writes and that may not be
    arguments too.
    """
    outside = [each.owner for each in recorder.containers]
    return forbidden_containers(call, outside, writes, writes_records(tree), given is not None)


def _state(recorder: Recorder, variables: Sequence[Variable]) -> State:
    """Return the state that later calls compare: the places that the trace read, except the
    variables.
    """
    known = {each.where for each in variables}
    pinned = None if recorder.from_memos else frozenset(recorder.pinned)
    if not known:
        return State(recorder.places, recorder.containers, recorder.begun, pinned)
    places = [each for each in recorder.places if where_of(each) not in known]
    containers = [each for each in recorder.containers if (id(each.owner), "") not in known]
    containers = [each for each in containers if id(each.owner) not in recorder.stand_ins]
    with_variables = {owner for owner, key in known if key != ""}
    for each in containers:
        if id(each.owner) in with_variables:
            places += items_but(each, known)
    containers = [each for each in containers if id(each.owner) not in with_variables]
    return State(places, containers, recorder.begun, pinned)


def _variables(
    recorder: Recorder, writes: Sequence[Write], variables: Sequence[Variable]
) -> list[Variable]:
    """Return new variables: places that the program read, that a program writes, and that are no
    variables yet.
    """
    note_written(writes)
    known = {each.where for each in variables}
    found = [each for each in variables_read(recorder, all_written()) if each.where not in known]
    if found or known:  # what is kept along with a variable will be read by another program
        known |= {each.where for each in found}
        found += [
            each.variable
            for each in writes
            if each.variable.where not in known and may_grow(each.variable)
        ]
    return found


def _guards(env: ShapeEnv, options: Options) -> GuardSet:
    ranges = {
        symbol.name: limits_of(symbol.sources[0])
        for symbol in env.symbols.values()
        if symbol.backed
    }
    guards = GuardSet(env.guards, ranges=ranges)
    return guards.minimise() if options.minimise_guards else guards
