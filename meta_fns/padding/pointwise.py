"""Elementwise ops on padded tensors: valid elements come from valid elements, so axes pass and
fills are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from meta_fns.padding.axes import Axis, agree, is_padded
from meta_fns.padding.broadcasting import broadcast_axes
from meta_fns.padding.fills import FINITE, GARBAGE, Fill, constant
from meta_fns.padding.padded import Emitter, Padded, lowered
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import masked
from meta_fns.padding.symbolic_scalars import DIVIDING, never_zero, numbered
from meta_fns.torch_internals import OpOverload

__all__ = ["first_alone", "pointwise"]

_aten = torch.ops.aten


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
    if (
        op._schema.name in DIVIDING
        and not spec.dtype.is_floating_point
        and isinstance(args[1], Padded)
    ):
        divisor = never_zero(emit, size, masked(emit, args[1], 1), axes)
        args = (args[0], divisor, *args[2:])
    tensor = emit.call(
        op, *map(lowered, args), **{name: lowered(arg) for name, arg in kwargs.items()}
    )
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
