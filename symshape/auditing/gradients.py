"""The audit's rules of backward ops: padded positions with a zero gradient contribute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symshape.auditing.domain import (
    ANYTHING,
    EVERYWHERE,
    FINITE,
    LOW,
    Abstract,
    Coordinate,
    Slot,
    assumptions_of,
    cause_of,
    everywhere_if,
)
from symshape.auditing.mixing import attention, contraction, mixed, reduced, with_late_positions
from symshape.auditing.pointwise import combine
from symshape.auditing.world import (
    States,
    World,
    aligned,
    broadcast,
    name_of_op,
    referenced,
    rules_of,
    target_of,
)
from symshape.graph.steps import Node, Value, arguments_by_name

_REASON = "a gradient sums over padding"
_REPAIR = "give padding a loss of 0: ignore_index, or multiply the losses by the mask"


def _nll_loss(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradient of ``nll_loss``: 0 at ignored targets; the scores themselves are not
    read.
    """
    given = arguments_by_name(node)
    scores, target, grad = (states[given[name]] for name in ("self", "target", "grad_output"))
    classes = 1 if len(scores.dims) > 1 else 0
    rows = (*scores.dims[:classes], *scores.dims[classes + 1 :])
    moved = aligned(target, rows, scores.dims)
    ignored = float(given.get("ignore_index", -100))
    facts = {region: 0.0 for region, fact in moved.facts.items() if fact == ignored}
    dirty = set(moved.dirty)
    read = [given["self"], given["target"]]
    if given.get("reduction", 1) == 0:  # a gradient for each position
        each_row = aligned(grad, rows, scores.dims)
        facts |= {region: 0.0 for region, fact in each_row.facts.items() if fact == 0}
        dirty |= each_row.dirty
        read.append(given["grad_output"])
    others = [states[each] for each in node.reads if each not in read]
    if any(each.dirty for each in others):
        dirty.add(EVERYWHERE)
    operands = (target, grad, *others)
    cause, assumes = cause_of(operands), assumptions_of(operands)
    level = max(FINITE, grad.worst)
    made = Abstract(scores.dims, frozenset(dirty), facts, level=level, cause=cause, assumes=assumes)
    return [world.settled(made, world.causes(_REASON, _REPAIR))]


def _times(world: World, node: Node, *operands: Abstract) -> Abstract:
    return combine(world, "mul", operands[0].dims, list(operands), None, target_of(node).spec.dtype)


def _less(world: World, node: Node, a: Abstract, b: Abstract) -> Abstract:
    return combine(world, "sub", a.dims, [a, b], None, target_of(node).spec.dtype)


def _summed(world: World, x: Abstract, dim: int) -> Abstract:
    """Return the sum along a dimension, expanded to the old size."""
    made = reduced(world, "sum", x, [dim], True, world.causes(_REASON, _REPAIR))
    return made.with_(dims=x.dims)


