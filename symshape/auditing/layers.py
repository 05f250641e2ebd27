"""The audit's rules of layers that are one op: norms, convolutions, pools, recurrent layers,
attention, losses.
"""

from __future__ import annotations

from collections.abc import Mapping

from symshape.auditing.broadcasting import broadcast, referenced
from symshape.auditing.domain import ANYTHING, EVERYWHERE, FINITE, Abstract, Coordinate, Slot
from symshape.auditing.mixing import attention, mixed, scanned
from symshape.auditing.op_calls import target_of
from symshape.auditing.picking import blurred
from symshape.auditing.pointwise import combine, inverted
from symshape.auditing.world import World
from symshape.graph.steps import Node, Value, arguments_by_name

__all__ = [
    "batch_norm",
    "convolution",
    "fused_attention",
    "group_norm",
    "heads",
    "layer_norm",
    "nll_loss",
    "recurrent",
]

States = Mapping[Value, Abstract]

_STATISTICS = "the statistics of the normalisation are taken over padding too"
_MASKED_STATISTICS = (
    "normalise over the valid positions only: a sum of x * mask over the sum of the mask"
)


def _operands(node: Node, states: States, *names: str) -> list[Abstract]:
    given = arguments_by_name(node)
    return [states[given[name]] for name in names if isinstance(given.get(name), Value)]


def _with_parameters(world: World, x: Abstract, parameters: list[Abstract]) -> Abstract:
    """Return ``x`` scaled and shifted by parameters."""
    dirty = x.dirty | ({EVERYWHERE} if any(each.dirty for each in parameters) else frozenset())
    level = FINITE if all(each.worst == FINITE for each in (x, *parameters)) else ANYTHING
    assumes = x.assumes.union(*(each.assumes for each in parameters))
    cause = next((each.cause for each in (x, *parameters) if each.cause is not None), None)
    made = x.with_(dirty=dirty, facts={}, rest=None, level=level, low=Abstract(()).low, tag=None)
    return world.settled(
        made.with_(assumes=assumes, cause=cause), world.causes("a parameter depends on padding")
    )


