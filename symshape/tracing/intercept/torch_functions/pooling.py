"""Pooling with windows given by sizes: ``F.avg_pool2d(x, x.shape[2:])``.

C++ would fix such a size before any mode sees the call. The recorded op gets its numbers when the
graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from meta_fns.torch_internals import OpOverload
from symshape.tracing.intercept.torch_functions.whole_composites import can_be_whole, run_whole
from symshape.tracing.symbolic.tensors import SymbolicTensor

aten = torch.ops.aten
_F = torch.nn.functional


def _pool(
    function: Callable[..., Any], op: OpOverload, finish: Callable[[Any], Any]
) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]

    def use(input: SymbolicTensor, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        sizes = [
            size
            for each in given
            for size in (each if isinstance(each, (list, tuple)) else (each,))
        ]
        if not any(type(size) is torch.SymInt for size in sizes) or not can_be_whole((input,)):
            return function(input, *args, **kwargs)
        found = {name: value for name, value in kwargs.items() if name != "return_indices" or value}
        found |= dict(zip(names[1:], args, strict=False))
        if len(args) >= len(names) or not found.keys() <= set(names):
            return function(input, *args, **kwargs)
        return finish(run_whole(op, [input, *_in_order(op, found)]))

    return use


def _in_order(op: OpOverload, found: dict[str, Any]) -> list[Any]:
    """Return all arguments after the first in schema order; a lone number becomes a list where the
    schema has one.
    """
    values: list[Any] = []
    for slot in op._schema.arguments[1:]:
        value = found.get(slot.name, slot.default_value)
        if value is None and slot.name == "stride":
            value = []
        if str(slot.type) == "List[int]":
            value = list(value) if isinstance(value, Sequence) else [value]
        values.append(value)
    return values


def _itself(result: Any) -> Any:
    return result


def _values(result: Any) -> Any:
    return result[0]


HANDLERS: dict[Any, Callable[..., Any]] = {
    _F.avg_pool2d: _pool(_F.avg_pool2d, aten.avg_pool2d.default, _itself),
    _F.avg_pool3d: _pool(_F.avg_pool3d, aten.avg_pool3d.default, _itself),
    _F.max_pool2d: _pool(_F.max_pool2d, aten.max_pool2d_with_indices.default, _values),
}
"""The replacements for torch's pooling functions, by function; ``FunctionMode`` calls these."""
