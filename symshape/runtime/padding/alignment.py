"""Products with weights of sizes that are slow on tensor cores, computed at the next multiple and
cut.

On CUDA, half-precision matrix products have only slow kernels if a row is not a whole number of 16
bytes: a vocabulary of 50,257 words, a hidden size of 1,365.  In a padded program such weights and
their factors are extended with zeros to the next multiple.  That is done at each replay, so that
weights may change, and pays if there are enough rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs
import torch

from meta_fns import TensorSpec
from meta_fns.core.layout import contiguous_strides
from meta_fns.padding.axes import is_padded
from meta_fns.torch_internals import OpOverload
from symshape.graph.steps import Node, Step, Value
from symshape.runtime.padding.padded_graph import PaddedGraph

__all__ = ["align", "aligned", "worth_aligning"]

_aten = torch.ops.aten
_DEVICES = frozenset({"cuda"})
_MULTIPLES = {torch.float16: 8, torch.bfloat16: 8}
"""The number of elements, by dtype, of which a row must be a multiple: 16 bytes."""
# with fewer rows a product is bound by reading its weights: a copy of them takes as long
_ROWS = 256
_LEAST = 128  # elements of a dimension: products with smaller weights take little time anyway


@attrs.frozen
class _Product:
    """A product of ``left`` (rows, k) and a weight (k, n), or a transposed weight (n, k).

    Attributes:
        node: the op.
        bias: the summand of size n, or None.
        weight: a parameter, or an argument whose sizes are the same in all calls.
        turned: whether the weight is transposed.
        more: the zeros to add to k and to n.
    """

    node: Node
    bias: Value | None
    left: Value
    weight: Value
    turned: bool
    more: tuple[int, int]

    @property
    def rows(self) -> int:
        """The number of rows at the capacities."""
        found: int = self.left.spec.sizes[0]
        return found


def worth_aligning(padded: PaddedGraph) -> frozenset[int]:
    """Return the numbers of the products of a padded program that are faster at aligned sizes."""
    return frozenset(number for number, each in enumerate(_products(padded)) if each.rows >= _ROWS)


def aligned(padded: PaddedGraph) -> PaddedGraph:
    """Return the padded program with all products aligned that are faster aligned."""
    return align(padded, worth_aligning(padded))


def align(padded: PaddedGraph, chosen: Collection[int]) -> PaddedGraph:
    """Return the padded program with these products, by number, at aligned sizes."""
    if not chosen:
        return padded
    graph = padded.graph
    made = [output.index for node in graph.nodes for output in node.outputs if output is not None]
    numbers = _Numbers(max((*made, *(each.index for each in padded.roots))) + 1)
    products = {
        id(each.node): each for number, each in enumerate(_products(padded)) if number in chosen
    }
    weights: dict[tuple[Value, tuple[int, ...]], Value] = {}
    steps: list[Step] = []
    for step in graph.steps:
        product = products.get(id(step))
        steps += [step] if product is None else _at_multiples(product, numbers, weights)
    head = attrs.evolve(graph, steps=tuple(steps))
    return attrs.evolve(
        padded, head=head, made_for=padded.sources, run=None, formulas=None, late=None
    )


def _products(padded: PaddedGraph) -> list[_Product]:
    """Return the half-precision products of rows and weights whose sizes are not aligned, in
    order.
    """
    fixed = {each.value for each in padded.graph.lifted}
    fixed |= {
        each.value
        for each, axes in zip(padded.graph.inputs, padded.axes, strict=False)
        if not any(map(is_padded, axes))
    }
    makers: dict[Value, Node] = {}
    found = []
    for node in padded.graph.nodes:
        if node.single and node.outputs[0] is not None:
            makers[node.outputs[0]] = node
        product = _product(node, makers, fixed)
        if product is not None:
            found.append(product)
    return found


def _product(node: Node, makers: Mapping[Value, Node], fixed: Collection[Value]) -> _Product | None:
    if node.op not in (_aten.mm.default, _aten.addmm.default) or node.kwargs:
        return None
    *bias, left, right = node.args
    if any(each.spec.sizes != right.spec.sizes[1:] for each in bias):
        return None
    multiple = _MULTIPLES.get(left.spec.dtype)
    if multiple is None or left.spec.device.type not in _DEVICES:
        return None
    weight, turned = right, False
    maker = makers.get(right)
    if maker is not None and _turns(maker):
        weight, turned = maker.args[0], True
    more = tuple(-size % multiple for size in right.spec.sizes)
    if weight not in fixed or not any(more) or min(right.spec.sizes) < _LEAST:
        return None
    return _Product(node, bias[0] if bias else None, left, weight, turned, more)


def _turns(node: Node) -> bool:
    """Return whether a node transposes a matrix."""
    if node.op is _aten.permute.default:
        return list(node.args[1]) == [1, 0]
    return node.op is _aten.t.default


class _Numbers:
    """A maker of tensors with unused numbers."""

    def __init__(self, first: int) -> None:
        self._next = first

    def like(
        self, value: Value, sizes: tuple[int, ...], strides: tuple[int, ...] | None = None
    ) -> Value:
        """Return a new tensor of these sizes with the dtype and device of ``value``."""
        strides = contiguous_strides(sizes) if strides is None else strides
        spec = TensorSpec(sizes, strides, 0, value.spec.dtype, value.spec.device)
        self._next += 1
        return Value(self._next - 1, spec, object())


def _at_multiples(
    product: _Product, numbers: _Numbers, weights: dict[tuple[Value, tuple[int, ...]], Value]
) -> list[Step]:
    """Return the steps of a product with zeros added; a weight that several products read is
    extended once.
    """
    steps: list[Step] = []

    def call(op: OpOverload, made: Value, *args: Any, **kwargs: Any) -> Value:
        steps.append(Node(op, args, kwargs, (made,), True, location=product.node.location))
        return made

    def extended(value: Value, *more: int) -> Value:
        """Return ``value`` with zeros after each dimension."""
        if not any(more):
            return value
        sizes = tuple(size + extra for size, extra in zip(value.spec.sizes, more, strict=True))
        zeros = [number for extra in reversed(more) for number in (0, extra)]
        return call(_aten.constant_pad_nd.default, numbers.like(value, sizes), value, zeros, 0.0)

    k, n = product.more
    around = (n, k) if product.turned else (k, n)
    weight = weights.get((product.weight, around))
    if weight is None:
        weight = weights[product.weight, around] = extended(product.weight, *around)
    if product.turned:
        first, second = weight.spec.sizes
        turned = numbers.like(weight, (second, first), (1, second))
        weight = call(_aten.permute.default, turned, weight, [1, 0])
    given = [] if product.bias is None else [extended(product.bias, n)]
    given += [extended(product.left, 0, k), weight]
    (result,) = product.node.outputs
    assert result is not None
    if not n:
        return [*steps, attrs.evolve(product.node, args=tuple(given))]
    rows, columns = result.spec.sizes
    whole = numbers.like(result, (rows, columns + n))
    steps.append(attrs.evolve(product.node, args=tuple(given), outputs=(whole,)))
    cut = numbers.like(result, (rows, columns), (columns + n, 1))
    call(_aten.slice.Tensor, cut, whole, 1, 0, columns)
    call(_aten.clone.default, result, cut, memory_format=torch.contiguous_format)
    return steps
