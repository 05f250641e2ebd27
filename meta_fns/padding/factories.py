"""Tensors made from nothing, at their capacities: constants, ranges."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import Axis, capacity_of, varies
from meta_fns.padding.fills import GARBAGE, Fill, constant
from meta_fns.padding.numbers import at_run_time
from meta_fns.padding.padded import Emitter, Handle, Padded, lowered, with_sizes
from meta_fns.padding.refusals import Refuse
from meta_fns.padding.repairs import positions

__all__ = ["filled", "like", "number", "range_of"]

_aten = torch.ops.aten


_NUMBERS = {"zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}


def filled(emit: Emitter, *args: Any, **kwargs: Any) -> Padded:
    """A new tensor of given sizes, each element the same number (or, where none is given, anything)."""
    axes = with_sizes(emit)
    names = [argument.name for argument in emit.op._schema.arguments]
    at = names.index("size")
    caps = list(map(capacity_of, axes))
    given = dict(zip(names, args, strict=False))
    if varies(given.get("fill_value")):
        plain = (caps if i == at else 0 if names[i] == "fill_value" else lowered(arg) for i, arg in enumerate(args))
        spec = emit.results[0]
        assert spec is not None
        zeros = emit.call(emit.op, *plain, **{**kwargs, "dtype": spec.dtype})
        return _filled_at_run_time(emit, zeros, axes, given["fill_value"])
    tensor = emit.call(emit.op, *(caps if i == at else lowered(arg) for i, arg in enumerate(args)), **kwargs)
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
    held = torch.tensor(s).to(tensor.spec.dtype).item() if isinstance(s, (bool, int, float)) else None
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
    if varies(step) or any(isinstance(each, float) for each in args) or spec.dtype is not torch.int64:
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
