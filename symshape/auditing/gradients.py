"""The audit's rules of backward ops: padded positions with a zero gradient contribute nothing."""

from __future__ import annotations

from collections.abc import Mapping

from symshape.auditing.broadcasting import broadcast, referenced
from symshape.auditing.domain import ANYTHING, EVERYWHERE, FINITE, LOW, Abstract, Coordinate, Slot
from symshape.auditing.mixing import mixed, reduced
from symshape.auditing.op_calls import name_of_op, target_of
from symshape.auditing.pointwise import combine
from symshape.auditing.world import World
from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = ["GRADIENTS"]

States = Mapping[Value, Abstract]

_REASON = "a gradient sums over padding"
_REPAIR = "give padding a loss of 0: ignore_index, or multiply the losses by the mask"


def _moved(x: Abstract, dims: tuple[tuple[Slot, ...], ...], like: Abstract) -> Abstract:
    """Return ``x`` by the slots of ``like``, whose dimensions ``dims`` correspond to those of ``x``."""
    mapping: dict[Slot, Coordinate | None] = {}
    for mine, theirs in zip(x.dims, dims, strict=True):
        for place, slot in enumerate(mine):
            mapping[slot] = Coordinate(theirs[place]) if len(mine) == len(theirs) else None
    return x.moved(like.dims, {slot: at for slot, at in mapping.items() if slot in referenced(x)})


def _nll_loss(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the gradient of ``nll_loss``: 0 at ignored targets; the scores themselves are not read."""
    given = arguments_by_name(node)
    scores, target, grad = (states[given[name]] for name in ("self", "target", "grad_output"))
    classes = 1 if len(scores.dims) > 1 else 0
    rows = (*scores.dims[:classes], *scores.dims[classes + 1 :])
    aligned = _moved(target, rows, scores)
    ignored = float(given.get("ignore_index", -100))
    facts = {region: 0.0 for region, fact in aligned.facts.items() if fact == ignored}
    dirty = set(aligned.dirty)
    read = [given["self"], given["target"]]
    if given.get("reduction", 1) == 0:  # a gradient for each position
        each_row = _moved(grad, rows, scores)
        facts |= {region: 0.0 for region, fact in each_row.facts.items() if fact == 0}
        dirty |= each_row.dirty
        read.append(given["grad_output"])
    others = [states[each] for each in node.reads if each not in read]
    if any(each.dirty for each in others):
        dirty.add(EVERYWHERE)
    assumes = target.assumes.union(grad.assumes, *(each.assumes for each in others))
    cause = next((each.cause for each in (target, grad, *others) if each.cause is not None), None)
    made = Abstract(scores.dims, frozenset(dirty), facts, level=max(FINITE, grad.worst), cause=cause, assumes=assumes)
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
    _, (grad, output) = broadcast(world, [states[given["grad_output"]], states[given["output"]]], sizes)
    dim = given["dim"] % len(sizes)
    if "log" in name_of_op(node):
        weights = output.with_(facts={}, rest=None, level=FINITE if output.worst <= LOW else ANYTHING)
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
    parameters = [states[given[name]] for name in ("weight", "bias") if isinstance(given[name], Value)]
    if any(each.dirty for each in parameters):
        raise ValueError("a weight depends on padding")
    wide = mixed(world, x, last, why)
    wide = world.settled(wide.with_(dirty=wide.dirty | mean.dirty | rstd.dirty), mean.cause or rstd.cause or why)
    wide = wide.with_(level=max([wide.level, mean.worst, rstd.worst, *(each.worst for each in parameters)]))
    slots = grad.slots(last)
    kept = {region: fact for region, fact in grad.facts.items() if not region.slots & slots and fact == 0}
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
    aligned = _moved(indices, grad.dims[: len(indices.dims)], grad)
    both = grad.with_(dirty=grad.dirty | aligned.dirty)
    left = {region for region in both.dirty if world.fact_at(grad, region) != 0}
    dirty = frozenset((EVERYWHERE,)) if left else frozenset()
    made = Abstract(
        world.slot_dims(target_of(node).spec.sizes),
        dirty,
        level=grad.worst,
        cause=grad.cause or indices.cause,
        assumes=grad.assumes | indices.assumes,
    )
    return [world.settled(made, world.causes(_REASON, _REPAIR))]


GRADIENTS = {
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_loss),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax),
    "native_layer_norm_backward": _layer_norm,
    "embedding_dense_backward": _embedding,
}
"""The rules by the name of the op."""
