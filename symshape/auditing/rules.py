"""The table of the audit's rules: for each op, the abstract tensors of its results."""

from __future__ import annotations

import math

import torch

from symshape.auditing.domain import (
    ANYTHING,
    FINITE,
    Abstract,
    Coordinate,
    Fact,
    Region,
    Tag,
    after,
    level_of,
)
from symshape.auditing.gradients import GRADIENTS
from symshape.auditing.layers import LAYERS
from symshape.auditing.mixing import MATRICES, reduced, scanned, softmax
from symshape.auditing.picking import SELECTIONS, all_blurred, blurred
from symshape.auditing.pointwise import ELEMENTWISE, combine, pointwise
from symshape.auditing.viewing import MOVES
from symshape.auditing.world import (
    Rule,
    States,
    World,
    broadcast,
    name_of_op,
    rules_of,
    target_of,
    words,
)
from symshape.graph.steps import Node, Value, arguments_by_name

_REDUCTIONS = words(
    """
    sum mean amax amin max min prod any all argmax argmin var std var_mean std_mean norm
    linalg_vector_norm logsumexp nansum count_nonzero nanmean median nanmedian mode aminmax
    """
)
_REPAIRS = {
    **dict.fromkeys(("mean", "nanmean"), "divide the sum of x * mask by the sum of the mask"),
    **dict.fromkeys(("sum", "norm", "linalg_vector_norm", "any"), "multiply by the mask before"),
    **dict.fromkeys(
        ("amax", "max", "argmax", "logsumexp"), "set padding to minus infinity before (masked_fill)"
    ),
    **dict.fromkeys(("amin", "min", "argmin"), "set padding to infinity before (masked_fill)"),
}