def layer_norm(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of layer norm or RMS norm: statistics over the last dimensions."""
    given = arguments_by_name(node)
    x = states[given["input"]]
    count = len(given["normalized_shape"])
    found = mixed(
        world,
        x,
        range(len(x.dims) - count, len(x.dims)),
        world.causes(_STATISTICS, _MASKED_STATISTICS),
    )
    made = _with_parameters(world, found, _operands(node, states, "weight", "bias"))
    statistics = found.with_(dims=(*x.dims[:-count], *((),) * count))
    return [made, statistics, statistics][: len(node.outputs)]


def group_norm(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of group norm: statistics over channels of a group and all positions."""
    x = states[arguments_by_name(node)["input"]]
    found = mixed(world, x, range(1, len(x.dims)), world.causes(_STATISTICS, _MASKED_STATISTICS))
    made = _with_parameters(world, found, _operands(node, states, "weight", "bias"))
    rest = [
        blurred(world, [x], world.slot_dims(each.spec.sizes), world.causes(_STATISTICS))
        for each in node.outputs[1:]
        if each
    ]
    return [made, *rest]


def batch_norm(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of batch norm: statistics over all but the channels in training, else the
    running ones.
    """
    given = arguments_by_name(node)
    training = bool(given.get("training", given.get("train", False)))
    if "legit_no_training" in str(node.op):
        training = False
    x = states[given["input"]]
    parameters = _operands(node, states, "weight", "bias")
    if not training:
        return [
            _with_parameters(
                world, x, [*parameters, *_operands(node, states, "running_mean", "running_var")]
            )
        ]
    gone = [i for i in range(len(x.dims)) if i != 1]
    found = mixed(world, x, gone, world.causes(_STATISTICS, _MASKED_STATISTICS))
    return [_with_parameters(world, found, parameters)]


def convolution(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the result of a convolution: it depends on neighbours; with a kernel of size 1, on its
    own position.
    """
    given = arguments_by_name(node)
    x, weight = states[given["input"]], given["weight"]
    output = target_of(node)
    alone = all(world.same(size, 1) for size in weight.spec.sizes[2:]) and all(
        int(each) == 1 for each in given.get("stride", (1,))
    )
    alone = alone and not any(given.get("padding", ())) and not any(given.get("output_padding", ()))
    found = mixed(world, x, [1], world.causes("channels are mixed"))
    dims = list(world.slot_dims(output.spec.sizes))
    dims[0] = x.dims[0]
    if alone:
        dims[2:] = x.dims[2:]
    else:
        why = world.causes(
            "a convolution reads neighbours, and those at padding are not zero",
            "multiply its input by the mask",
        )
        kept = frozenset(slot for dim in (dims[0],) for slot in dim)
        found = world.settled(found.moved(found.dims, dict.fromkeys(referenced(found) - kept)), why)
    parameters = [states[weight], *_operands(node, states, "bias")]
    return [_with_parameters(world, found.with_(dims=tuple(dims)), parameters)]


def recurrent(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of an LSTM, GRU or RNN over padded (not packed) input: a step depends on
    earlier steps.
    """
    given = arguments_by_name(node)
    x = states[given["data"] if "data" in given else given["input"]]
    others = [states[each] for each in node.reads if states[each] is not x]
    first, *rest = [each for each in node.outputs if each is not None]
    cause = world.causes(
        "a recurrent layer runs on over padding",
        "pack the input (pack_padded_sequence), or pick the last valid step",
    )
    time = 1 if given.get("batch_first") else 0
    if (
        len(x.dims) != 3
        or given.get("bidirectional")
        or any(each.dirty for each in others)
        or "data" in given
    ):
        return [
            blurred(world, [x, *others], world.slot_dims(each.spec.sizes), cause)
            for each in (first, *rest)
        ]
    found = scanned(world, mixed(world, x, [2], cause), time, cause)
    dims = (*x.dims[:2], *world.slot_dims(first.spec.sizes[2:]))
    ends = [blurred(world, [x], world.slot_dims(each.spec.sizes), cause) for each in rest]
    level = FINITE if all(each.worst == FINITE for each in (x, *others)) else ANYTHING
    return [found.with_(dims=dims, level=level), *(each.with_(level=level) for each in ends)]


def fused_attention(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of ``scaled_dot_product_attention`` in any of its kernels."""
    given = arguments_by_name(node)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    mask = given.get("attn_mask", given.get("attn_bias"))
    output = target_of(node)
    made, sums = attention(
        world,
        states[query],
        states[key],
        states[value],
        states[mask] if isinstance(mask, Value) else None,
        isinstance(mask, Value) and not mask.spec.dtype.is_floating_point,
        bool(given.get("is_causal", False)),
        output.spec.sizes,
        key.spec.sizes[-2],
        query.spec.sizes[-1],
    )
    if output.spec.dim != len(made.dims):
        why = world.causes("attention of an unknown layout", known=False)
        made = blurred(
            world, [states[each] for each in node.reads], world.slot_dims(output.spec.sizes), why
        )
    rest = [
        sums
        if len(each.spec.sizes) == len(sums.dims)
        else blurred(
            world, [made], world.slot_dims(each.spec.sizes), world.causes("statistics of attention")
        )
        for each in node.outputs[1:]
        if each is not None
    ]
    return [made, *rest]


def heads(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of multi-head attention, or of a whole encoder layer, as one op.

    Channels are mixed, and positions by attention.
    """
    given = arguments_by_name(node)
    inputs = [given[name] for name in ("query", "key", "value", "src") if name in given]
    mask = given.get("mask")
    others = [states[each] for each in node.reads if each not in inputs and each is not mask]
    why = world.causes("attention of a kind that no rule knows", known=False)
    kind = given.get("mask_type", 1 if mask is not None else None)
    plain = mask is None or kind == 1  # a mask over keys, which hides keys that are not 0 in it
    if any(each.dirty for each in others) or not plain or any(x.spec.dim != 3 for x in inputs):
        operands = [states[each] for each in node.reads]
        return [
            blurred(world, operands, world.slot_dims(each.spec.sizes), why)
            for each in node.outputs
            if each is not None
        ]
    sides = [mixed(world, states[each], [2], world.causes("channels are mixed")) for each in inputs]
    query, key, value = sides if len(sides) == 3 else sides * 3
    level = FINITE if all(each.worst == FINITE for each in others) else ANYTHING
    sizes = (*inputs[0].spec.sizes[:2], inputs[-1].spec.sizes[2])
    hidden = (
        None
        if mask is None
        else states[mask].with_(dims=(states[mask].dims[0], (), states[mask].dims[1]))
    )
    seen = None if hidden is None else inverted(hidden)
    keys, width = inputs[-1].spec.sizes[1], inputs[-1].spec.sizes[2]
    made, weights = attention(
        world, query, key, value, seen, True, False, sizes, keys, width, weights=True
    )
    if len(sides) == 1:  # the residual of an encoder layer, its norms and linear layers
        dims, operands = broadcast(world, [made, sides[0]], sizes)
        made = combine(world, "add", dims, operands, None, inputs[0].spec.dtype)
    found = [
        mixed(world, made, [2], why, max(level, made.level)),
        weights.with_(facts={}, rest=None),
    ]
    return found[: len([each for each in node.outputs if each is not None])]


def nll_loss(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of ``nll_loss``: positions whose target is the ignored index do not
    count.
    """
    given = arguments_by_name(node)
    scores, target = states[given["self"]], states[given["target"]]
    ignored = float(given.get("ignore_index", -100))
    weight = _operands(node, states, "weight")
    cause = world.causes(
        "a loss counts the positions of padding",
        f"set the targets of padding to ignore_index ({ignored:.0f}), or divide a masked sum by "
        "the sum of the mask",
    )
    classes = 1 if len(scores.dims) > 1 else 0
    rows = (*scores.dims[:classes], *scores.dims[classes + 1 :])
    mapping: dict[Slot, Coordinate | None] = {}
    for mine, theirs in zip(rows, target.dims, strict=True):
        fits = len(mine) == len(theirs)
        for place, slot in enumerate(theirs):
            mapping[slot] = Coordinate(mine[place]) if fits else None
    aligned = target.moved(
        rows, {slot: at for slot, at in mapping.items() if slot in referenced(target)}
    )
    skipped = [region for region, fact in aligned.facts.items() if fact == ignored]
    lost_classes = frozenset(scores.dims[classes]) if scores.dims else frozenset()
    dirty = {
        EVERYWHERE if region.slots & lost_classes else region for region in scores.dirty
    } | aligned.dirty
    dirty = {each for each in dirty if not any(world.implies(each, region) for region in skipped)}
    assumes = scores.assumes.union(target.assumes, *(each.assumes for each in weight))
    found = next((each.cause for each in (scores, target, *weight) if each.cause is not None), None)
    if any(each.dirty for each in weight):
        dirty.add(EVERYWHERE)
    level = FINITE if all(each.worst == FINITE for each in (scores, *weight)) else ANYTHING
    losses = world.settled(
        Abstract(rows, frozenset(dirty), level=level, cause=found, assumes=assumes), cause
    )
    if given.get("reduction", 1) == 0:
        return [losses, blurred(world, [target], (), cause)]
    made = Abstract(
        (), frozenset((EVERYWHERE,)) if losses.dirty else frozenset(), cause=losses.cause or cause
    )
    return [
        world.settled(made.with_(assumes=assumes)),
        blurred(
            world,
            [
                aligned.with_(
                    dirty=frozenset(
                        each
                        for each in aligned.dirty
                        if not any(world.implies(each, region) for region in skipped)
                    )
                )
            ],
            (),
            cause,
        ),
    ]
