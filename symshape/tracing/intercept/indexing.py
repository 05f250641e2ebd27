"""``tensor[index]`` with symbolic integers among the indices: C++ turns them into plain numbers, which fixes the size.

``x[:, n - 1]`` is ``x.select(1, n - 1)``, and select keeps ``n`` a symbol.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import torch

from symshape.tracing.symbolic.tensors import SymbolicTensor

_plain_getitem = torch.Tensor.__getitem__
_plain_setitem = torch.Tensor.__setitem__
_BASIC = (int, torch.SymInt, slice, EllipsisType, type(None))


def getitem(tensor: SymbolicTensor, index: Any) -> Any:
    """``tensor[index]``; only basic indices with a symbolic integer among them are taken apart here."""
    index = _with_numbers(index)
    if type(index) is torch.SymInt:
        return tensor.select(0, index)
    if type(index) is not tuple or not any(type(item) is torch.SymInt for item in index):
        return _plain_getitem(tensor, index)
    if not _basic(index, tensor.dim()):
        return _plain_getitem(tensor, index)
    return _one_by_one(tensor, index, tensor.dim() - _taken(index))


def setitem(tensor: SymbolicTensor, index: Any, value: Any) -> None:
    """``tensor[index] = value``: where ``getitem`` takes the index apart, the value goes into the view."""
    index = _with_numbers(index)
    parts = index if type(index) is tuple else (index,)
    if any(type(item) is torch.SymInt for item in parts) and _basic(parts, tensor.dim()):
        _plain_setitem(getitem(tensor, index), ..., value)
    else:
        _plain_setitem(tensor, index, value)


def _with_numbers(index: Any) -> Any:
    """An index whose slices have numbers for bounds where they had tensors, as C++ has it."""
    if type(index) is tuple:
        return tuple(map(_with_numbers, index)) if any(type(item) is slice for item in index) else index
    if type(index) is not slice or SymbolicTensor not in map(type, (index.start, index.stop, index.step)):
        return index
    return slice(*(b.item() if type(b) is SymbolicTensor else b for b in (index.start, index.stop, index.step)))


def _basic(index: tuple[Any, ...], dims: int) -> bool:
    """Whether an index has integers, slices, None and one ``...`` at most, and no more of them than dimensions."""
    if any(isinstance(item, bool) or not isinstance(item, _BASIC) for item in index):
        return False
    return _taken(index) <= dims and sum(item is Ellipsis for item in index) <= 1


def _taken(index: tuple[Any, ...]) -> int:
    return sum(item is not None and item is not Ellipsis for item in index)


def _one_by_one(tensor: torch.Tensor, index: tuple[Any, ...], rest: int) -> torch.Tensor:
    d = 0
    for item in index:
        if item is None:
            tensor = tensor.unsqueeze(d)
        elif item is Ellipsis:
            d += rest
            continue
        elif isinstance(item, slice):
            if item != slice(None):
                tensor = _plain_getitem(tensor, (*(slice(None),) * d, item))
        else:
            tensor = tensor.select(d, item)
            continue
        d += 1
    return tensor