def results(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the abstract results of a step, in the order of its outputs; without outputs, of its
    first argument.
    """
    name = name_of_op(node)
    rule = _RULES.get(name)
    targets = [each for each in node.outputs if each is not None] or list(node.reads[:1])
    if node.op.namespace == "aten" and rule is not None:
        try:
            found = rule(world, node, states)
        except (
            IndexError,
            KeyError,
            TypeError,
            ValueError,
        ):  # arguments that the rule does not support
            return [_unknown(world, node, states, each, known=False) for each in targets]
        if all(
            len(each.dims) == target.spec.dim for each, target in zip(found, targets, strict=False)
        ):
            missing = targets[len(found) :]
            return [*found, *(_unknown(world, node, states, each, known=True) for each in missing)]
    return [_unknown(world, node, states, each, known=False) for each in targets]


def _unknown(world: World, node: Node, states: States, target: Value, *, known: bool) -> Abstract:
    reason = f"{node.op} mixes positions" if known else f"no rule knows {node.op}"
    cause = world.causes(reason, known=known)
    return blurred(world, [states[each] for each in node.reads], target.spec.sizes, cause)


def _elementwise(world: World, node: Node, states: States) -> list[Abstract]:
    return [pointwise(world, node, states)]


def _reduction(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    if len(node.reads) != 1:  # max and min of two tensors
        raise ValueError("an elementwise maximum")
    x = states[node.reads[0]]
    dim = given.get("dim")
    rank = len(x.dims)
    chosen = (
        range(rank) if dim is None or dim in ([], ()) else [dim] if isinstance(dim, int) else dim
    )
    dimensions = [each % rank for each in chosen] if rank else []
    cause = world.causes(
        f"{name_of_op(node)} runs over padding", _REPAIRS.get(name_of_op(node), "")
    )
    made = reduced(world, name_of_op(node), x, dimensions, bool(given.get("keepdim", False)), cause)
    return [
        made,
        *(made.with_(facts={}, rest=None, tag=None, low=-math.inf) for _ in node.outputs[1:]),
    ]


def _softmax(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    x = states[node.reads[0]]
    dim = given["dim"] % len(x.dims) if x.dims else 0
    if not x.dims:
        return [x.with_(facts={}, rest=None, level=ANYTHING)]
    return [softmax(world, x, dim, logarithm="log" in name_of_op(node))]


def _scan(world: World, node: Node, states: States) -> list[Abstract]:
    x = states[node.reads[0]]
    dim = arguments_by_name(node)["dim"]
    cause = world.causes(
        "a running sum passes padding before valid positions", "multiply by the mask first"
    )
    found = scanned(world, x, dim % len(x.dims), cause) if x.dims else x
    return [found for _ in range(max(1, len(node.outputs)))]


def _dropout(world: World, node: Node, states: States) -> list[Abstract]:
    x = states[node.reads[0]]
    noise = Abstract(x.dims, level=FINITE)
    made = combine(world, "mul", x.dims, [x, noise], None, torch.float32)
    return [made, noise][: max(1, len(node.outputs))]


def _random(world: World, node: Node, states: States) -> list[Abstract]:
    """Return random numbers, which are the same in both calls, as their generators start in the
    same state.
    """
    given = node.reads[1:] if node.op._schema.is_mutable else node.reads
    if any(states[each].dirty for each in given):
        return [_unknown(world, node, states, target_of(node), known=True)]
    return [Abstract(world.slot_dims(target_of(node).spec.sizes), level=FINITE)]


def _loss(world: World, node: Node, states: States) -> list[Abstract]:
    """Return an elementwise loss, or its mean or sum."""
    first, second = node.reads[:2]
    wide = first if first.spec.dim >= second.spec.dim else second
    dims, operands = broadcast(world, [states[first], states[second]], wide.spec.sizes)
    made = combine(world, "sub", dims, operands, None, target_of(node).spec.dtype).with_(low=0.0)
    made = made if name_of_op(node) != "binary_cross_entropy" else made.with_(level=ANYTHING)
    if arguments_by_name(node).get("reduction", 1) == 0:
        return [made]
    cause = world.causes(
        "a loss counts the positions of padding",
        "divide the sum of loss * mask (reduction='none') by the sum of the mask",
    )
    return [reduced(world, "sum", made, range(len(dims)), False, cause)]


_RANDOM = words(
    """
    rand randn randint rand_like randn_like uniform normal bernoulli normal_functional
    """
)
_LOSSES = words(
    """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss kl_div
    """
)


def _neighbours(world: World, node: Node, states: States) -> list[Abstract]:
    """Return the results of pools and unfolding, which depend on neighbours."""
    cause = world.causes(
        "neighbours are read, and those at padding are not zero", "multiply by the mask before"
    )
    reads = [world.settled(states[each]) for each in node.reads]
    level = max(x.worst for x in reads)
    return [each.with_(level=level) for each in all_blurred(world, node, reads, cause)]


_NEIGHBOURS = words(
    """
    im2col col2im avg_pool1d avg_pool2d max_pool1d max_pool2d max_pool2d_with_indices
    adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d unfold upsample_nearest1d
    upsample_linear1d upsample_bilinear2d
    """
)


def _arange(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    start, step = world.size(given.get("start", 0)), world.size(given.get("step", 1))
    dims = world.slot_dims(target_of(node).spec.sizes)
    tag = None
    if isinstance(start, int) and isinstance(step, int) and step == 1 and dims[0]:
        tag = Tag("position", (Coordinate(dims[0][0], start),))
    low = (
        float(start) if isinstance(start, int) and isinstance(step, int) and step > 0 else -math.inf
    )
    return [Abstract(dims, level=FINITE, low=low, tag=tag)]


_NUMBERS = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0),
}


def _filled(world: World, node: Node, states: States) -> list[Abstract]:
    given = arguments_by_name(node)
    name = name_of_op(node)
    target = target_of(node)
    dims = world.slot_dims(target.spec.sizes)
    number = _NUMBERS.get(name, given.get("fill_value", given.get("s", given.get("value"))))
    if isinstance(number, Value):
        value = states[number]
        if not value.dirty and not value.dims:
            return [value.with_(dims=dims, tag=None)]
        cause = world.causes("filled with a number that depends on padding")
        return [blurred(world, [value], target.spec.sizes, cause)]
    if not isinstance(number, (bool, int, float)):
        return [Abstract(dims, level=FINITE if number is not None else ANYTHING)]
    if not target.spec.dtype.is_floating_point:
        number = bool(number) if target.spec.dtype is torch.bool else int(number)
    return [Abstract(dims, rest=float(number), level=level_of(float(number)), low=float(number))]


def _copied(world: World, node: Node, states: States) -> list[Abstract]:
    source = states[node.reads[1]]
    dims, (moved,) = broadcast(world, [source], node.reads[0].spec.sizes)
    return [world.settled(moved.with_(dims=dims, tag=None))]


def _triangle(world: World, node: Node, states: States) -> list[Abstract]:
    x = states[node.reads[0]]
    diagonal = arguments_by_name(node).get("diagonal", 0)
    row, column = x.dims[-2:]
    facts: dict[Region, Fact] = {region: fact for region, fact in x.facts.items() if fact == 0}
    region = None
    if len(row) == len(column) == 1 and isinstance(diagonal, int):
        if name_of_op(node) == "tril":
            region = after(Coordinate(column[0]), Coordinate(row[0], diagonal))
        else:
            region = after(Coordinate(row[0]), Coordinate(column[0], -diagonal))
    if region is not None:
        facts[region] = 0.0
    rest = x.constant if region is not None else None
    level = x.level if len(facts) >= len(x.facts) + (region is not None) else x.worst
    return [
        world.settled(
            x.with_(facts=facts, rest=rest, level=level, low=min(0.0, x.lowest), tag=None)
        )
    ]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_RANDOM, _random),
    **dict.fromkeys(_NEIGHBOURS, _neighbours),
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(_NUMBERS, _filled),
    **rules_of(
        ("_softmax _log_softmax _safe_softmax softmax log_softmax", _softmax),
        ("cumsum cumprod cummax cummin logcumsumexp", _scan),
        ("native_dropout dropout", _dropout),
        ("full full_like new_full scalar_tensor fill", _filled),
        ("tril triu", _triangle),
        ("arange", _arange),
        ("copy", _copied),
    ),
    **MOVES,
    **SELECTIONS,
    **MATRICES,
    **GRADIENTS,
    **LAYERS,
}
