"""Attention masks whose content is known from how the program made them: all true, or causal.

In eager, libraries look at a mask's values and leave such masks out; where ``torch.compiler``
traces they make them. On CUDA, attention with a mask runs slower kernels, and a mask whose last
dimension is not dense leaves only the slowest. On the CPU one kernel serves both cases, so the
program stays unchanged there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from symshape.torch_internals import operators
from symshape.tracing.intercept.positions import Band, Positions
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

__all__ = ["ATTENTION", "KnownMasks"]

ATTENTION: Any = operators.nn.scaled_dot_product_attention
KERNELS_DIFFER_ON = frozenset({"cuda"})
"""The types of devices on which masks are left out."""
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class KnownMasks:
    """The attention masks of one trace.

    Args:
        trace: the trace, which grows.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._positions = Positions(trace)

    def left_out(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any], Any]:
        """Return the arguments of ``scaled_dot_product_attention`` without a mask whose content is
        known.
        """
        if len(args) > len(_NAMES):
            return args, kwargs
        named = {**dict(zip(_NAMES, args, strict=False)), **(kwargs or {})}
        mask = named.get("attn_mask")
        if (
            type(mask) is not SymbolicTensor
            or mask._tracer is not self._trace
            or mask._spec.dtype is not torch.bool
        ):
            return args, kwargs
        if mask._spec.device.type not in KERNELS_DIFFER_ON:
            return args, kwargs
        rows_and_columns = self._fitting(mask, named)
        if named.get("is_causal", False) is not False or rows_and_columns is None:
            return args, kwargs
        held = self._positions.truth(mask._value)
        causal = type(held) is Band and self._is_causal(held, *rows_and_columns)
        if held is not True and not causal:
            return args, kwargs
        named["attn_mask"] = None
        if causal:
            named["is_causal"] = True
        return tuple(named.pop(name) for name in _NAMES[:3]), named

    def _fitting(self, mask: SymbolicTensor, named: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Return the lengths of queries and keys if the mask fits and does not broaden the result;
        else None.
        """
        query, key = named.get("query"), named.get("key")
        if (
            type(query) is not SymbolicTensor
            or type(key) is not SymbolicTensor
            or "value" not in named
        ):
            return None
        rows, columns, sizes = query._spec.sizes, key._spec.sizes, mask._spec.sizes
        if len(rows) < 2 or len(rows) != len(columns) or not 2 <= len(sizes) <= len(rows):
            return None
        equal = self._positions.equal
        pairs = zip(reversed(sizes), reversed((*rows[:-1], columns[-2])), strict=False)
        fits = all(equal(size, 1) or equal(size, whole) for size, whole in pairs)
        return (rows[-2], columns[-2]) if fits else None

    def _is_causal(self, band: Band, rows: Any, columns: Any) -> bool:
        """Return whether the band is the causal mask: a key comes no later than its query, and
        lengths are equal.
        """
        equal, steps = self._positions.equal, band.of.steps
        return (
            steps == (*[0] * (len(steps) - 2), 1, -1)
            and equal(band.of.start, 0)
            and equal(rows, columns)
        )
