"""The result of planning: a program on tensors at their capacities, or a refusal with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from meta_fns.padding.axes import Axis
from meta_fns.padding.padded import Padded
from symshape.forks import cached_property
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Lifted, Node, Step, Value
from symshape.runtime.padding.emission import Repair
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.rewrites import Rewrite

__all__ = ["PaddedGraph", "Refusal"]


@attrs.frozen
class Refusal(Exception):
    """The reason why a graph cannot be padded for a region.

    Attributes:
        op: the overload that refused; empty if no op did.
        where: the user's line.
        reason: the reason.
        remedy: a change that would make it possible; may be empty.
        symbols: the padded symbols concerned.
    """

    op: str
    where: str
    reason: str
    remedy: str
    symbols: frozenset[str]

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.op}: {self.reason} ({self.where}){remedy}"


Late = Callable[[], tuple[tuple[Step, ...], Mapping[Value, Node]]]
"""Makes the steps of a padded program, and its ``sources``."""


@attrs.frozen(eq=False, slots=False)
class PaddedGraph:
    """A program on tensors at their capacities.

    Attributes:
        head: the graph of the program; without steps if ``late`` makes them.
        axes: for each input of the program, which of its positions are valid.
        sizes: the true sizes, as formulas, in the order of the inputs that hold them.
        outputs: the returned tensors: for a value of the traced graph, its index and the padded
            tensor in its place.
        region: the sizes that the program serves.
        repairs: the inserted repairs.
        made_for: ``sources``, if ``late`` does not make them.
        written: for each input that the program writes to, its index, and that of its new elements
            among the returned tensors.
        rewrites: the writes to parts of inputs, in order, which are repeated on the arguments.
        stored: the parameters and buffers that the program itself writes to at its end.
        run: runs the program op by op on its inputs, if that was compiled for all capacities; else
            None.
        formulas: the graph with the capacities as formulas, of which this is an instance; None if
            it is no instance.
        late: makes the steps at their first use; None if they exist.
    """

    head: Graph
    axes: tuple[tuple[Axis, ...], ...]
    sizes: tuple[Term, ...]
    outputs: Mapping[Value, tuple[int, Padded]]
    region: Region
    repairs: tuple[Repair, ...]
    made_for: Mapping[Value, Node]
    written: tuple[tuple[int, int], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    stored: tuple[torch.Tensor, ...] = ()
    run: Callable[[Sequence[Any]], list[Any]] | None = None
    formulas: Graph | None = None
    late: Late | None = None

    @cached_property
    def _whole(self) -> tuple[Graph, Mapping[Value, Node]]:
        if self.late is None:
            return self.head, self.made_for
        steps, sources = self.late()
        return attrs.evolve(self.head, steps=steps), sources

    @property
    def graph(self) -> Graph:
        """The whole graph; its inputs are the program's at their capacities, then true sizes as 0-d
        int64 tensors.
        """
        return self._whole[0]

    @property
    def sources(self) -> Mapping[Value, Node]:
        """The node of the traced graph for which each tensor of the program is made."""
        return self._whole[1]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the graph."""
        return self.head.inputs

    @property
    def lifted(self) -> tuple[Lifted, ...]:
        """The parameters, buffers and constants of the graph."""
        return self.head.lifted

    @property
    def known_sizes(self) -> dict[Value, Term]:
        """The true sizes as formulas, by the inputs that hold them."""
        holders = self.inputs[len(self.axes) :]
        return {each.value: term for each, term in zip(holders, self.sizes, strict=True)}

    @property
    def roots(self) -> list[Value]:
        """The program's inputs, parameters, buffers and constants."""
        return [*(each.value for each in self.inputs), *(each.value for each in self.lifted)]
