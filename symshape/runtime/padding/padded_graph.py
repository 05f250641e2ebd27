"""What planning comes to: a program on tensors at their capacities, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import torch

from guards.terms.term import Term
from meta_fns.padding.axes import Axis
from meta_fns.padding.padded import Padded
from symshape.graph.graph import Graph
from symshape.graph.steps import Input, Lifted, Node, Step, Value
from symshape.runtime.padding.emission import Repair
from symshape.runtime.padding.region import Region
from symshape.runtime.padding.rewrites import Rewrite

__all__ = ["PaddedGraph", "Refusal"]


@attrs.frozen
class Refusal(Exception):
    """Why a graph cannot be padded for a region.

    Attributes:
        op: the overload that refused; empty where it was no op.
        where: the user's line.
        reason: why.
        remedy: what would make it possible; may be empty.
        symbols: which of the padded symbols it concerns.
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
        head: the graph of the program; without steps where ``late`` makes these.
        axes: of each input of the program, which of its positions are valid.
        sizes: the true sizes, as formulas, in the order of the inputs that hold them.
        outputs: the tensors that it returns: by the value of the traced graph that one stands for, its place and what
            is known of it.
        region: the sizes that it serves.
        repairs: what was inserted.
        made_for: ``sources``, where ``late`` does not make them.
        written: for each input that the program writes to, its place among the inputs and that of its new elements
            among the tensors that are returned.
        rewrites: the writes, in order, to inputs that it writes in parts: these are written again.
        stored: the parameters and buffers that the program itself writes to, when all else is done.
        run: runs the program op by op on its inputs, where that was compiled already for all capacities; else None.
        formulas: the graph of which this is an instance, with the capacities as formulas; None where it is none.
        late: makes the steps, when they are first asked for; None where they are there.
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
        """Its inputs are those of the program at their capacities, then the true sizes as 0-d int64 tensors."""
        return self._whole[0]

    @property
    def sources(self) -> Mapping[Value, Node]:
        """By a tensor that it makes, the node of the traced graph that it is made for."""
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
        """What its inputs that hold true sizes stand for."""
        holders = self.inputs[len(self.axes) :]
        return {each.value: term for each, term in zip(holders, self.sizes, strict=True)}

    @property
    def roots(self) -> list[Value]:
        """Its inputs, parameters, buffers and constants."""
        return [*(each.value for each in self.inputs), *(each.value for each in self.lifted)]
