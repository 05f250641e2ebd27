"""Values that are detached from the autograd history of the tensor whose memory they share."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value

__all__ = ["detached_in", "detached_values", "viewed_by"]

_DETACH = torch.ops.aten.detach.default


def viewed_by(node: Node, output: Value | None) -> Value | None:
    """Return the argument whose memory a result of a node shares; None for a result with memory of
    its own.
    """
    return (
        None
        if output is None
        else next((each for each in node.reads if each.storage is output.storage), None)
    )


def detached_values(nodes: Iterable[Node]) -> frozenset[Value]:
    """Return the results of ``detach``, and views of them.

    A view that is made without recording gradients still requires them if its tensor does; these
    values do not.
    """
    found: set[Value] = set()
    for node in nodes:
        for output in node.outputs:
            source = viewed_by(node, output)
            if (
                output is not None
                and source is not None
                and (node.op is _DETACH or source in found)
            ):
                found.add(output)
    return frozenset(found)


_known: weakref.WeakKeyDictionary[Graph, frozenset[Value]] = weakref.WeakKeyDictionary()


def detached_in(graph: Graph) -> frozenset[Value]:
    """Return the :func:`detached_values` of a graph, found once."""
    found = _known.get(graph)
    if found is None:
        found = _known[graph] = detached_values(graph.nodes)
    return found
