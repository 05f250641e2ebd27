"""Makers of tensors whose schemas take plain integers where a size may be passed:
``torch.linspace(0, 1, n)``.

C++ would fix such a size before any mode sees the call. The recorded op gets its number when the
graph runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

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
