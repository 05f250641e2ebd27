"""One attempt to trace a function: its run on symbolic arguments becomes a :class:`Program`."""

from __future__ import annotations

import contextvars
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from symshape import events, forks
from symshape.calls.arguments import Call, skeleton
from symshape.calls.modes import modes
from symshape.calls.variables import Variable, containers_in
from symshape.errors import (
    Problem,
    Reason,
    refusals_noted,
)
from symshape.graph.codegen import LateRun
from symshape.graph.graph import Graph
from symshape.graph.program import Program, symbol_positions
from symshape.options import Options
from symshape.tracing.argument_writes import Given, GivenRecords
from symshape.tracing.autograd.histories import histories
from symshape.tracing.data.scalar_reads import ScalarData
from symshape.tracing.global_state import Surroundings, generators_put_back, output_held
from symshape.tracing.intercept.python_numbers.builtins import ids_of_stand_ins_refused
from symshape.tracing.intercept.python_numbers.identity import Identity
from symshape.tracing.intercept.python_numbers.methods import number_methods
from symshape.tracing.intercept.torch_functions.function_mode import FunctionMode
from symshape.tracing.intercept.torch_functions.random_state import Draws
from symshape.tracing.memos import MemoCalls, fill_or_refuse
from symshape.tracing.mode import TracingMode
from symshape.tracing.outputs import (
    containers_apart,
    guards_of,
    new_variables_of,
    outputs_of,
    state_of_trace,
    steps_for,
    whether_inference,
    without_unseen,
    writes_of,
    written_by,
)
from symshape.tracing.restart import Restart, current
from symshape.tracing.state.compare import torch_functions
from symshape.tracing.state.compare.state import State
from symshape.tracing.state.instrument.hooks import (
    recorder_of,
    recording,
    tell,
    with_their_own_code,
)
from symshape.tracing.state.instrument.placeholders import Planted
from symshape.tracing.state.record import torch_flags
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo import side_effects
from symshape.tracing.state.undo.grad_fields import Gradients
from symshape.tracing.state.undo.writes import Changes
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.nodes import texts
from symshape.tracing.symbolic_arguments import Policies, SymbolicArguments
from symshape.tracing.trace_errors import explain
from symshape.tracing.traced_modes import left_as_they_are, while_tracing, without_autocast
from symshape.tracing.tracer import Tracer
from symshape.user_code import name_of

tracing_lock = forks.lock(outer=1)
"""Held while a function is traced: torch's ``is_compiling`` flag is global."""
GivenUp = Callable[[State], object]


@contextmanager
def symbols_in_use(
    tracer: Tracer,
    gradients: Gradients,
    attends: Callable[[torch.device], object],
    problems: list[Problem],
) -> Iterator[None]:
    """Return a context in which torch and Python compute with the symbols of a trace.

    Args:
        tracer: the trace.
        gradients: the gradients of real tensors.
        attends: called with the device where fused attention chooses a kernel.
        problems: gets the problem with torch's modes if the program leaves them changed.
    """
    with (
        while_tracing(),
        number_methods(),
        TracingMode(tracer),
        FunctionMode(tracer, gradients, attends),
        texts.values(),
        left_as_they_are(problems),
    ):
        yield


def run_on_symbols(
    fn: Callable[..., Any],
    call: Call,
    tracer: Tracer,
    arguments: SymbolicArguments,
    recorder: Recorder,
    draws: Draws,
    variables: Sequence[Variable],
    around: Surroundings,
    memos: MemoCalls,
) -> tuple[Any, Changes]:
    """Return the result on symbolic arguments, with writes to argument objects, and the changes
    that were undone.
    """
    args, kwargs, values = call.nest(arguments.leaves)
    given, records = Given(args, kwargs), GivenRecords(call, (args, kwargs, values))
    planted, gradients = Planted(variables, values), Gradients(tell, tracer.read_first)
    problems, changes, found = list[Problem](), list[Changes](), list[Any]()
    around.afterwards(
        partial(_closed, tracer, arguments), partial(_abandonable, recorder, planted, changes)
    )
    tracer.env.data = (
        ScalarData(tracer, arguments.floats, arguments.integers)
        if recorder.serves
        else tracer.env.data
    )
    try:
        with (
            draws.watched(tracer.kept),
            ids_of_stand_ins_refused(ChainMap(memos.ids, dict.fromkeys(records.containers))),
            symbols_in_use(tracer, gradients, _attends, problems),
            gradients.accumulating(),
            planted.in_the_world(recorder),
            _undone(recorder, changes, found, tracer),
            recording(recorder),
        ):
            outcome = records.outcome(result := fn(*args, **kwargs), given.containers)
            found += histories(tracer, (outcome, args, kwargs))
    except Exception as error:
        explain(error, tracer.env.presumed)
        raise
    finally:
        problems += _closed(tracer, arguments)
    if recorder.serves and not call.has_records:
        outcome, result = _to_arguments(changes[0], given, outcome, result)
    problems += changes[0].problems + given.changes(result) + changes[0].returned(result)
    problems = problems or fill_or_refuse(changes[0], recorder, tracer)
    changes[0].given = (
        given.containers | records.containers | {id(each) for _, each in containers_in(result)}
    )
    side_effects.refuse(
        problems + records.problems(recorder.known.values()),
        name_of(fn),
        changes[0].to(call.leaves),
    )
    tracer.own.settle(found, changes[0].changes)
    recorder.refuse_transformed(tracer.lifting.lifted.values())
    memos.settle(changes[0], outcome, call.leaves)
    return outcome, changes[0]


