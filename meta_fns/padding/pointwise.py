"""Elementwise ops on padded tensors: valid elements come from valid elements, so axes pass and
fills are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.padding.axes import Axis, agree, fractional, is_padded
from meta_fns.padding.broadcasting import broadcast_axes
from meta_fns.padding.fills import FINITE, GARBAGE, Fill, constant
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked
from meta_fns.padding.symbolic_scalars import DIVIDING, never_zero, numbered, rooted
from meta_fns.torch_internals import OpOverload

__all__ = ["first_alone", "pointwise"]

_aten = torch.ops.aten

_POLYNOMIALS = tuple(
    f"aten::special_{name}"
    for name in (
        *(
            f"{shifted}chebyshev_polynomial_{kind}"
            for shifted in ("", "shifted_")
            for kind in "tuvw"
        ),
        *("hermite_polynomial_h", "hermite_polynomial_he"),
        *("laguerre_polynomial_l", "legendre_polynomial_p"),
    )
)
_HARMLESS: dict[str, dict[int, int]] = {
    "aten::lcm": {0: 0, 1: 0},
    **{name: {1: 0} for name in _POLYNOMIALS},
    "aten::special_zeta": {1: 1},
}
"""For kernels that stop the process or run for hours, by the place of an argument: a number for its
padding that they can compute with.

