"""Recovery from programs that fail in a call: the function runs eagerly instead.

The eager run may catch the error, or write before it fails, so the call has its own result or
error, and its effects. That is right only if the failed run has changed nothing, which is known
from the step that failed. Generators that the run drew from are reset, and tensors written in place
are restored where they were copied.
"""

from __future__ import annotations

import dis
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from symshape import events
from symshape.calls.generator_states import state_of
from symshape.errors import RuntimeAssertionError, SymShapeError
from symshape.forks import cached_property
from symshape.graph.codegen import Run
from symshape.graph.dead_code import may_refuse_data
from symshape.graph.program import Program
from symshape.graph.steps import Node, drawn_from, draws_random_numbers, written_values
from symshape.interrupts import pass_on
from symshape.torch_internals import autograd
from symshape.tracing.intercept.python_warnings import is_warning
from symshape.tracing.state.compare.state import State
from symshape.tracing.traced_modes import lines_alone
from symshape.user_code import defined_at, is_library, name_of

_UNDONE = "__symshape_undone__"  # an attribute of errors


def _is_of_hooks(error: Exception) -> bool:
    """Return whether the error was raised by saved-tensor hooks that were active around the call.

    A checkpoint ends its recomputation with such an error once everything saved was seen; it is not
    a failure.
    """
    hooks: Any = autograd.saving._top_saved_tensors_default_hooks(True)
    pack = None if hooks is None else hooks[0]
    code = getattr(getattr(pack, "__func__", pack), "__code__", None)
    return code is not None and any(
        frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__)
    )