def _attends(device: torch.device) -> None:
    """Record the flags by which fused attention chooses a kernel on ``device``; later calls compare
    them.
    """
    tell(Recorder.ask, torch_flags.of_attention(device))


def _abandonable(recorder: Recorder, planted: Planted, changes: Sequence[Changes]) -> None:
    """Undo the writes of a trace and put real values back, unless its context managers did so at
    their ends.
    """
    with_their_own_code(recorder)
    unfinished = not changes  # an interrupt came before the writes were undone, or while they were
    if unfinished:
        side_effects.undo(recorder)
    planted.put_back(again=unfinished)


def _closed(tracer: Tracer, arguments: SymbolicArguments) -> list[Problem]:
    """End the use of symbolic tensors; return the problems with changed gradients."""
    tracer.close()
    lifted = (each.tensor for each in tracer.lifting.lifted.values())
    return side_effects.undo_gradients((*arguments.tensors(), *lifted))


def _to_arguments(changes: Changes, given: Given, outcome: Any, result: Any) -> tuple[Any, Any]:
    """Add the contents of lists and dictionaries among the arguments to the changes.

    Return the outcome and the result without these containers.  A result that creates objects is
    not changed, and containers of the arguments in such a result are refused later.
    """
    changes.changes += given.writes(changes.is_kept)
    found, changes.returned_arguments = given.returned(outcome)
    return found, found if outcome is result else result


@contextmanager
def _undone(
    recorder: Recorder, changes: list[Changes], found: list[Any], tracer: Tracer
) -> Iterator[None]:
    """Undo the block's side effects at its end; append them to ``changes``, and their autograd
    nodes to ``found``.
    """
    try:
        yield
    finally:
        changes.append(side_effects.undo(recorder))
        changes[0].problems[:0] = recorder.refusals
    found += histories(tracer, [each.leaves for each in changes[0].changes])


def trace_once(
    fn: Callable[..., Any],
    call: Call,
    policies: Policies,
    options: Options,
    given_up: GivenUp | None,
    variables: Sequence[Variable],
    serves: bool,
    asks: bool,
) -> Program:
    """Trace ``fn`` once, with the policies of one attempt; see ``capture`` for the arguments."""
    start, refusals = time.perf_counter(), list[BaseException]()
    with tracing_lock:
        recorder = recorder_of(
            fn, call.constants, call.classes, serves=serves, stored=bool(options.store)
        )
        draws = Draws(name_of(fn))
        recorder.on_generator = draws.watch
        tracer = Tracer(ShapeEnv(), recorder.tensors, draws.known)
        tracer.asks, tracer.on_answer = asks, recorder.of_tensor
        arguments = SymbolicArguments(tracer, call, policies, options)
        memos = MemoCalls(tracer, recorder, arguments, Identity(tracer, call.leaves))
        around = Surroundings(
            lambda: given_up and given_up(state_of_trace(recorder, variables)), draws.put_back
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
                torch_functions.refuse_if_replaced()
                if refusals:  # caught by the program, which went another way than it goes in eager
                    raise refusals[0]
                roots = tracer.arguments | {each.value for each in tracer.lifting.lifted.values()}
                outputs, specs, tree = outputs_of(tracer, result, roots)
                if changes.changes and not serves:
                    side_effects.refuse(
                        [Problem(changes.changes[0].text, Reason.STATE)], name_of(fn)
                    )
                written, every = written_by(tracer, changes, result, roots, len(outputs))
                writes, given = writes_of(changes, every, recorder)
                outputs += tuple(written)
                steps = without_unseen(tracer, call, arguments, steps_for(tracer, outputs), outputs)
        except BaseException as error:
            try:
                around.put_back(error)
            finally:  # again: a second interrupt may come where the first one begins
                around.put_back(error)
            _raise_caught_restart(error, refusals)
            raise
    tracer.own.forget()
    state = state_of_trace(recorder, variables)
    graph = Graph(
        tuple(arguments.inputs), tuple(tracer.lifting.lifted.values()), steps, outputs, tree
    )
    guards = guards_of(tracer.env, options)
    slots, modes_then = tuple(arguments.slots), modes()
    run = without_autocast(LateRun(graph, symbol_positions(slots)), modes_then)
    taken = (time.perf_counter() - start) * 1e3
    events.emit(events.Traced(name_of(fn), len(graph.nodes), len(guards), taken))
    new_variables = new_variables_of(recorder, writes, variables)
    questions = {
        **tracer.questions,
        **tracer.env.data.questions(call.leaves),
        **whether_inference(graph, call.leaves, writes or given),
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
        apart=containers_apart(call, tree, writes, given, recorder),
        told_compiling=current().compiling_asked,
    )


def _raise_caught_restart(error: BaseException, refusals: Sequence[BaseException]) -> None:
    """Raise the restart that a program caught before it failed in another way, if there is one."""
    first = refusals[0] if refusals else None
    if isinstance(first, Restart) and first is not error and isinstance(error, Exception | Restart):
        raise first from error
