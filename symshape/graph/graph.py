"""A traced program as data: its inputs, its lifted tensors, its steps and its results."""

from __future__ import annotations

from typing import Any

import attrs

from symshape.forks import cached_property
from symshape.graph.steps import (
    Input,
    Lifted,
    Node,
    Step,
    Value,
    draws_random_numbers,
    writes_nothing,
    written_values,
)
from symshape.graph.text import text
from symshape.torch_internals.pytree import TreeSpec


@attrs.frozen(eq=False, slots=False)  # for ``cached_property``: every pass asks these again
class Graph:
    """A traced program.

    Attributes:
        inputs: tensor arguments, in order.
        lifted: parameters, buffers and constants.
        steps: nodes and assertions, in the order of execution.
        outputs: leaves of the result (``Value``, ``Term``, ``FloatTerm`` or a constant).
        output_tree: how the leaves nest.
        tied: whether the random states of its attention are used by another graph too, which is
            recorded at the same capacities.
    """

    inputs: tuple[Input, ...]
    lifted: tuple[Lifted, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    output_tree: TreeSpec
    tied: bool = False

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The op calls, in order."""
        return tuple(step for step in self.steps if isinstance(step, Node))

    @property
    def mutates_inputs(self) -> bool:
        """True if an input or a lifted tensor is written to."""
        return bool(self.mutated)

    @cached_property
    def mutated(self) -> tuple[Value, ...]:
        """The inputs and lifted tensors that are written to, directly or through a view."""
        roots = [*(each.value for each in self.inputs), *(each.value for each in self.lifted)]
        written = {
            id(value.storage)
            for node in self.nodes
            if not writes_nothing(node)
            for value in written_values(node)
        }
        return tuple(root for root in roots if id(root.storage) in written)

    @cached_property
    def uses_randomness(self) -> bool:
        """True if a node draws random numbers."""
        return any(draws_random_numbers(node) for node in self.nodes)

    def __str__(self) -> str:
        return text(self)
