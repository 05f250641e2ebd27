"""An estimate of a graph's work at given sizes: a number that grows with the sizes like a device's
time.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from guards.terms import printing
from guards.terms.generated import generated_function
from guards.terms.term import Term
from meta_fns.core.registry import aliasing
from symshape.forks import cached_property
from symshape.graph.graph import Graph
from symshape.graph.steps import Node, Value, values_in, writes_nothing
from symshape.runtime.policy.estimates import Estimates

__all__ = ["Work", "estimates_of"]

_REMEMBERED = 4096  # tuples of sizes
_LAUNCH, _BYTE = 2e-3, 1e-9
"""The ms for each kernel of a replay, and for each byte moved (1 TB/s): guesses until a replay was
measured.
"""
_MADE = 0.1
"""The ms to make a bucket for each op of its program, until one was made.

Measured (H200): GPT-2's step of 881 ops 148 to 250 ms the first time, 31 to 65 later.  What the
first bucket takes more is shared by all that follow, so it is not the price of any one.
"""


def estimates_of(graph: Graph) -> Estimates:
    """Return first guesses of the times that calls of a program and making its buckets take."""
    count = len(graph.nodes)
    return Estimates(floor=_LAUNCH * count, rate=_BYTE, price=_MADE * count)


_PER_FLOP = {torch.float16: 0.003, torch.bfloat16: 0.003, torch.float32: 0.04, torch.float64: 0.04}
"""The bytes that take a device as long as one operation of a matrix product (1 TB/s; 330 and 25
TFLOP/s): guesses.
"""
_TF32 = 0.006
"""The same bytes for float32 with TF32."""


class Work:
    """The work of a graph at given sizes: the bytes that its ops read and write, each operand once,
    and its products.

    Operations of matrix products, convolutions and attention count as bytes that take as long.
    Tensors of the same sizes are one product in a formula, so that a graph of a thousand ops is
    evaluated quickly.

    Args:
        graph: the graph.
        names: its symbols, in the order in which sizes are given.
    """

    def __init__(self, graph: Graph, names: tuple[str, ...]) -> None:
        self._graph, self._names = graph, names
        self._known: OrderedDict[tuple[int, ...], float] = OrderedDict()

    @cached_property
    def _formula(self) -> Callable[[tuple[int, ...]], float]:
        tensors: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        for node in self._graph.nodes:
            if _moves_nothing(node):
                continue
            for value in (
                *values_in(node.args),
                *values_in(node.kwargs),
                *(each for each in node.outputs if each),
            ):
                spec = getattr(value, "spec", None)
                if spec is not None and all(_known(size, self._names) for size in spec.sizes):
                    tensors[tuple(spec.sizes)] += spec.dtype.itemsize
            sizes, flops = _products(node)
            if flops and all(_known(size, self._names) for size in sizes):
                tensors[sizes] += flops
        named = {name: f"v{place}" for place, name in enumerate(self._names)}
        products = [
            " * ".join([str(count), *(_text(size, named) for size in sizes)])
            for sizes, count in tensors.items()
        ]
        given = (
            f"    ({''.join(f'{each}, ' for each in named.values())}) = sizes"
            if named
            else "    pass"
        )
        source = "\n".join(
            ["def work(sizes):", given, f"    return {' + '.join(products) or 0}", ""]
        )
        made: Callable[[tuple[int, ...]], float] = generated_function(
            source, "work", "symshape work", {}
        )
        return made

    def __call__(self, sizes: tuple[int, ...]) -> float:
        """Return the bytes at these sizes; at least 1."""
        found = self._known.get(sizes)
        if found is None:
            try:
                found = max(1.0, float(self._formula(sizes)))
            except ZeroDivisionError:
                found = 1.0
            if len(self._known) >= _REMEMBERED:
                self._known.popitem(last=False)
            self._known[sizes] = found
        return found


_PLAIN_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""The matrix-product ops, each with the index of its first factor."""


def _products(node: Node) -> tuple[tuple[Any, ...], float]:
    """Return sizes, and the bytes for each element of their product, for an op that multiplies
    matrices.

    An op whose tensors are not in the usual argument positions counts as none.
    """
    name = node.op._schema.name
    specs = [
        value.spec.sizes
        for value in node.args
        if isinstance(value, Value) and hasattr(value.spec, "sizes")
    ]
    first = _PLAIN_PRODUCTS.get(name)
    backward = name.endswith("_backward")
    if first is not None and len(specs) >= first + 2 and specs[first + 1]:
        return (*specs[first], specs[first + 1][-1]), 2 * _per_flop(node)
    if (
        "scaled_dot_product" in name
        and len(specs) >= backward + 2
        and len(specs[backward + 1]) >= 2
    ):
        return (*specs[backward], specs[backward + 1][-2]), (10 if backward else 4) * _per_flop(
            node
        )
    if name in ("aten::convolution", "aten::convolution_backward") and len(specs) >= 2 + backward:
        made = (
            specs[0] if backward else getattr(getattr(node.outputs[0], "spec", None), "sizes", ())
        )
        return (*made, *specs[1 + backward][1:]), (4 if backward else 2) * _per_flop(node)
    return (), 0.0


def _per_flop(node: Node) -> float:
    dtype = next(
        value.spec.dtype
        for value in node.args
        if isinstance(value, Value) and hasattr(value.spec, "dtype")
    )
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return _TF32
    return _PER_FLOP.get(dtype, 0.0)


def _moves_nothing(node: Node) -> bool:
    """Return whether an op only returns another view of its argument."""
    return not aliasing(node.op).is_functional and writes_nothing(node)


def _known(size: Any, names: tuple[str, ...]) -> bool:
    """Return whether a size is a number or a formula of these symbols; other sizes are known only
    in a run.
    """
    if isinstance(size, int):
        return True
    return all(each.name in names for each in _term(size).symbols)


def _text(size: Any, names: Mapping[str, str]) -> str:
    return str(size) if isinstance(size, int) else f"({printing.python(_term(size), names)})"


def _term(size: Any) -> Term:
    found: Term = size if isinstance(size, Term) else size.term
    return found
