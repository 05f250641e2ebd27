"""Tensors that a program writes to in place before it may fail: copied before a run, restored after
a failed one.

Copies are made only if somebody could notice: if the program also writes outside, or may catch the
error.  Then the function runs eagerly after a failure, and needs its original arguments.  A copy is
made at each call, so only of small tensors on the CPU, where ops look at their data as they run.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from symshape.graph.dead_code import may_refuse_data
from symshape.graph.program import Program
from symshape.graph.steps import Node, written_values
from symshape.tracing.state.compare.state import State
from symshape.user_code import is_library

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
        graph = program.graph
        last = max((i for i, step in enumerate(graph.steps) if may_refuse_data(step)), default=-1)
        nodes = [step for step in graph.steps[: last + 1] if isinstance(step, Node)]
        written = {id(value.storage) for node in nodes for value in written_values(node)}
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
