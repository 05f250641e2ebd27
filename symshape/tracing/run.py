"""One run of a function on symbolic arguments: what is set up around it, and what it changed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from symshape.calls.arguments import Call
from symshape.calls.variables import Variable, containers_in
from symshape.errors import Problem
from symshape.tracing.autograd.histories import histories
from symshape.tracing.data.scalar_reads import ScalarData
from symshape.tracing.global_state import Surroundings
from symshape.tracing.intercept.python_numbers.builtins import ids_of_stand_ins_refused
from symshape.tracing.intercept.python_numbers.methods import number_methods
from symshape.tracing.intercept.torch_functions.function_mode import FunctionMode
from symshape.tracing.intercept.torch_functions.random_state import Draws
from symshape.tracing.memos.calls import MemoCalls
from symshape.tracing.memos.filling import fill_or_refuse
from symshape.tracing.mode import TracingMode
from symshape.tracing.record_writes import GivenRecords
from symshape.tracing.state.instrument.hooks import recording, tell, with_their_own_code
from symshape.tracing.state.instrument.placeholders import Planted
from symshape.tracing.state.record import torch_flags
from symshape.tracing.state.record.container_arguments import Given
from symshape.tracing.state.record.recorder import Recorder
from symshape.tracing.state.undo import side_effects
from symshape.tracing.state.undo.grad_fields import Gradients
from symshape.tracing.state.undo.writes import Changes
from symshape.tracing.symbolic.nodes import texts
from symshape.tracing.symbolic_arguments import SymbolicArguments
from symshape.tracing.trace_errors import explain
from symshape.tracing.traced_modes import left_as_they_are, while_tracing
from symshape.tracing.tracer import Tracer
from symshape.user_code import name_of


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
        # backward in this thread, also for CUDA's tensors
        with (
            draws.watched(tracer.kept),
            while_tracing(),
            ids_of_stand_ins_refused(ChainMap(memos.ids, dict.fromkeys(records.containers))),
            number_methods(),
            torch.autograd.set_multithreading_enabled(False),
            TracingMode(tracer),
            FunctionMode(tracer, gradients, _attends),
            gradients.accumulating(),
            texts.values(),
            left_as_they_are(problems),
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
