"""Tensors made from nothing, at their capacities: constants, ranges."""

from __future__ import annotations

from typing import Any

import torch

from meta_fns.core.sizes import Size, known
from meta_fns.padding.axes import capacity_of, varies
from meta_fns.padding.fills import FINITE, GARBAGE, Fill, constant
from meta_fns.padding.padded import Emitter, Padded, lowered, with_sizes
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
    tensor = emit.call(emit.op, *(caps if i == at else lowered(arg) for i, arg in enumerate(args)), **kwargs)
    fill = _fill(emit, dict(zip(names, args, strict=False)), tensor.spec.dtype)
    return Padded(tensor, axes, fill, fill)


def like(emit: Emitter, self: Padded, *args: Any, **kwargs: Any) -> Padded:
    """A new tensor of the sizes of another, each element the same number (or anything)."""
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
        emit.repaired(f"number: {s} read at run time", s)
        return Padded(emit.call(_aten._to_copy.default, emit.size(s), dtype=spec.dtype), (), FINITE, FINITE)
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
