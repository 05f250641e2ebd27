"""Which values are cut off from the history of the tensor whose memory they share."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from symshape.graph.steps import Node, Value

__all__ = ["detached_values"]

_DETACH = torch.ops.aten.detach.default


def detached_values(nodes: Iterable[Node]) -> frozenset[Value]:
    """The results of ``detach``, and views of them.

    A view that is made without recording gradients still asks for them where its tensor does; these do not.
    """
    found: set[Value] = set()
    for node in nodes:
        for output in node.outputs:
            source = None if output is None else next((r for r in node.reads if r.storage is output.storage), None)
            if output is not None and source is not None and (node.op is _DETACH or source in found):
                found.add(output)
    return frozenset(found)
