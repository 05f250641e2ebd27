"""Makers of tensors whose schemas take plain integers where a size may be passed:
``torch.linspace(0, 1, n)``.

C++ would fix such a size before any mode sees the call. The recorded op gets its number when the
graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from symshape.tracing.intercept.python_numbers.operators import of_numpy
from symshape.tracing.intercept.python_numbers.operators import plain as plain_number
from symshape.tracing.symbolic.tensors import Trace

aten = torch.ops.aten
OPS = {
    torch.linspace: aten.linspace.default,
    torch.logspace: aten.logspace.default,
    torch.fft.fftfreq: aten.fft_fftfreq.default,
    torch.fft.rfftfreq: aten.fft_rfftfreq.default,
    torch.tril_indices: aten.tril_indices.default,
    torch.triu_indices: aten.triu_indices.default,
    torch.hann_window: aten.hann_window.default,
    torch.hamming_window: aten.hamming_window.default,
    torch.bartlett_window: aten.bartlett_window.default,
    torch.blackman_window: aten.blackman_window.default,
    torch.kaiser_window: aten.kaiser_window.default,
}
"""The ATen op of each of these torch functions."""

_OPTIONS = 4  # dtype, layout, device and pin_memory, the last arguments of each
_SEEN_TO = {"dtype", "device"}
_USUAL: dict[str, tuple[Any, ...]] = {
    "layout": (torch.strided,),
    "requires_grad": (False,),
    "pin_memory": (False, None),
    "device": (None,),
    "dtype": (None,),
}
_WINDOWS = {
    *(torch.hann_window, torch.hamming_window, torch.bartlett_window),
    *(torch.blackman_window, torch.kaiser_window),
}


def make(function: Any, trace: Trace, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute the tensor that one of these functions makes."""
    op = OPS[function]
    kwargs = {
        name: value
        for name, value in kwargs.items()
        if name not in _USUAL or value not in _USUAL[name]
    }
    if function in _WINDOWS and ("periodic" in kwargs or len(args) > 1):
        op = getattr(aten, op._schema.name.removeprefix("aten::")).periodic
    slots = op._schema.arguments[:-_OPTIONS]
    given = {**dict(zip((slot.name for slot in slots), args, strict=False)), **kwargs}
    options = {name: given.pop(name) for name in _SEEN_TO & given.keys()}
    numbers = [given.pop(slot.name, slot.default_value) for slot in slots]
    plain = options.get("device") is not None or torch.get_default_device().type == "cpu"
    if not plain or given or len(args) > len(slots) or not _sizes_and_numbers(numbers):
        return function(*args, **kwargs)
    return trace.dispatch(op, tuple(numbers), options)


def _sizes_and_numbers(numbers: Sequence[Any]) -> bool:
    """Return whether all are numbers, with a symbolic size among them."""
    kinds = [type(number) for number in numbers]
    return torch.SymInt in kinds and all(
        kind in (int, float, bool, torch.SymInt, torch.SymFloat) for kind in kinds
    )


def pad_sequence(
    sequences: Sequence[torch.Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> torch.Tensor:
    """Compute ``torch.nn.utils.rnn.pad_sequence``: copy each sequence into its place in one full
    tensor.

    Source: aten/src/ATen/native/PackedSequence.cpp.
    """
    first = sequences[0]
    rest = first.shape[1:]
    longest: Any = first.size(0)
    for each in sequences[1:]:
        longest = torch.sym_max(longest, each.size(0))
    shape = (len(sequences), longest) if batch_first else (longest, len(sequences))
    made = torch.full((*shape, *rest), padding_value, dtype=first.dtype, device=first.device)
    for i, each in enumerate(sequences):
        start = 0 if padding_side == "right" else longest - each.size(0)
        made.select(0 if batch_first else 1, i).narrow(0, start, each.size(0)).copy_(each)
    return made


# -- Tensors made of numbers, some of which are symbolic sizes or floats: ``torch.tensor([x.size(0),
# 2])``.
#
# C++ keeps 32 bits of a symbolic integer (torch 2.11 to 2.13), and nothing of a float that
# depends on data. So each number becomes a tensor of its own.

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
