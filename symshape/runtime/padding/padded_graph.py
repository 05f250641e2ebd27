"""What planning comes to: a program on tensors at their capacities, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch

from guards.terms.term import Term
from meta_fns.padding.axes import Axis
from meta_fns.padding.padded import Padded
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value
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


@attrs.frozen(eq=False)
class PaddedGraph:
    """A program on tensors at their capacities.

    Attributes:
        graph: its inputs are the inputs of the program at their capacities, then the true sizes as 0-d int64 tensors.
        axes: of each input of the program, which of its positions are valid.
        sizes: the true sizes, as formulas, in the order of the inputs that hold them.
        outputs: the tensors that it returns: by the value of the traced graph that one stands for, its place and what
            is known of it.
        region: the sizes that it serves.
        repairs: what was inserted.
        sources: by a tensor that it makes, the node of the traced graph that it is made for.
        written: for each input that the program writes to, its place among the inputs and that of its new elements
            among the tensors that are returned.
        rewrites: the writes, in order, to inputs that it writes in parts: these are written again.
        stored: the parameters and buffers that the program itself writes to, when all else is done.
    """

    graph: Graph
    axes: tuple[tuple[Axis, ...], ...]
    sizes: tuple[Term, ...]
    outputs: Mapping[Value, tuple[int, Padded]]
    region: Region
    repairs: tuple[Repair, ...]
    sources: Mapping[Value, Node]
    written: tuple[tuple[int, int], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    stored: tuple[torch.Tensor, ...] = ()

    @property
    def known_sizes(self) -> dict[Value, Term]:
        """What its inputs that hold true sizes stand for."""
        holders = self.graph.inputs[len(self.axes) :]
        return {each.value: term for each, term in zip(holders, self.sizes, strict=True)}

    @property
    def roots(self) -> list[Value]:
        """Its inputs, parameters, buffers and constants."""
        return [*(each.value for each in self.graph.inputs), *(each.value for each in self.graph.lifted)]
