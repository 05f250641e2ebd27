"""The audit's rules of matrix products."""

from __future__ import annotations

from collections.abc import Mapping

from symshape.auditing.broadcasting import broadcast
from symshape.auditing.domain import Abstract, Cause
from symshape.auditing.mixing import contraction
from symshape.auditing.op_calls import target_of
from symshape.auditing.pointwise import combine
from symshape.auditing.world import World
from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = ["MATRICES"]

States = Mapping[Value, Abstract]


def _cause(world: World) -> Cause:
    return world.causes(
        "a matrix product sums over padding",
        "multiply one factor by the mask (and keep padding finite: 0 * NaN is NaN)",
    )


def _product(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``mm``, ``bmm``, ``mv``, ``dot`` or ``matmul``."""
    a, b = node.reads[:2]
    return [_multiplied(world, node, states[a], states[b], a, b)]


def _multiplied(world: World, node: Node, x: Abstract, y: Abstract, a: Value, b: Value) -> Abstract:
    output = target_of(node)
    sizes = list(output.spec.sizes)
    vector_a, vector_b = len(x.dims) == 1, len(y.dims) == 1
    if vector_a:
        x, sizes = (
            x.with_(dims=((), *x.dims)),
            [*sizes, 1] if vector_b else [*sizes[:-1], 1, sizes[-1]],
        )
    if vector_b:
        y, sizes = y.with_(dims=(*y.dims, ())), [*sizes, 1]
    made = contraction(world, x, y, sizes, a.spec.sizes[-1], output.spec.dtype, _cause(world))
    dims = made.dims[:-1] if vector_b else made.dims
    if vector_a:
        dims = (*dims[:-2], dims[-1]) if not vector_b else dims[:-1]
    return made.with_(dims=dims)


def _linear(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``linear(input, weight, bias)``."""
    given = arguments_by_name(node)
    x, weight = given["input"], states[given["weight"]]
    output = target_of(node)
    turned = weight.with_(dims=(*weight.dims[:-2], weight.dims[-1], weight.dims[-2]))
    sizes, dtype = output.spec.sizes, output.spec.dtype
    made = contraction(world, states[x], turned, sizes, x.spec.sizes[-1], dtype, _cause(world))
    bias = given.get("bias")
    return [_added(world, node, states[bias], made, output) if isinstance(bias, Value) else made]


def _added(world: World, node: Node, bias: Abstract, made: Abstract, output: Value) -> Abstract:
    dims, operands = broadcast(world, [bias, made], output.spec.sizes)
    plain = all(node.kwargs.get(each, 1) == 1 for each in ("alpha", "beta"))
    return combine(world, "add" if plain else "scaled_add", dims, operands, None, output.spec.dtype)


def _added_product(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of ``addmm``, ``baddbmm`` or ``addmv``: a tensor plus a product."""
    bias, a, b = node.reads[:3]
    output = target_of(node)
    made = _multiplied(world, node, states[a], states[b], a, b)
    return [_added(world, node, states[bias], made, output)]


MATRICES = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "matmul"), _product),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _added_product),
    "linear": _linear,
}
"""The rules by the name of the op."""