``lcm`` divides the least integer by a greatest common divisor that overflowed to -1.  Polynomials
loop as often as their degree says, and ``zeta`` until a negative argument has become positive.
"""


def pointwise(emit: Emitter, *args: Any, **kwargs: Any) -> Padded:
    """Any elementwise op: the broadcast of the axes; the fill is the op applied to the fills."""
    size = args[1] if len(args) > 1 else None
    found = numbered(emit, args)
    op, args = found.op, found.args
    operands = [each for each in (*args, *kwargs.values()) if isinstance(each, Padded)]
    axes = broadcast_axes([each.axes for each in operands])
    spec = emit.results[0]
    assert spec is not None
    _need_one_device(emit, operands, kwargs)
    args = _harmless(emit, op, args, kwargs, size, axes)
    tensor = emit.call(
        op, *map(lowered, args), **{name: lowered(arg) for name, arg in kwargs.items()}
    )
    if op is _aten.pow.Tensor_Tensor and fractional(size):
        tensor = rooted(emit, tensor, args[0].tensor, size)
    padding = {
        id(each): _at_padding(each, axes)
        for each in (*args, *kwargs.values())
        if isinstance(each, Padded)
    }
    if found.dtype is not None:
        return Padded(emit.call(_aten._to_copy.default, tensor, dtype=found.dtype), axes)
    valid = {id(each): each.valid for each in (*args, *kwargs.values()) if isinstance(each, Padded)}
    return Padded(
        tensor, axes, _applied(op, args, kwargs, padding), _applied(op, args, kwargs, valid)
    )


def _harmless(
    emit: Emitter,
    op: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    size: Any,
    axes: tuple[Axis, ...],
) -> tuple[Any, ...]:
    """The arguments with numbers in their padding that the kernel can compute with."""
    name = op._schema.name
    values = _HARMLESS.get(name, {})
    args = tuple(
        masked(emit, arg, values[place]) if place in values and isinstance(arg, Padded) else arg
        for place, arg in enumerate(args)
    )
    spec = emit.results[0]
    assert spec is not None
    if name not in DIVIDING or spec.dtype.is_floating_point or spec.dtype.is_complex:
        return args
    dividend, divisor, *rest = args
    if isinstance(divisor, Padded):
        divisor = never_zero(emit, size, masked(emit, divisor, 1), axes)
    elif divisor == 0:
        raise Refuse("a division by 0, which raises only where there are elements")
    if (
        _truncates(op, kwargs)
        and isinstance(dividend, Padded)
        and (isinstance(divisor, Padded) or divisor == -1)
    ):  # the least integer over -1 stops the process
        dividend = masked(emit, dividend, 0, _padded_alone(dividend, divisor))
    return dividend, divisor, *rest


def _truncates(op: OpOverload, kwargs: dict[str, Any]) -> bool:
    return op._schema.name == "aten::div" and kwargs.get("rounding_mode") == "trunc"


def _padded_alone(operand: Padded, other: Any) -> frozenset[int]:
    """The padded dimensions of an operand along which the other one may have valid elements."""
    if not isinstance(other, Padded):
        return operand.padded_dims()
    offset = other.ndim - operand.ndim
    return frozenset(
        dim
        for dim in operand.padded_dims()
        if dim + offset < 0 or not agree(operand.axes[dim], other.axes[dim + offset])
    )


def first_alone(emit: Emitter, *args: Any, **kwargs: Any) -> tuple[Padded | None, ...]:
    """An elementwise op of one tensor with results beside its own that only its gradient reads: as
    large, or empty.
    """
    made = emit.call(emit.op, *map(lowered, args), **kwargs)
    empty = ((0,),)
    return tuple(
        Padded(each, args[0].axes if each.spec.sizes != (0,) or args[0].ndim == 0 else empty)
        for each in made
    )


def _need_one_device(emit: Emitter, operands: Sequence[Padded], kwargs: dict[str, Any]) -> None:
    wanted = kwargs.get("device")
    if wanted is not None and any(
        torch.device(wanted).type != each.device.type for each in operands
    ):
        raise Refuse("a copy to another device is no part of one program")


def _at_padding(operand: Padded, axes: tuple[Axis, ...]) -> Fill:
    """Return the fill of an operand where the result has padding; the operand may have valid
    elements there.
    """
    offset = len(axes) - operand.ndim
    for dim, axis in enumerate(axes):
        if is_padded(axis) and (dim < offset or not agree(operand.axes[dim - offset], axis)):
            return operand.fill.join(operand.valid) if operand.sizes else operand.valid
    return operand.fill


def _applied(
    op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], fills: dict[int, Fill]
) -> Fill:
    """The op on operands of which only fills are known."""
    if op._schema.name in _HARMLESS or _truncates(op, kwargs):
        return GARBAGE  # valid elements may be what the kernel stops at, if there are none
    chosen = _chosen(op, args, fills)
    if chosen is not None:
        return chosen
    if any(fill.kind != "constant" for fill in fills.values()):
        return GARBAGE

    def number(arg: Any) -> Any:
        if not isinstance(arg, Padded):
            return arg
        return torch.full((1,) * min(arg.ndim, 1), fills[id(arg)].value, dtype=arg.dtype)  # type: ignore[arg-type]

    kept = {
        name: arg
        for name, arg in kwargs.items()
        if name not in ("device", "memory_format", "layout", "pin_memory")
    }
    try:
        with torch.no_grad():
            result = op(*map(number, args), **{name: number(arg) for name, arg in kept.items()})
        return _known(result.item())
    except (RuntimeError, TypeError, ValueError):
        return GARBAGE


def _chosen(op: OpOverload, args: Sequence[Any], fills: dict[int, Fill]) -> Fill | None:
    """The fill where a known operand settles the result alone: a condition, ``False & x``,
    ``True | x``.
    """
    name = op._schema.name
    known = [fills[id(arg)] if isinstance(arg, Padded) else None for arg in args]
    if name == "aten::where" and known[0] is not None and known[0].kind == "constant":
        index = 1 if known[0].value else 2
        found = known[index]
        return found if found is not None else constant(args[index])
    if name in ("aten::bitwise_and", "aten::bitwise_or") and all(
        isinstance(arg, Padded) and arg.dtype is torch.bool for arg in args
    ):
        absorbing = name == "aten::bitwise_or"
        if any(fill is not None and fill.is_constant(absorbing) for fill in known):
            return constant(absorbing)
    return None


def _known(value: Any) -> Fill:
    """The fill of a computed number: kept where rounding cannot make it another one elsewhere."""
    if isinstance(value, (bool, int)):
        return constant(value)
    if not isinstance(value, float) or math.isnan(value):
        return GARBAGE
    return constant(value) if math.isinf(value) or value.is_integer() else FINITE
