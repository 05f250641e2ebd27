"""Sizes, and fractions of them, that stand for numbers among the arguments of elementwise ops.

Eager converts a Python number to the dtype in which it computes.  Here it is read at run time from
a 0-d tensor that is converted to the same dtype; half precision is computed in float32 and rounded
once, as eager's kernels do with numbers.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch

from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, agree, capacity, fractional, varies
from meta_fns.padding.fills import FINITE, GARBAGE
from meta_fns.padding.padded import Emitter, Handle, Padded
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import number
from meta_fns.torch_internals import OpOverload

__all__ = ["DIVIDING", "Numbered", "at_run_time", "never_zero", "numbered", "rooted"]

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
DIVIDING = frozenset({"aten::floor_divide", "aten::remainder", "aten::fmod", "aten::div"})
"""Integer kernels that stop at a divisor of 0."""
_AS_TENSOR: dict[OpOverload, OpOverload] = {
    **{
        packet.Scalar: packet.Tensor
        for packet in (
            *(
                _aten.add,
                _aten.sub,
                _aten.mul,
                _aten.div,
                _aten.eq,
                _aten.ne,
                _aten.lt,
                _aten.le,
                _aten.gt,
                _aten.ge,
            ),
            *(_aten.remainder, _aten.fmod, _aten.masked_fill),
        )
    },
    _aten.rsub.Scalar: _aten.rsub.Tensor,
    _aten.floor_divide.Scalar: _aten.floor_divide.default,
    _aten.clamp.default: _aten.clamp.Tensor,
    _aten.clamp_min.default: _aten.clamp_min.Tensor,
    _aten.clamp_max.default: _aten.clamp_max.Tensor,
    _aten.pow.Tensor_Scalar: _aten.pow.Tensor_Tensor,
    _aten.pow.Scalar: _aten.pow.Tensor_Tensor,
}
"""The overload that takes as a tensor what is a number."""
_IN_FLOAT = frozenset(
    f"aten::{name}"
    for name in (
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "clamp",
        "clamp_min",
        "clamp_max",
        "masked_fill",
    )
)
"""Ops that compute half precision in float32, or where rounding before and after is the same."""


@attrs.frozen
class Numbered:
    """An op whose numbers are tensors.

    Attributes:
        op: the overload.
        args: its arguments.
        dtype: to which its result has to be converted; None where it has its dtype.
    """

    op: OpOverload
    args: tuple[Any, ...]
    dtype: torch.dtype | None = None


def numbered(emit: Emitter, args: tuple[Any, ...]) -> Numbered:
    """The op that is being padded, with sizes that stand for numbers as 0-d tensors.

    Raises: Refuse where the op takes no tensor there, or computes in a way that is not known.
    """
    places = [place for place, arg in enumerate(args) if varies(arg)]
    if not places:
        return Numbered(emit.op, args)
    op = _AS_TENSOR.get(emit.op, emit.op)
    kinds = [str(argument.type) for argument in op._schema.arguments]
    if any(
        place >= len(kinds) or kinds[place] not in ("Tensor", "Optional[Tensor]")
        for place in places
    ):
        raise Refuse("a size is used as a number here", *(args[place] for place in places))
    tensors = [arg for arg in args if isinstance(arg, Padded)]
    spec = emit.results[0]
    assert spec is not None
    sizes = [args[place] for place in places]
    dtype = _dtype(op, tensors[0], spec.dtype, sizes)
    wide = spec.dtype in _HALF
    made = list(args)
    for place, arg in enumerate(args):
        if varies(arg):
            made[place] = _checked(emit, op, arg, dtype, place)
        elif isinstance(arg, (bool, int, float)) and kinds[place] in ("Tensor", "Optional[Tensor]"):
            made[place] = Padded(
                number(emit, arg, tensors[0].with_(tensor=_zero(emit, dtype, tensors[0]))), ()
            )
        elif wide and isinstance(arg, Padded) and arg.dtype is spec.dtype:
            made[place] = arg.with_(
                tensor=emit.call(_aten._to_copy.default, arg.tensor, dtype=dtype)
            )
    return Numbered(op, tuple(made), spec.dtype if wide else None)


def _zero(emit: Emitter, dtype: torch.dtype, like: Padded) -> Handle:
    made: Handle = emit.call(_aten.scalar_tensor.default, 0, dtype=dtype, device=like.device)
    return made


def _dtype(op: OpOverload, x: Padded, result: torch.dtype, sizes: list[Size]) -> torch.dtype:
    """The dtype to which eager converts the numbers of an op with a tensor ``x``."""
    name = op._schema.name
    if result.is_complex or x.dtype.is_complex:
        raise Refuse("a size is used as a complex number", *sizes)
    if result is torch.bool and name != "aten::masked_fill":  # a comparison
        if x.dtype in _HALF:
            raise Refuse(
                "a size is compared with a low-precision number",
                *sizes,
                remedy="compare in float32",
            )
        if not x.dtype.is_floating_point and any(map(fractional, sizes)):
            raise Refuse(
                "a fraction of sizes is compared with an integer",
                *sizes,
                remedy="compare in float32",
            )
        return torch.int64 if x.dtype is torch.bool else x.dtype
    if result in _HALF:
        if name not in _IN_FLOAT:
            raise Refuse(
                f"a size is used as a number of {result}", *sizes, remedy="compute it in float32"
            )
        return torch.float32
    return result


def _checked(emit: Emitter, op: OpOverload, size: Size, dtype: torch.dtype, place: int) -> Padded:
    """The number, of which eager has no other one in this dtype.  Raises: Refuse where that is not
    known.
    """
    integral = not dtype.is_floating_point and dtype is not torch.bool
    if integral and dtype is not torch.int64 and capacity(size) > torch.iinfo(dtype).max:
        raise Refuse(f"{size} may be larger than {dtype} holds", size)
    if integral and op is _aten.pow.Tensor_Tensor and place == 1 and not known(size >= 0):
        raise Refuse(f"{size} is not known to be at least 0", size)
    return at_run_time(emit, size, dtype)


def at_run_time(emit: Emitter, size: Size, dtype: torch.dtype) -> Padded:
    """A 0-d tensor of a dtype with a size, or a fraction of sizes, that is read at run time."""
    made = emit.fraction(size) if fractional(size) else emit.size(size)
    if made.spec.dtype is not dtype:
        made = emit.call(_aten._to_copy.default, made, dtype=dtype)
    emit.repaired(f"number: {size} read at run time", size)
    fill = GARBAGE if fractional(size) else FINITE
    return Padded(made, (), fill, fill)


def never_zero(emit: Emitter, size: Any, divisor: Padded, axes: tuple[Axis, ...]) -> Padded:
    """An integer divisor, a ``size`` or a tensor, that is 0 only where eager sees it: not where
    there is no result.
    """
    if varies(size) and known(size >= 1):
        return divisor
    total: Size = 1
    for axis in axes:
        if any(agree(axis, own) for own in divisor.axes):
            continue  # without it there is no divisor either
        for each in axis:
            total = total if known(each >= 1) else total * each
    if not varies(total):
        return divisor
    none = emit.call(_aten.eq.Scalar, emit.size(total), 0)
    emit.repaired(f"divisor: none is looked at where {total} is 0", total)
    one = number(emit, 1, divisor)
    return divisor.with_(tensor=emit.call(_aten.where.self, none, one, divisor.tensor))


def rooted(emit: Emitter, power: Handle, base: Handle, exponent: Any) -> Handle:
    """Return a power whose exponent, a fraction of sizes, may be a half or minus a half.

    Eager's kernels of a number take the root there, which differs for -0.0 and minus infinity.

    Source: ATen/native/cpu/PowKernel.cpp, ATen/native/cuda/PowKernel.cu.
    """
    number = emit.fraction(exponent)
    for half, root in ((0.5, _aten.sqrt.default), (-0.5, _aten.rsqrt.default)):
        is_half = emit.call(_aten.eq.Scalar, number, half)
        power = emit.call(_aten.where.self, is_half, emit.call(root, base), power)
    return power
