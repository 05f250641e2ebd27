"""Small exact rewrites of a graph before it is captured: fewer kernels, the same values up to rounding.

``relu(addmm(bias, x, w))`` becomes ``_addmm_activation``, whose epilogue adds the bias and clamps in the matmul's own
kernel (cuBLASLt; torch falls back to the two ops where that does not apply).  What is put behind
padding is put there in one pass (:mod:`symshape.runtime.runners.appending`).
"""

from __future__ import annotations

from collections import Counter

import attrs
import torch

from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Step, Value, values_in
from symshape.runtime.padding.padded_graph import PaddedGraph
from symshape.runtime.runners.appending import append

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def fuse(graph: Graph) -> Graph:
    """The graph with each ``addmm`` that only feeds a ``relu`` merged into it."""
    uses: Counter[Value] = Counter(values_in(graph.outputs))
    for step in graph.steps:
        if isinstance(step, Node):
            uses.update(step.reads)
    products = {step.outputs[0]: step for step in graph.nodes if _is_plain_addmm(step)}
    merged: dict[int, Node] = {}
    dropped: set[int] = set()
    for step in graph.nodes:
        if step.op is not _aten.relu.default or uses[step.args[0]] != 1:
            continue
        product = products.get(step.args[0])
        if product is not None and (product.grad, product.inference) == (step.grad, step.inference):
            merged[id(step)] = attrs.evolve(step, op=_aten._addmm_activation.default, args=product.args)
            dropped.add(id(product))
    if not merged:
        return graph
    steps: list[Step] = [merged.get(id(step), step) for step in graph.steps if id(step) not in dropped]
    return attrs.evolve(graph, steps=tuple(steps))


def fuse_padded(padded: PaddedGraph) -> Graph:
    """The graph of a padded program with such kernels merged."""
    return fuse(append(padded))


def _is_plain_addmm(node: Node) -> bool:
    if node.op is not _aten.addmm.default or node.kwargs or len(node.args) != 3:
        return False
    bias, left, _ = node.args
    return len(bias.spec.sizes) == 1 and left.spec.dtype in _FLOATS
