"""The results of elementwise ops: an element depends on the elements of the operands at its own
position.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from symshape.auditing.domain import (
    ANYTHING,
    FINITE,
    LOW,
    MASKED,
    Abstract,
    Coordinate,
    Dims,
    Fact,
    Region,
    Tag,
    after,
    assumptions_of,
    cause_of,
    everywhere_if,
    level_of,
)
from symshape.auditing.world import (
    FINITE_NUMBERS,
    SMALL_SCORES,
    STRONG,
    World,
    broadcast,
    name_of_op,
    target_of,
    words,
)
from symshape.graph.steps import Node, Value, arguments_by_name, map_argument

# -- levels and lower bounds: whether an element may be infinite or NaN, and how small it is


# Finite for finite numbers, as long as nothing overflows.
_FINITE = words(
    """
    add sub mul neg abs relu relu6 gelu tanh sigmoid silu mish softplus elu selu celu hardtanh
    hardsigmoid hardswish leaky_relu exp expm1 sin cos atan sinh cosh erf erfc square sign sgn
    floor ceil round trunc clamp clamp_min clamp_max minimum maximum fmin fmax where lerp addcmul
    logaddexp threshold log_sigmoid _to_copy clone alias detach lift_fresh contiguous expand copy
    fill prelu _prelu_kernel rsub glu sinc isnan isinf positive nan_to_num scaled_add scaled_sub
    """
)
_COPIES = words("_to_copy clone alias detach lift_fresh contiguous expand copy")
_KEEPS_LOW_LEVEL = _COPIES | {"add", "maximum", "minimum"}
_POSITIVE = frozenset(
    {"exp", "sigmoid", "relu", "relu6", "abs", "square", "softplus", "hardsigmoid"}
)
# Results may be infinite or NaN for finite numbers, unless the bounds below say otherwise.
_PARTIAL = words(
    """
    div reciprocal rsqrt sqrt log log2 log10 log1p pow remainder fmod acos asin acosh asinh atanh
    tan atan2 true_divide floor_divide xlogy erfinv lgamma digamma addcdiv hypot special_erfcx
    copysign
    """
)
_TESTS = words(
    """
    eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
    bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__
    __lshift__ __rshift__ isfinite isposinf isneginf
    """
)
# Elementwise ops of backward passes: products with a gradient, which is the first operand.
BACKWARD = words(
    """
    gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward
    hardswish_backward leaky_relu_backward elu_backward hardtanh_backward hardsigmoid_backward
    mish_backward softplus_backward
    """
)

ELEMENTWISE = (
    {"copysign", "signbit"}
    | (_FINITE - {"glu", "scaled_add", "scaled_sub"})
    | _PARTIAL
    | _TESTS
    | BACKWARD
    | {"masked_fill"}
)
"""The names of elementwise ops."""


def level_and_low(
    name: str, node: Node | None, operands: Sequence[Abstract], kept: bool, floating: bool
) -> tuple[int, float]:
    """Return the level and the lower bound of a result outside its facts.

    ``kept``: every region of the operands' facts has a fact of the result.
    """
    levels = [each.level if kept else each.worst for each in operands]
    lows = [each.low if kept else each.lowest for each in operands]
    scalars = _scalars(node)
    if not floating:
        return FINITE, 0.0 if name in _TESTS else -math.inf
    low = _low(name, node, operands, lows, scalars)
    worst = max([FINITE, *levels])
    if any(not math.isfinite(each) for each in scalars):
        worst = ANYTHING
    if name in _FINITE or name in BACKWARD:
        if worst == LOW and name in ("exp", "sigmoid"):
            return FINITE, low
        return (
            worst if worst == FINITE or (worst == LOW and name in _KEEPS_LOW_LEVEL) else ANYTHING
        ), low
    if worst == FINITE and _defined(name, node, lows, scalars):
        return FINITE, low
    return ANYTHING, low


def _scalars(node: Node | None) -> list[float]:
    if node is None:
        return []
    return [
        float(each)
        for each in node.args
        if isinstance(each, (int, float)) and not isinstance(each, bool)
    ]


def _defined(name: str, node: Node | None, lows: Sequence[float], scalars: Sequence[float]) -> bool:
    """Return whether a partial op is finite above these lower bounds."""
    if name in ("rsqrt", "reciprocal", "log", "log2", "log10"):
        return lows[0] > 0
    if name in ("sqrt", "log1p", "asinh"):
        return lows[0] >= 0 or name == "asinh"
    if name in ("div", "true_divide"):
        if len(lows) > 1:
            return lows[1] > 0
        return bool(scalars) and scalars[0] != 0
    if name == "pow":
        exponent = node.args[1] if node is not None and len(node.args) > 1 else None
        if not isinstance(exponent, (int, float)):  # a tensor
            base = scalars[0] if scalars else lows[0] if lows else 0.0
            return base > 0
        return (
            (exponent >= 0 and exponent == int(exponent))
            or (exponent > 0 and lows[0] >= 0)
            or lows[0] > 0
        )
    return False


def _low(
    name: str,
    node: Node | None,
    operands: Sequence[Abstract],
    lows: Sequence[float],
    scalars: Sequence[float],
) -> float:
    """Return the lower bound of a result; minus infinity if none is known."""
    if name in _POSITIVE:
        return 0.0
    args: tuple[Any, ...] = node.args if node is not None else ()
    if name == "pow":
        even = len(args) > 1 and isinstance(args[1], (int, float)) and args[1] % 2 == 0
        return 0.0 if even else -math.inf
    if name == "mul" and len(operands) == 2:
        same = len(args) == 2 and isinstance(args[0], Value) and args[0] is args[1]
        return 0.0 if same or min(lows) >= 0 else -math.inf
    if name == "add" and not (node is not None and node.kwargs):
        return sum(lows) + sum(scalars[: 2 - len(lows)])
    if name in _COPIES and len(lows) == 1:
        return lows[0]
    if name == "sqrt":
        return 0.0
    if name == "maximum":
        return max(lows)
    if name in ("clamp_min", "clamp") and len(args) > 1 and isinstance(args[1], (int, float)):
        high = args[2] if len(args) > 2 else None
        return (
            float(args[1]) if not isinstance(high, (int, float)) or high >= args[1] else -math.inf
        )
    if name in ("div", "mul") and len(lows) == 1 and scalars and scalars[0] > 0 and lows[0] >= 0:
        return 0.0
    return -math.inf


_PARTS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
_MODERATE = 100.0  # the most that may be added to a masked score, which stays masked


def pointwise(world: World, node: Node, states: Mapping[Value, Abstract]) -> Abstract:
    """Return the result of an elementwise op."""
    output = target_of(node)
    reads = list(node.reads)
    dims, operands = broadcast(world, [states[each] for each in reads], output.spec.sizes)
    name = name_of_op(node)
    if name == "masked_fill":
        value = operands[2] if len(operands) > 2 else _number(dims, node.args[2])
        return chosen(world, dims, operands[1], value, operands[0])
    if name == "where" and len(node.args) == 3:
        parts = iter(operands)
        given = [
            next(parts) if isinstance(each, Value) else _number(dims, each) for each in node.args
        ]
        return chosen(world, dims, given[0], given[1], given[2])
    return combine(world, name, dims, operands, node, output.spec.dtype)


_SIGNED = {
    **dict.fromkeys(words("atan2 reciprocal rsqrt pow copysign signbit"), 0),
    **dict.fromkeys(words("div true_divide floor_divide remainder fmod xlogy"), 1),
    "addcdiv": 2,
}
"""Ops that distinguish 0.0 from -0.0, and the position of the first operand whose zeros matter."""


def _reads_signs_of_zeros(name: str, node: Node | None, operands: Sequence[Abstract]) -> bool:
    """Return whether an op distinguishes 0.0 from -0.0, and a zero may have its sign from padding,
    as ``x * 0`` has.
    """
    if name not in _SIGNED:
        return False
    exponent = node.args[1] if name == "pow" and node is not None and len(node.args) > 1 else None
    if isinstance(exponent, (int, float)) and exponent >= 0:
        return False
    return any(
        FINITE_NUMBERS in each.assumes and each.lowest <= 0 for each in operands[_SIGNED[name] :]
    )


def _number(dims: Dims, value: Any) -> Abstract:
    """Return a Python number as an abstract tensor."""
    if isinstance(value, (bool, int, float)):
        return Abstract(dims, rest=float(value), level=level_of(float(value)), low=float(value))
    return Abstract(dims)


def combine(
    world: World,
    name: str,
    dims: Dims,
    operands: Sequence[Abstract],
    node: Node | None,
    dtype: torch.dtype,
) -> Abstract:
    """Return the result of an elementwise op on operands under common dimensions.

    Args:
        world: the facts of the audit.
        name: the op's name.
        dims: the dimensions.
        operands: the tensors, in order.
        node: the step, whose op is computed on known numbers; None if ``name`` is a part of another
            op.
        dtype: the dtype of the result.
    """
    if node is not None and arguments_by_name(node).get("alpha", 1) != 1:
        name = "scaled_" + name
    facts, assumes = {}, set(assumptions_of(operands))
    compared = _compared(name, operands, world)
    facts.update(compared)
    regions = dict.fromkeys(region for each in operands for region in each.facts)
    for region in regions:
        known = [world.fact_at(each, region) for each in operands]
        made: Fact | None = _computed(known, node, name)
        if made is None:
            made, assumed = _absorbed(
                name, known, [_level_in(world, each, region) for each in operands], dtype
            )
            assumes |= assumed
        if made is not None:
            facts[region] = made
    kept = all(region in facts for region in regions)
    rest = (
        _computed([each.rest for each in operands], node, name) if kept and not compared else None
    )
    level, low = level_and_low(
        name, node, operands, kept, dtype.is_floating_point or dtype.is_complex
    )
    dirty = frozenset().union(*(each.dirty for each in operands))
    cause = cause_of(operands)
    if _reads_signs_of_zeros(name, node, operands):
        dirty = everywhere_if(True)
        cause = cause or world.causes("the sign of a zero is read, which may come from padding")
    tag = _tag(name, operands, node, dtype)
    made_of = Abstract(dims, dirty, facts, rest, level, low, tag, cause, frozenset(assumes))
    if rest is not None:
        made_of = made_of.with_(level=level_of(rest), low=rest)
    return world.settled(made_of)


def chosen(world: World, dims: Dims, condition: Abstract, yes: Abstract, no: Abstract) -> Abstract:
    """Return the result of ``where(condition, yes, no)`` under common dimensions."""
    facts: dict[Region, Fact] = {}
    regions = dict.fromkeys(region for each in (condition, yes, no) for region in each.facts)
    taken: dict[Region, bool] = {}
    for region in regions:
        test = world.fact_at(condition, region)
        if test is not None:
            taken[region] = bool(test)
            number = world.fact_at(yes if test else no, region)
        else:
            number, other = world.fact_at(yes, region), world.fact_at(no, region)
            number = number if number == other else None
        if number is not None:
            facts[region] = number
    dirty = set(condition.dirty)
    for operand, when in ((yes, True), (no, False)):
        unread = [region for region, test in taken.items() if test is not when]
        dirty |= {
            each
            for each in operand.dirty
            if not any(world.implies(each, region) for region in unread)
        }
    rest = None
    if all(region in facts for region in regions) and condition.rest is not None:
        rest = yes.rest if condition.rest else no.rest
    level, low = _level_of_choice(condition, yes, no, facts)
    operands = (condition, yes, no)
    cause, assumes = cause_of(operands), assumptions_of(operands)
    return world.settled(
        Abstract(dims, frozenset(dirty), facts, rest, level, low, None, cause, assumes)
    )


def inverted(x: Abstract) -> Abstract:
    """Return the negation of a tensor of truth values."""
    facts = {
        region: float(not fact) for region, fact in x.facts.items() if not isinstance(fact, str)
    }
    return x.with_(
        facts=facts, rest=None if x.rest is None else float(not x.rest), low=0.0, tag=None
    )


def _level_of_choice(
    condition: Abstract, yes: Abstract, no: Abstract, facts: Mapping[Region, Fact]
) -> tuple[int, float]:
    """Return the level and the lower bound of a choice outside its facts."""
    parts = [yes, no]
    if condition.rest is not None and all(region in facts for region in condition.facts):
        parts = [yes if condition.rest else no]
    kept = [all(region in facts for region in each.facts) for each in parts]
    level = max(each.level if fine else each.worst for each, fine in zip(parts, kept, strict=True))
    low = min(each.low if fine else each.lowest for each, fine in zip(parts, kept, strict=True))
    return level, low


def _level_in(world: World, x: Abstract, region: Region) -> int:
    """Return the level of an operand in a region."""
    fact = world.fact_at(x, region)
    return x.worst if fact is None else level_of(fact)


def _computed(known: Sequence[Fact | None], node: Node | None, name: str) -> float | None:
    """Return the result of an op on known numbers; None if one is unknown or the sign of a zero
    matters.
    """
    if any(each is None or isinstance(each, str) for each in known):
        return None
    numbers: list[float] = [each for each in known if isinstance(each, (int, float))]
    if not numbers:
        return None
    choices = [(0.0, -0.0) if each == 0 else (each,) for each in numbers]
    if node is None:  # ``name`` is a part of another op
        if name not in _PARTS or len(numbers) != 2:
            return None
        found: set[float | None] = {
            _PARTS[name](*each) + 0.0 for each in itertools.product(*choices)
        }
    else:
        found = {_evaluated(node, each) for each in itertools.product(*choices)}
    if len(found) != 1 or found == {None}:
        return None
    number = found.pop()
    return None if number is None or math.isnan(number) else number


def _evaluated(node: Node, numbers: Sequence[float]) -> float | None:
    """Return the number that a node's op computes from these numbers as its tensors; None for NaN
    or an error.
    """
    left = iter(numbers)

    def leaf(arg: Any) -> Any:
        if not isinstance(arg, Value):
            raise ValueError(arg)  # a size is not one number
        return torch.tensor(next(left), dtype=torch.float64).to(arg.spec.dtype)

    try:
        args = [map_argument(each, leaf) for each in node.args]
        kwargs = {key: map_argument(each, leaf) for key, each in node.kwargs.items()}
        kwargs = {
            key: each
            for key, each in kwargs.items()
            if key not in ("device", "layout", "pin_memory")
        }
        made = node.op(*args, **kwargs)
        number = float(made.reshape(()).item())
    except (
        RuntimeError,
        ValueError,
        TypeError,
        StopIteration,
        AttributeError,
        NotImplementedError,
        OverflowError,
    ):
        return None
    return None if math.isnan(number) else number + 0.0


def _absorbed(
    name: str, known: Sequence[Fact | None], levels: Sequence[int], dtype: torch.dtype
) -> tuple[Fact | None, set[str]]:
    """Return the number that one known operand alone decides, and the assumptions needed for
    that.
    """
    others = [max([FINITE, *levels[:i], *levels[i + 1 :]]) for i in range(len(levels))]
    assumes = {FINITE_NUMBERS} if dtype.is_floating_point else set()
    for number, level in zip(known, others, strict=True):
        if number is None or isinstance(number, str):
            continue
        if name == "mul" and number == 0 and level == FINITE:
            return 0.0, assumes
        if name in BACKWARD and number is known[0] and number == 0 and level == FINITE:
            return 0.0, assumes
        if name in ("bitwise_and", "logical_and", "__and__") and number == 0:
            return 0.0, set()
        if number == 1 and (
            name == "logical_or" or (name in ("bitwise_or", "__or__") and dtype is torch.bool)
        ):
            return 1.0, set()
        if name in ("add", "minimum") and number == -math.inf and level <= LOW:
            return -math.inf, assumes
    return _masked(name, known, levels, assumes) if dtype.is_floating_point else (None, set())


def _masked(
    name: str, known: Sequence[Fact | None], levels: Sequence[int], assumes: set[str]
) -> tuple[Fact | None, set[str]]:
    """Return ``MASKED`` if a score stays masked: a large negative number was added, or the op
    barely changes it.
    """
    strong = [each == MASKED or (isinstance(each, float) and each <= STRONG) for each in known]
    if any(isinstance(each, float) and each > _MODERATE for each in known):
        return None, set()
    if name == "add" and any(strong) and all(level <= LOW for level in levels):
        return MASKED, assumes | {SMALL_SCORES}
    if name == "maximum" and all(strong):
        return MASKED, {SMALL_SCORES}
    if name in _COPIES and all(strong):
        return MASKED, set()
    return None, set()


_OPPOSITE = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _compared(name: str, operands: Sequence[Abstract], world: World) -> dict[Region, Fact]:
    """Return the facts of a comparison of positions with counts of valid positions, or with other
    positions.
    """
    if name not in _OPPOSITE or len(operands) != 2:
        return {}
    a, b = operands[0].tag, operands[1].tag
    if a is None or b is None:
        return {}
    if a.kind == "count" and b.kind == "position":
        return _compared(_OPPOSITE[name], (operands[1], operands[0]), world)
    if a.kind != "position" or a.coordinates[0].slot is None:
        return {}
    if b.kind == "count":
        if name not in ("lt", "ge") or world.side(b.group) != "right":
            return {}
        row = _flips(a.coordinates[0], b.offset)
        return {Region(b.group, (*b.coordinates, row)): 0.0 if name == "lt" else 1.0}
    return _causal(name, a.coordinates[0], b.coordinates[0])


def _flips(position: Coordinate, offset: int) -> Coordinate:
    """Return the coordinate of the mask at which a comparison with the count plus ``offset``
    flips.
    """
    return Coordinate(position.slot, position.offset - offset)


def _causal(name: str, a: Coordinate, b: Coordinate) -> dict[Region, Fact]:
    """Return the facts of a comparison (``<``, ``<=``, ``>``, ``>=``) of two positions."""
    above, below = after(a, b), after(b, a)
    if above is None or below is None:
        return {}
    found: dict[str, dict[Region, Fact]] = {
        "le": {above: 0.0},
        "lt": {above: 0.0, below: 1.0},
        "ge": {below: 0.0},
        "gt": {above: 1.0, below: 0.0},
    }
    return found[name]


# hold the positions of a sequence exactly
_EXACT = (torch.int64, torch.int32, torch.float32, torch.float64)


def _tag(
    name: str, operands: Sequence[Abstract], node: Node | None, dtype: torch.dtype
) -> Tag | None:
    """Return the tag of the result if positions or counts are copied, or shifted by a constant;
    else None.
    """
    if not operands or operands[0].tag is None or dtype not in _EXACT:
        return None
    tag = operands[0].tag
    if name in _COPIES and len(operands) == 1:
        return tag
    if node is None or name not in ("add", "sub") or node.kwargs:
        return None
    if len(operands) == 1:
        number: Any = node.args[1] if len(node.args) > 1 else None
    else:
        number = operands[1].constant
    if not isinstance(number, (int, float)) or isinstance(number, bool) or number != int(number):
        return None
    shift = int(number) if name == "add" else -int(number)
    if tag.kind == "count":
        return Tag(tag.kind, tag.coordinates, tag.group, tag.offset + shift)
    (coordinate,) = tag.coordinates
    return Tag(tag.kind, (Coordinate(coordinate.slot, coordinate.offset + shift),))
