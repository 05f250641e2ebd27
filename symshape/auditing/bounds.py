"""Levels and lower bounds of elementwise results: whether an element may be infinite or NaN, and
how small it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from symshape.auditing.domain import ANYTHING, FINITE, LOW, Abstract
from symshape.graph.steps import Node, Value

__all__ = ["BACKWARD", "ELEMENTWISE", "level_and_low"]

# Finite for finite numbers, as long as nothing overflows.
_FINITE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "neg",
        "abs",
        "relu",
        "relu6",
        "gelu",
        "tanh",
        "sigmoid",
        "silu",
        "mish",
        "softplus",
        "elu",
        "selu",
        "celu",
        "hardtanh",
        "hardsigmoid",
        "hardswish",
        "leaky_relu",
        "exp",
        "expm1",
        "sin",
        "cos",
        "atan",
        "sinh",
        "cosh",
        "erf",
        "erfc",
        "square",
        "sign",
        "sgn",
        "floor",
        "ceil",
        "round",
        "trunc",
        "clamp",
        "clamp_min",
        "clamp_max",
        "minimum",
        "maximum",
        "fmin",
        "fmax",
        "where",
        "lerp",
        "addcmul",
        "logaddexp",
        "threshold",
        "log_sigmoid",
        "_to_copy",
        "clone",
        "alias",
        "detach",
        "lift_fresh",
        "contiguous",
        "expand",
        "copy",
        "fill",
        "prelu",
        "_prelu_kernel",
        "rsub",
        "glu",
        "sinc",
        "isnan",
        "isinf",
        "positive",
        "nan_to_num",
        "scaled_add",
        "scaled_sub",
    ]
)
_COPIES = frozenset(
    ["_to_copy", "clone", "alias", "detach", "lift_fresh", "contiguous", "expand", "copy"]
)
_KEEPS_LOW_LEVEL = _COPIES | {"add", "maximum", "minimum"}
_POSITIVE = frozenset(
    {"exp", "sigmoid", "relu", "relu6", "abs", "square", "softplus", "hardsigmoid"}
)
# Results may be infinite or NaN for finite numbers, unless the bounds below say otherwise.
_PARTIAL = frozenset(
    [
        "div",
        "reciprocal",
        "rsqrt",
        "sqrt",
        "log",
        "log2",
        "log10",
        "log1p",
        "pow",
        "remainder",
        "fmod",
        "acos",
        "asin",
        "acosh",
        "asinh",
        "atanh",
        "tan",
        "atan2",
        "true_divide",
        "floor_divide",
        "xlogy",
        "erfinv",
        "lgamma",
        "digamma",
        "addcdiv",
        "hypot",
        "special_erfcx",
        "copysign",
    ]
)
_TESTS = frozenset(
    [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_not",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_not",
        "bitwise_xor",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "__and__",
        "__or__",
        "__xor__",
        "__lshift__",
        "__rshift__",
        "isfinite",
        "isposinf",
        "isneginf",
    ]
)
# Elementwise ops of backward passes: products with a gradient, which is the first operand.
BACKWARD = frozenset(
    [
        "gelu_backward",
        "silu_backward",
        "tanh_backward",
        "sigmoid_backward",
        "threshold_backward",
        "hardswish_backward",
        "leaky_relu_backward",
        "elu_backward",
        "hardtanh_backward",
        "hardsigmoid_backward",
        "mish_backward",
        "softplus_backward",
    ]
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
