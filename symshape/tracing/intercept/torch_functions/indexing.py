"""Indexing, ``tensor[index]``, with symbolic integers: C++ would turn them into plain numbers,
which fixes the size.

``x[:, n - 1]`` is ``x.select(1, n - 1)``, and select keeps ``n`` symbolic. The same works for a
number that depends on data, read from an index tensor without dimensions, as in
``x[scores.argmax()]``.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import torch

from meta_fns.torch_internals import guard_or_false
from symshape.tracing.symbolic.nodes.int_node import IntNode
from symshape.tracing.symbolic.tensors import SymbolicTensor

_plain_getitem = torch.Tensor.__getitem__
_plain_setitem = torch.Tensor.__setitem__
_BASIC = (int, torch.SymInt, slice, EllipsisType, type(None))
_SYMBOLIC = (SymbolicTensor, torch.SymInt, torch.SymBool, slice)
_POSITIONS = (torch.int64, torch.int32, torch.int16, torch.int8)
_TENSORS = (torch.Tensor, torch.nn.Parameter, SymbolicTensor)
_ASKS_WHAT_FITS = torch.torch_version.TorchVersion(torch.__version__) < "2.13"
"""True if C++ tests that an indexed write's value fits its destination, although these sizes depend
on data.
"""


def getitem(tensor: torch.Tensor, index: Any) -> Any:
    """Compute ``tensor[index]``; an index with a symbolic integer is applied item by item here."""
    index = _with_numbers(index)
    if type(index) is torch.SymInt:
        return tensor.select(0, index)
    if type(index) is not tuple or not any(type(item) is torch.SymInt for item in index):
        return _plain_getitem(tensor, index)
    if not _basic(index, tensor.dim()):
        return _plain_getitem(*_picked(tensor, index))
    return _one_by_one(tensor, index, tensor.dim() - _taken(index))


def setitem(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """Compute ``tensor[index] = value``; the value goes into a view where ``getitem`` applies the
    index itself.
    """
    index = _with_numbers(index)
    parts = index if type(index) is tuple else (index,)
    if (
        _ASKS_WHAT_FITS
        and type(tensor) is type(value) is SymbolicTensor
        and _basic(parts, tensor.dim())
    ):
        _write(getitem(tensor, index), value)
    elif not any(type(item) is torch.SymInt for item in parts):
        _plain_setitem(tensor, index, value)
    elif _basic(parts, tensor.dim()):
        _plain_setitem(getitem(tensor, index), ..., value)
    else:
        _plain_setitem(*_picked(tensor, parts), value)


def _write(place: Any, value: SymbolicTensor) -> None:
    """Write a value into a view as C++ of 2.13 does: broadcast it unless its sizes are known to be
    those of the view.

    Source: aten/src/ATen/TensorIndexing.h (``copy_to``).
    """
    sizes = value._spec.sizes
    if type(place) is not SymbolicTensor or all(
        type(s) is int or s.has_hint() for s in (*sizes, *place._spec.sizes)
    ):
        _plain_setitem(place, ..., value)
    elif len(sizes) == place.dim() and all(
        map(guard_or_false, map(operator.eq, place.shape, value.shape))
    ):
        place.copy_(value)
    elif not sizes:
        _plain_setitem(place, ..., value)
    else:
        ones = next((d for d, size in enumerate(sizes) if _may_be_more(size)), len(sizes))
        place.copy_(value.view(value.shape[ones:]).expand(place.shape))


def _may_be_more(size: Any) -> bool:
    """Return whether a size is not known to be 1."""
    return bool((type(size) is IntNode and not size.has_hint()) or size != 1)


def is_symbolic(index: Any) -> bool:
    """Return whether an index holds symbolic integers, conditions, slices or traced tensors."""
    parts = index if type(index) is tuple else (index,)
    return any(type(item) in _SYMBOLIC for item in parts)


def _with_numbers(index: Any) -> Any:
    """Return the index with numbers in place of tensors that C++ would read: slice bounds, 0-dim
    integers.

    A condition on sizes is decided. C++ would read it as the integer 0 or 1, but an index of class
    ``bool`` is a mask.
    """
    if type(index) is tuple:
        return tuple(map(_with_numbers, index))
    if type(index) is torch.SymBool:
        return bool(index)
    if type(index) in _TENSORS:
        return index.item() if index.dtype in _POSITIONS and not index.dim() else index
    if type(index) is not slice or SymbolicTensor not in map(
        type, (index.start, index.stop, index.step)
    ):
        return index
    return slice(
        *(
            b.item() if type(b) is SymbolicTensor else b
            for b in (index.start, index.stop, index.step)
        )
    )


def _basic(index: tuple[Any, ...], dims: int) -> bool:
    """Return whether an index is basic: integers, slices, None, one ``...`` at most, no more items
    than dimensions.
    """
    if any(isinstance(item, bool) or not isinstance(item, _BASIC) for item in index):
        return False
    return _taken(index) <= dims and sum(item is Ellipsis for item in index) <= 1


def _taken(index: tuple[Any, ...]) -> int:
    return sum(item is not None and item is not Ellipsis for item in index)


def _picked(tensor: torch.Tensor, index: tuple[Any, ...]) -> tuple[torch.Tensor, Any]:
    """Select at the integers first, as C++ does for an index that also holds tensors; return the
    rest of the index.

    An index that this function does not understand goes to C++ with plain integers: a guard fixes
    each.
    """
    taken = [_dims_of(item) for item in index]
    rest = tensor.dim() - sum(each for each in taken if each is not None)
    if None in taken or sum(item is Ellipsis for item in index) > 1 or rest < 0:
        return tensor, tuple(int(item) if type(item) is torch.SymInt else item for item in index)
    left: list[Any] = []
    d = 0
    for item, dims in zip(index, taken, strict=True):
        if type(item) is torch.SymInt:
            tensor = tensor.select(d, item)
            continue
        left.append(item)
        d += rest if item is Ellipsis else dims or 0
    return tensor, tuple(left)


def _dims_of(item: Any) -> int | None:
    """Return how many dimensions of a tensor an index item consumes; None if that is not known
    here.
    """
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    if type(item) in (int, torch.SymInt, slice):
        return 1
    if type(item) is list and all(type(each) is int for each in item):
        return 1
    if type(item) not in _TENSORS:
        return None
    return item.dim() if item.dtype in (torch.bool, torch.uint8) else 1


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