class Failing:
    """The handler of failed runs of one program.

    Args:
        program: the program that runs.
        fn: the function that it was traced from.
        on_vain: called when an assertion of the program failed though the eager run then returned a
            result.

    Attributes:
        in_vain: how many calls failed an assertion though the eager run returned a result.
    """

    def __init__(
        self,
        program: Program,
        fn: Callable[..., Any],
        on_vain: Callable[[Failing], None] = lambda failing: None,
    ) -> None:
        graph = program.graph  # not kept: its tensors may be exchanged for others
        self._fn, self._steps = fn, graph.steps
        self._on_vain, self.in_vain = on_vain, 0
        self._lines = lines_alone(program.run)
        roots = (
            *(each.value for each in graph.inputs),
            *(each.value for each in graph.lifted if not each.constant),
        )
        self._memory = {id(root.storage) for root in roots}
        self._written = WrittenBefore(program, fn)
        steps = graph.steps
        draws = [
            number
            for number, step in enumerate(steps)
            if isinstance(step, Node) and draws_random_numbers(step)
        ]
        self._draws = draws[0] if draws else None
        self._generators: tuple[torch.Generator, ...] = ()
        if draws and any(map(may_refuse_data, steps[draws[0] :])):
            drawn = [drawn_from(steps[number]) for number in draws]
            known = {id(each): each for each in drawn if each is not None}
            self._generators = () if None in drawn else tuple(known.values())

    def __call__(self, run: Run, lifted: Sequence[torch.Tensor]) -> Run:
        """Return ``run``, wrapped so that a failed run resets generators and restores tensors where
        possible.
        """
        if not self._generators and not self._written:
            return run

        def guarded(leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
            states = [state_of(each) for each in self._generators]
            copies = self._written.copies(leaves, lifted)
            try:
                return run(leaves, values)
            except Exception as error:
                if _is_of_hooks(error):
                    raise
                if copies and self._is_drawn_again(error) and put_back(copies):
                    error.__dict__[_UNDONE] = True
                if self._as_if_not_begun(error) and self._has_drawn(error):
                    for generator, state in zip(self._generators, states, strict=True):
                        generator.set_state(state)
                raise

        return guarded

    def instead(self, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the function eagerly after the program's run failed, and return its result.

        Raise the error instead if the failed run had effects that cannot be undone.  Raise it also
        if it comes from a signal handler or from a hook around the call.
        """
        pass_on(error)
        if _is_of_hooks(error):
            raise error
        asserted = isinstance(error, RuntimeAssertionError)
        if (isinstance(error, SymShapeError) and not asserted) or not self._as_if_not_begun(error):
            raise error
        try:
            result = self._fn(*args, **kwargs)
        except Exception as own:
            if asserted and isinstance(error, type(own)):
                if str(own) in str(error) and not own.__dict__:  # the same error with a longer text
                    raise error from own
                own.add_note(str(error))  # the program's words, and attributes that it may look at
            raise
        if is_warning(error, of_c=True):  # C++ warns of many things once in a process
            raise error
        if asserted:
            self.in_vain += 1
            self._on_vain(self)
        if events.anybody():
            reason = (
                f"{type(error).__name__} while its compiled graph ran, but not when the "
                f"function ran eagerly: {error}"
            )
            events.emit(events.RanEagerly(name_of(self._fn), reason, defined_at(self._fn)))
        return result

    def refused_data(self, error: Exception | None) -> bool:
        """Return whether an op raised this error because of its tensors' values: the function
        itself may catch it.
        """
        failed = (
            None if error is None or isinstance(error, SymShapeError) else self._lines.failed(error)
        )
        return failed is not None and may_refuse_data(self._steps[failed])

    def _as_if_not_begun(self, error: Exception) -> bool:
        """Return whether the failed run had no effects, except draws from generators that are
        reset.
        """
        if not self._is_drawn_again(error):
            return False
        if _UNDONE in error.__dict__:
            return True
        writes = self._writes
        if writes is None:
            return True
        failed = self._lines.failed(error)
        return failed is not None and failed < writes

    def _is_drawn_again(self, error: Exception) -> bool:
        """Return whether an eager run would draw what the failed run drew, once generators are
        reset.
        """
        return self._draws is None or bool(self._generators) or not self._has_drawn(error)

    def _has_drawn(self, error: Exception) -> bool:
        failed = self._lines.failed(error)
        return self._draws is not None and (failed is None or failed >= self._draws)

    @cached_property
    def _writes(self) -> int | None:
        """The number of the first step that writes to memory of an input or a lifted tensor; None
        if there is none.
        """
        for number, step in enumerate(self._steps):
            if isinstance(step, Node) and any(
                id(value.storage) in self._memory for value in written_values(step)
            ):
                return number
        return None


# -- Tensors that a program writes to in place before it may fail: copied before a run, restored
# after a failed one.
#
# Copies are made only if somebody could notice: if the program also writes outside, or may catch
# the error. Then the function runs eagerly after a failure, and needs its original arguments. A
# copy is made at each call, so only of small tensors on the CPU, where ops look at their data as
# they run.
_MOST = 1 << 20  # bytes copied in a call
Copies = list[tuple[torch.Tensor, torch.Tensor]]
"""Pairs of a tensor and a copy of its former values."""


class WrittenBefore:
    """The tensors that a program writes to before its last step that may fail.

    Args:
        program: the program.
        fn: the function that it was traced from.
    """

    def __init__(self, program: Program, fn: Callable[..., Any]) -> None:
        graph, written, may_fail = program.graph, set[int](), False
        for step in reversed(graph.steps):
            may_fail = may_fail or may_refuse_data(step)
            if may_fail and isinstance(step, Node):
                written.update(id(value.storage) for value in written_values(step))
        inputs = [each.position for each in graph.inputs if id(each.value.storage) in written]
        kept = enumerate(graph.lifted)
        lifted = [i for i, each in kept if not each.constant and id(each.value.storage) in written]
        self._told = bool(inputs or lifted) and (
            program.writes_at_its_end or _may_catch(program, fn)
        )
        self._inputs, self._lifted = inputs, lifted

    def __bool__(self) -> bool:
        return self._told

    def copies(self, leaves: Sequence[Any], lifted: Sequence[torch.Tensor]) -> Copies:
        """Return copies of the tensors before a run; none if one of them cannot be restored, or
        they are too large.
        """
        if not self._told:
            return []
        tensors = [*(leaves[i] for i in self._inputs), *(lifted[i] for i in self._lifted)]
        grad = torch.is_grad_enabled()
        for each in tensors:
            if not each.is_cpu or each.is_inference() or (grad and each.requires_grad):
                return []
        if sum(each.nbytes for each in tensors) > _MOST:
            return []
        return [(each, each.data.clone()) for each in tensors]


def put_back(copies: Copies) -> bool:
    """Restore the tensors' values, and return True; do nothing and return False if a shape or dtype
    has changed.
    """
    if any(each.shape != copy.shape or each.dtype != copy.dtype for each, copy in copies):
        return False
    for each, copy in copies:
        each.data.copy_(copy)
    return True


def _may_catch(program: Program, fn: Callable[..., Any]) -> bool:
    """Return whether user code in this program has a ``try`` or a ``with``, so that it may act on
    an error.
    """
    state = program.state
    begun = [each() for each in state.begun] if isinstance(state, State) else []
    inner = fn.forward if isinstance(fn, torch.nn.Module) else fn
    codes = [
        getattr(each, "__code__", None)
        for each in (inner, getattr(inner, "__func__", None), *begun)
    ]
    return any(_handles(each) for code in codes if code is not None for each in _with_inner(code))


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _with_inner(each)


def _handles(code: types.CodeType) -> bool:
    """Return whether a function's own code, outside libraries, has a ``try`` or a ``with``."""
    return not is_library(code.co_filename) and any(
        each.opname == "PUSH_EXC_INFO" for each in dis.get_instructions(code)
    )
