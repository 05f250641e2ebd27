"""Tensors made of numbers, some of which are symbolic sizes or floats:
``torch.tensor([x.size(0), 2])``.

C++ keeps 32 bits of a symbolic integer (torch 2.11 to 2.13), and nothing of a float that depends on
data. So each number becomes a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from symshape.tracing.intercept.python_numbers.operators import of_numpy
from symshape.tracing.intercept.python_numbers.operators import plain as plain_number

aten = torch.ops.aten
_MOST = 64  # numbers
_DTYPES = (torch.int64, torch.float32, torch.float64)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def plain_maker(function: Any) -> Callable[..., Any]:
    """Return a maker of tensors that gets plain numbers: a guard fixes each size."""

    def plain(data: Any) -> Any:
        if type(data) is torch.SymInt or of_numpy(data):
            return plain_number(data)
        return type(data)(map(plain, data)) if type(data) in (list, tuple, torch.Size) else data

    return lambda *args, **kwargs: function(
        *map(plain, args),
        **{
            name: plain(value) if name in ("data", "obj") else value
            for name, value in kwargs.items()
        },
    )


def maker(function: Any) -> Callable[..., Any]:
    """Return a replacement for ``torch.tensor`` or a similar function that keeps numbers
    symbolic.
    """
    otherwise = plain_maker(function)

    def make(*args: Any, **kwargs: Any) -> Any:
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        items = list(_numbers(data)) if isinstance(data, (list, tuple, *_SYMBOLIC)) else []
        shape = _shape(data) if any(type(item) in _SYMBOLIC for item in items) else None
        floats = any(type(item) in (float, torch.SymFloat) for item in items)
        dtype = kwargs.get("dtype") or (torch.get_default_dtype() if floats else torch.int64)
        fine = (
            shape is not None
            and len(args) == 1
            and len(items) <= _MOST
            and kwargs.keys() <= {"dtype", "device"}
            and dtype in (_DTYPES[1:] if floats else _DTYPES)
            and torch.get_default_device().type == "cpu"
            and torch.device(kwargs.get("device") or "cpu").type == "cpu"
            and all(type(item) in (int, float, *_SYMBOLIC) and not of_numpy(item) for item in items)
        )
        if not fine or shape is None:
            return otherwise(*args, **kwargs)
        # From float64, so that a number that is too large becomes infinite, as in eager.
        first = torch.float64 if floats else dtype
        made = [aten.scalar_tensor.default(item, dtype=first).to(dtype) for item in items]
        return made[0] if shape == [] else torch.stack(made).view(shape)

    return make


def _numbers(data: Any) -> Iterator[Any]:
    """Yield the numbers in nested lists."""
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _numbers(each)
    else:
        yield data


def _shape(data: Any) -> list[int] | None:
    """Return the shape of nested lists; None if lists at one depth have different lengths."""
    if not isinstance(data, (list, tuple)):
        return []
    shapes = [_shape(each) for each in data]
    if not shapes or any(shape is None or shape != shapes[0] for shape in shapes):
        return None
    return [len(data), *(shapes[0] or ())]
