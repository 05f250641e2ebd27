"""Tensors made from nothing, at their capacities: constants, ranges."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, capacity_of, varies
from meta_fns.padding.fills import GARBAGE, Fill, constant
from meta_fns.padding.padded import Emitter, Handle, Padded, lowered, with_sizes
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import positions
from meta_fns.padding.symbolic_scalars import at_run_time

__all__ = ["evenly", "filled", "like", "number", "range_of", "strided"]

_aten = torch.ops.aten


_NUMBERS = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}


def filled(emit: Emitter, *args: Any, **kwargs: Any) -> Padded:
    """A new tensor of given sizes, each element the same number (or, where none is given,
    anything).
    """
    axes = with_sizes(emit)
    names = [argument.name for argument in emit.op._schema.arguments]
    at = names.index("size")
    caps = list(map(capacity_of, axes))
    given = dict(zip(names, args, strict=False))
    if varies(given.get("fill_value")):
        plain = (
            caps if i == at else 0 if names[i] == "fill_value" else lowered(arg)
            for i, arg in enumerate(args)
        )
        spec = emit.results[0]
        assert spec is not None
        zeros = emit.call(emit.op, *plain, **{**kwargs, "dtype": spec.dtype})
        return _filled_at_run_time(emit, zeros, axes, given["fill_value"])
    tensor = emit.call(
        emit.op, *(caps if i == at else lowered(arg) for i, arg in enumerate(args)), **kwargs
    )
    fill = _fill(emit, dict(zip(names, args, strict=False)), tensor.spec.dtype)
    return Padded(tensor, axes, fill, fill)


def _filled_at_run_time(emit: Emitter, zeros: Handle, axes: tuple[Axis, ...], size: Size) -> Padded:
    """A tensor with the same number of sizes everywhere."""
    spec = emit.results[0]
    assert spec is not None
    dtype = spec.dtype
    if dtype.is_complex or (dtype not in (torch.int64, torch.bool) and not dtype.is_floating_point):
        raise Refuse(f"whether {dtype} holds {size} depends on the sizes", size)
    value = at_run_time(emit, size, dtype)
    return Padded(emit.call(_aten.fill.Tensor, zeros, value.tensor), axes, value.fill, value.fill)


def strided(emit: Emitter, *args: Any, **kwargs: Any) -> Padded:
    """``empty_strided`` and its kin: memory that nobody has written to, whose strides play no part
    in padding.
    """
    axes = with_sizes(emit)
    spec = emit.results[0]
    assert spec is not None
    return Padded(
        emit.call(
            _aten.empty.memory_format,
            list(map(capacity_of, axes)),
            dtype=spec.dtype,
            device=spec.device,
        ),
        axes,
    )


def like(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Padded:
    """A new tensor of the sizes of another, each element the same number (or anything)."""
    spec = emit.results[0]
    assert spec is not None
    if emit.op is _aten.full_like.default and varies(args[0]):
        zeros = emit.call(emit.op, self.tensor, 0, *args[1:], **{**kwargs, "dtype": spec.dtype})
        return _filled_at_run_time(emit, zeros, self.axes, args[0])
    tensor = emit.call(emit.op, self.tensor, *map(lowered, args), **kwargs)
    names = [argument.name for argument in emit.op._schema.arguments]
    fill = _fill(emit, dict(zip(names[1:], args, strict=False)), tensor.spec.dtype)
    return Padded(tensor, self.axes, fill, fill)


def _fill(emit: Emitter, given: dict[str, Any], dtype: torch.dtype) -> Fill:
    number = given.get("fill_value", _NUMBERS.get(emit.op._schema.name.removeprefix("aten::")))
    if not isinstance(number, (bool, int, float)) or dtype.is_complex:
        return GARBAGE
    held = torch.tensor(number).to(dtype).item()
    return constant(held) if held == number else GARBAGE


def number(emit: Emitter, s: Any, **kwargs: Any) -> Padded:
    """``scalar_tensor``: of a size, the one that is written before each run."""
    if varies(s):
        spec = emit.results[0]
        assert spec is not None
        return at_run_time(emit, s, spec.dtype)
    tensor = emit.call(emit.op, s, **kwargs)
    held = (
        torch.tensor(s).to(tensor.spec.dtype).item() if isinstance(s, (bool, int, float)) else None
    )
    fill = constant(held) if held is not None and held == s else GARBAGE
    return Padded(tensor, (), fill, fill)


def range_of(emit: Emitter, *args: Size, **kwargs: Any) -> Padded:
    """``arange(end)``, ``arange(start, end)``, ``arange(start, end, step)``."""
    (axis,) = with_sizes(emit)
    spec = emit.results[0]
    assert spec is not None
    start: Size = args[0] if len(args) > 1 else 0
    step: Size = args[2] if len(args) > 2 else 1
    if not any(map(varies, args)):
        return Padded(emit.call(emit.op, *args, **kwargs), (axis,))
    if (
        varies(step)
        or any(isinstance(each, float) for each in args)
        or spec.dtype is not torch.int64
    ):
        raise Refuse("a range of fractions, or with a step, that depends on the sizes", *axis)
    if not known(spec.sizes[0] >= 0):
        raise Refuse("a range of unknown length", *axis)
    tensor = positions(emit, capacity_of(axis), spec.device)
    if step != 1:
        tensor = emit.call(_aten.mul.Tensor, tensor, step)
    if varies(start):
        tensor = emit.call(_aten.add.Tensor, tensor, emit.size(start))
        emit.repaired(f"number: a range from {start} read at run time", start)
    elif start != 0:
        tensor = emit.call(_aten.add.Tensor, tensor, start)
    return Padded(tensor, (axis,))


def evenly(emit: Emitter, start: Any, end: Any, steps: Size, **kwargs: Any) -> Padded:
    """``linspace``: from the start in the first half, from the end in the second one, as the op
    itself counts.
    """
    (axis,) = with_sizes(emit)
    spec = emit.results[0]
    assert spec is not None
    if not any(map(varies, (start, end, steps))):
        return Padded(emit.call(emit.op, *map(lowered, (start, end)), steps, **kwargs), (axis,))
    if spec.dtype not in (torch.float32, torch.float64) or any(
        isinstance(each, Padded) for each in (start, end)
    ):
        raise Refuse(
            f"a range of {spec.dtype}, or between tensors, of as many numbers as a size says", *axis
        )
    place = positions(emit, capacity_of(axis), spec.device)
    last = emit.call(_aten.sub.Tensor, emit.size(steps), 1)
    one = emit.call(
        _aten._to_copy.default, emit.call(_aten.clamp.default, last, 1), dtype=spec.dtype
    )
    ends = [
        at_run_time(emit, each, spec.dtype).tensor
        if varies(each)
        else emit.call(_aten.scalar_tensor.default, each, dtype=spec.dtype, device=spec.device)
        for each in (start, end)
    ]
    step = emit.call(_aten.div.Tensor, emit.call(_aten.sub.Tensor, ends[1], ends[0]), one)
    behind = emit.call(_aten.sub.Tensor, last, place)
    counted = [
        emit.call(_aten._to_copy.default, each, dtype=spec.dtype) for each in (place, behind)
    ]
    first = emit.call(_aten.add.Tensor, emit.call(_aten.mul.Tensor, counted[0], step), ends[0])
    second = emit.call(_aten.sub.Tensor, ends[1], emit.call(_aten.mul.Tensor, counted[1], step))
    half = emit.call(_aten.floor_divide.default, emit.size(steps), emit.size(2))
    early = emit.call(_aten.lt.Tensor, place, half)
    alone = emit.call(_aten.lt.Scalar, last, 1)
    early = emit.call(_aten.bitwise_or.Tensor, early, alone)
    emit.repaired(f"number: {steps} read at run time", steps)
    return Padded(emit.call(_aten.where.self, early, first, second), (axis,))
