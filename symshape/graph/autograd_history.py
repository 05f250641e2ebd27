"""Autograd history of a program: the steps that record gradients, and programs whose recorded
history nobody sees.

A training step runs its backward inside: the graph computes the gradients by ops of its own, and
the history that autograd records beside them is dropped. A step that records nothing costs nothing,
and can be captured and padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import torch

from meta_fns.torch_internals import OpOverload
from symshape.graph.detached_values import viewed_by
from symshape.graph.opaque_calls import LiveCall
from symshape.graph.steps import BATCH_NORM, Node, Step, Value, values_in, written_values
from symshape.torch_internals import dispatch

__all__ = ["RecordedHistory", "without_unseen_history"]

_KEYS: Any = dispatch.DispatchKey
_DETACH = torch.ops.aten.detach.default


class RecordedHistory:
    """The history that autograd may record while steps run.

    Args:
        steps: of the program.
        roots: the arguments, parameters and buffers that ask for gradients.
        grad: whether the call itself records gradients; a step may have a mode of its own.
        inference: whether the call is in inference mode.

    Attributes:
        nodes: the ids of the nodes that may record something.
        known: whether each op is an operator, of which that can be told.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        roots: Iterable[Value],
        *,
        grad: bool = True,
        inference: bool = False,
    ) -> None:
        self._roots, self._grad, self._inference = frozenset(roots), grad, inference
        self._tracked = set(self._roots)
        self._views: dict[
            Value, object
        ] = {}  # what autograd takes a value for a view of; by default its memory
        self._written: set[object] = set()  # what has a history since it was written to
        self.nodes: set[int] = set()
        self.known = True
        for step in steps:
            if isinstance(step, Node):
                self._step(step)

    def _step(self, node: Node) -> None:
        op: Any = node.op
        cuts = op is _DETACH or (isinstance(op, LiveCall) and not op.sees_history)
        self.known = self.known and (cuts or isinstance(op, OpOverload))
        for output in node.outputs:
            source = viewed_by(node, output)
            if output is not None and source is not None:
                self._views[output] = object() if cuts else self._viewed(source)
                # made without recording, too, it asks for gradients
                if not cuts and self._has_history(source):
                    self._tracked.add(output)
        grad = self._grad if node.grad is None else node.grad
        inference = self._inference if node.inference is None else node.inference
        records = grad and not inference and any(map(self._has_history, node.reads))
        if not records or cuts:
            return
        self.nodes.add(id(node))
        for output in node.outputs:
            if output is not None and (
                output.spec.dtype.is_floating_point or output.spec.dtype.is_complex
            ):
                self._tracked.add(output)
        if op._schema.name not in BATCH_NORM:  # running statistics have none
            self._written.update(map(self._viewed, written_values(node)))

    def _viewed(self, value: Value) -> object:
        return self._views.get(value, value.storage)

    def _has_history(self, value: Value) -> bool:
        return value in self._tracked or self._viewed(value) in self._written

    @property
    def silent(self) -> bool:
        """True if certainly nothing is recorded."""
        return self.known and not self.nodes

    def seen(self, outputs: Iterable[Any], changed: Iterable[Value]) -> bool:
        """Return whether a result, or the final value of an argument or a parameter, may have a
        history.
        """
        results = (value for value in values_in(tuple(outputs)) if value not in self._roots)
        return any(map(self._has_history, results)) or any(
            self._viewed(value) in self._written for value in changed
        )


def without_unseen_history(
    steps: tuple[Step, ...],
    roots: Sequence[Value],
    asking: Iterable[Value],
    outputs: Iterable[Any],
    *,
    grad: bool,
    inference: bool,
) -> tuple[Step, ...]:
    """Return the steps of a program; they record nothing if nobody can see the history.

    Args:
        steps: of the program.
        roots: arguments, parameters and buffers.
        asking: those that ask for gradients.
        outputs: its results.
        grad: whether the call itself records gradients.
        inference: whether the call is in inference mode.
    """
    found = RecordedHistory(steps, asking, grad=grad, inference=inference)
    if not found.nodes or not found.known or found.seen(outputs, roots):
        return steps
    if any(
        isinstance(step, Node) and id(step) in found.nodes and _may_choose(step.op)
        for step in steps
    ):
        return steps
    return tuple(
        [
            _silent(step) if isinstance(step, Node) and id(step) in found.nodes else step
            for step in steps
        ]
    )


def _may_choose(op: OpOverload) -> bool:
    """Return whether an op is decomposed by torch, perhaps into other ops where gradients are
    recorded.
    """
    has = op.has_kernel_for_dispatch_key
    return has(_KEYS.CompositeImplicitAutograd) and not (has(_KEYS.CPU) or has(_KEYS.CUDA))


def _silent(node: Node) -> Node:
    return attrs.evolve(node, grad=False)
