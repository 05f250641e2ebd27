"""The audit's rules of layers that are one op: norms, convolutions, pools, recurrent layers,
attention, losses.
"""

from __future__ import annotations

from collections.abc import Iterable

from symshape.auditing.domain import (
    EVERYWHERE,
    Abstract,
    Region,
    assumptions_of,
    cause_of,
    everywhere_if,
    finite_as,
)
from symshape.auditing.mixing import attention, mixed, scanned
from symshape.auditing.picking import all_blurred, blurred
from symshape.auditing.pointwise import combine, inverted
from symshape.auditing.world import (
    States,
    World,
    aligned,
    broadcast,
    referenced,
    rules_of,
    target_of,
)
from symshape.graph.steps import Node, Value, arguments_by_name

_STATISTICS = "the statistics of the normalisation are taken over padding too"
_MASKED_STATISTICS = (
    "normalise over the valid positions only: a sum of x * mask over the sum of the mask"
)


def _operands(node: Node, states: States, *names: str) -> list[Abstract]:
    given = arguments_by_name(node)
    return [states[given[name]] for name in names if isinstance(given.get(name), Value)]


def _with_parameters(world: World, x: Abstract, parameters: list[Abstract]) -> Abstract:
    """Return ``x`` scaled and shifted by parameters."""
    operands = (x, *parameters)
    made = Abstract(
        x.dims,
        x.dirty | everywhere_if(any(each.dirty for each in parameters)),
        level=finite_as(operands),
        cause=cause_of(operands),
        assumes=assumptions_of(operands),
    )
    return world.settled(made, world.causes("a parameter depends on padding"))


def _layer_norm(world: World, node: Node, states: States) -> list[Abstract]:
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


def _group_norm(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of group norm: statistics over channels of a group and all positions."""
    x = states[arguments_by_name(node)["input"]]
    found = mixed(world, x, range(1, len(x.dims)), world.causes(_STATISTICS, _MASKED_STATISTICS))
    made = _with_parameters(world, found, _operands(node, states, "weight", "bias"))
    rest = [
        blurred(world, [x], each.spec.sizes, world.causes(_STATISTICS))
        for each in node.outputs[1:]
        if each
    ]
    return [made, *rest]


def _batch_norm(world: World, node: Node, states: States) -> list[Abstract]:
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


def _convolution(world: World, node: Node, states: States) -> list[Abstract]:
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
        lost = referenced(found) - frozenset(dims[0])
        found = world.settled(found.moved(found.dims, dict.fromkeys(lost)), why)
    parameters = [states[weight], *_operands(node, states, "bias")]
    return [_with_parameters(world, found.with_(dims=tuple(dims)), parameters)]


def _recurrent(world: World, node: Node, states: States) -> list[Abstract]:
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
        return all_blurred(world, node, [x, *others], cause)
    found = scanned(world, mixed(world, x, [2], cause), time, cause)
    dims = (*x.dims[:2], *world.slot_dims(first.spec.sizes[2:]))
    ends = [blurred(world, [x], each.spec.sizes, cause) for each in rest]
    level = finite_as((x, *others))
    return [found.with_(dims=dims, level=level), *(each.with_(level=level) for each in ends)]


def _fused_attention(world: World, node: Node, states: States) -> list[Abstract]:
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
        made = blurred(world, [states[each] for each in node.reads], output.spec.sizes, why)
    rest = [
        sums
        if len(each.spec.sizes) == len(sums.dims)
        else blurred(world, [made], each.spec.sizes, world.causes("statistics of attention"))
        for each in node.outputs[1:]
        if each is not None
    ]
    return [made, *rest]


def _heads(world: World, node: Node, states: States) -> list[Abstract]:
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
        return all_blurred(world, node, [states[each] for each in node.reads], why)
    sides = [mixed(world, states[each], [2], world.causes("channels are mixed")) for each in inputs]
    query, key, value = sides if len(sides) == 3 else sides * 3
    level = finite_as(others)
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


def _nll_loss(world: World, node: Node, states: States) -> list[Abstract]:
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
    ignoring = aligned(target, rows, rows)
    skipped = [region for region, fact in ignoring.facts.items() if fact == ignored]
    lost_classes = frozenset(scores.dims[classes]) if scores.dims else frozenset()

    def counted(regions: Iterable[Region]) -> frozenset[Region]:
        return frozenset(
            each for each in regions if not any(world.implies(each, other) for other in skipped)
        )

    spread = {EVERYWHERE if region.slots & lost_classes else region for region in scores.dirty}
    dirty = counted(spread | ignoring.dirty) | everywhere_if(any(each.dirty for each in weight))
    operands = (scores, target, *weight)
    found, assumes = cause_of(operands), assumptions_of(operands)
    level = finite_as((scores, *weight))
    losses = world.settled(Abstract(rows, dirty, level=level, cause=found, assumes=assumes), cause)
    if given.get("reduction", 1) == 0:
        return [losses, blurred(world, [target], (), cause)]
    made = Abstract((), everywhere_if(losses.dirty), cause=losses.cause or cause, assumes=assumes)
    weighed = ignoring.with_(dirty=counted(ignoring.dirty))
    return [world.settled(made), blurred(world, [weighed], (), cause)]


LAYERS = rules_of(
    ("native_layer_norm layer_norm rms_norm _fused_rms_norm", _layer_norm),
    ("native_group_norm group_norm", _group_norm),
    ("native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm", _batch_norm),
    ("_native_batch_norm_legit _native_batch_norm_legit_no_training", _batch_norm),
    ("convolution conv1d conv2d conv3d mkldnn_convolution", _convolution),
    ("lstm gru rnn_tanh rnn_relu", _recurrent),
    ("_scaled_dot_product_flash_attention_for_cpu", _fused_attention),
    ("_scaled_dot_product_flash_attention", _fused_attention),
    ("_scaled_dot_product_efficient_attention", _fused_attention),
    ("_scaled_dot_product_cudnn_attention", _fused_attention),
    ("_scaled_dot_product_attention_math scaled_dot_product_attention", _fused_attention),
    ("_native_multi_head_attention _transformer_encoder_layer_fwd", _heads),
    ("nll_loss_forward nll_loss2d_forward", _nll_loss),
)
"""The rules by the name of the op."""