def _softmax(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradient of ``softmax`` or ``log_softmax``."""
    given = arguments_by_name(node)
    sizes = target_of(node).spec.sizes
    _, (grad, output) = broadcast(
        world, [states[given["grad_output"]], states[given["output"]]], sizes
    )
    dim = given["dim"] % len(sizes)
    if "log" in name_of_op(node):
        weights = output.with_(
            facts={}, rest=None, level=FINITE if output.worst <= LOW else ANYTHING
        )
        return [_less(world, node, grad, _times(world, node, weights, _summed(world, grad, dim)))]
    inner = _summed(world, _times(world, node, grad, output), dim)
    return [_times(world, node, output, _less(world, node, grad, inner))]


def _layer_norm(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradients of a layer norm: of its input, its weight and its bias."""
    given = arguments_by_name(node)
    count = len(given["normalized_shape"])
    sizes = given["input"].spec.sizes
    inputs = [states[given[name]] for name in ("grad_out", "input", "mean", "rstd")]
    _, (grad, x, mean, rstd) = broadcast(world, inputs, sizes)
    last = range(len(sizes) - count, len(sizes))
    why = world.causes(_REASON, _REPAIR)
    parameters = [
        states[given[name]] for name in ("weight", "bias") if isinstance(given[name], Value)
    ]
    if any(each.dirty for each in parameters):
        raise ValueError("a weight depends on padding")
    wide = mixed(world, x, last, why)
    wide = world.settled(
        wide.with_(dirty=wide.dirty | mean.dirty | rstd.dirty), mean.cause or rstd.cause or why
    )
    wide = wide.with_(
        level=max([wide.level, mean.worst, rstd.worst, *(each.worst for each in parameters)])
    )
    slots = grad.slots(last)
    kept = {
        region: fact
        for region, fact in grad.facts.items()
        if not region.slots & slots and fact == 0
    }
    flat = world.settled(mixed(world, grad, last, why).with_(facts=kept))
    first = _times(world, node, flat, wide)
    leading = range(len(sizes) - count)
    weight = reduced(world, "sum", _times(world, node, grad, wide), leading, False, why)
    bias = reduced(world, "sum", grad, leading, False, why)
    asked = zip((first, weight, bias), given["output_mask"], strict=True)
    return [each for each, wanted in asked if wanted]


def _embedding(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradient of an embedding table: rows of the gradient, added at their indices."""
    given = arguments_by_name(node)
    if given.get("scale_grad_by_freq"):
        raise ValueError("rows are divided by how often an index occurs, in padding too")
    grad, indices = states[given["grad_output"]], states[given["indices"]]
    moved = aligned(indices, grad.dims[: len(indices.dims)], grad.dims)
    both = grad.with_(dirty=grad.dirty | moved.dirty)
    left = {region for region in both.dirty if world.fact_at(grad, region) != 0}
    made = Abstract(
        world.slot_dims(target_of(node).spec.sizes),
        everywhere_if(left),
        level=grad.worst,
        cause=grad.cause or indices.cause,
        assumes=grad.assumes | indices.assumes,
    )
    return [world.settled(made, world.causes(_REASON, _REPAIR))]


def _slice(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradient of a slice, or of a selected index: zeros around it."""
    given = arguments_by_name(node)
    grad = states[given["grad_output"]]
    dims = world.slot_dims(target_of(node).spec.sizes)
    dim = given["dim"] % len(dims)
    start = given.get("start", 0)
    if not isinstance(start, int) or start < 0 or given.get("step", 1) != 1:
        raise ValueError("a slice that does not count from the front")
    mine = list(dims)
    if "index" in given:
        del mine[dim]
    mapping: dict[Slot, Coordinate | None] = {}
    for place, (old, new) in enumerate(zip(grad.dims, mine, strict=True)):
        sliced = place == dim and "index" not in given
        for slot in old:
            fits = len(old) == len(new) == 1 and (sliced or world.same(old[0].size, new[0].size))
            mapping[slot] = Coordinate(new[0], -start if sliced else 0) if fits else None
    moved = grad.moved(dims, {slot: at for slot, at in mapping.items() if slot in referenced(grad)})
    facts = {region: fact for region, fact in moved.facts.items() if fact == 0}
    made = moved.with_(
        facts=facts, rest=None, level=moved.worst, low=min(0.0, moved.lowest), tag=None
    )
    return [
        world.settled(
            made, world.causes("a gradient of a slice along the dimension that has the padding")
        )
    ]


def _attention(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradients of fused attention: of its queries, keys and values.

    The kernel computes the weights again, from the scores and their log-sum-exp, and from there on
    with products as the gradients of two matrix products and a softmax.
    """
    given = arguments_by_name(node)
    names = ("query", "key", "value", "out", "logsumexp")
    upstream = given["grad_out"] if "grad_out" in given else given["grad_out_"]
    query, key, value, out, sums = (given[name] for name in names)
    mask = given.get("attn_mask", given.get("attn_bias"))
    main = [upstream, query, key, value, out, sums, mask]
    if given.get("dropout_p") or any(states[each].dirty for each in node.reads if each not in main):
        raise ValueError("dropout of weights, or lengths that depend on padding")
    sizes, keys, width = upstream.spec.sizes, key.spec.sizes[-2], query.spec.sizes[-1]
    if (
        query.spec.dim != 4
        or key.spec.dim != 4
        or not world.same(query.spec.sizes[1], key.spec.sizes[1])
    ):
        raise ValueError("heads that share keys")
    hidden = states[mask] if isinstance(mask, Value) else None
    is_bool = isinstance(mask, Value) and not mask.spec.dtype.is_floating_point
    causal = bool(given.get("is_causal"))
    ends = states[query], states[key], states[value]
    _, weights = attention(world, *ends, hidden, is_bool, causal, sizes, keys, width, weights=True)
    square = [*query.spec.sizes[:-1], keys]
    rows = states[sums].with_(dims=(*states[sums].dims, ()), facts={}, level=states[sums].worst)
    _, (rows, weights) = broadcast(world, [rows, weights], square)
    level = max(weights.level, FINITE if rows.level == FINITE else ANYTHING)
    cause = weights.cause or rows.cause
    weights = world.settled(
        weights.with_(dirty=weights.dirty | rows.dirty, level=level, cause=cause)
    )
    why, dtype = world.causes(_REASON, _REPAIR), query.spec.dtype

    def product(a: Abstract, b: Abstract, shape: Sequence[Any], inner: Any) -> Abstract:
        return contraction(world, a, b, shape, inner, dtype, why)

    grad = states[upstream]
    _, (left, right) = broadcast(world, [grad, states[out]], sizes)
    shared = reduced(world, "sum", _times(world, node, left, right), [3], True, why)
    _, (slopes, shared) = broadcast(
        world, [product(grad, _turned(states[value]), square, sizes[-1]), shared], square
    )
    _, (slopes, weights) = broadcast(world, [_less(world, node, slopes, shared), weights], square)
    slopes = with_late_positions(world, _times(world, node, weights, slopes))
    count = query.spec.sizes[-2]
    return [
        product(slopes, states[key], query.spec.sizes, keys),
        product(_turned(slopes), states[query], key.spec.sizes, count),
        product(_turned(weights), grad, value.spec.sizes, count),
    ]


def _turned(x: Abstract) -> Abstract:
    """Return the matrices of ``x``, transposed."""
    return x.with_(dims=(*x.dims[:-2], x.dims[-1], x.dims[-2]))


GRADIENTS = rules_of(
    ("nll_loss_backward nll_loss2d_backward", _nll_loss),
    ("_softmax_backward_data _log_softmax_backward_data", _softmax),
    ("native_layer_norm_backward", _layer_norm),
    ("embedding_dense_backward", _embedding),
    ("slice_backward select_backward", _slice),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", _attention),
    ("_scaled_dot_product_flash_attention_backward", _attention),
    ("_scaled_dot_product_efficient_attention_backward", _attention),
    ("_scaled_dot_product_cudnn_attention_backward", _attention),
)
"""The rules by the name of the op."""
