"""Batch norm with a cumulative average (``momentum=None``), whose momentum C++ takes for a plain
number.

The number of batches is a tensor, so the weight of the next batch in the running statistics is
known only when the graph runs. The result does not depend on it: the layer without statistics gives
the same. A separate call, by the kernel that eager runs, writes the statistics.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.tracing.intercept.torch_functions.whole_composites import can_be_whole
from symshape.tracing.symbolic.tensors import SymbolicTensor

_batch_norm = torch.nn.functional.batch_norm
_kernel = torch.ops.aten.native_batch_norm.default


def batch_norm(
    input: SymbolicTensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Compute ``torch.nn.functional.batch_norm`` with a momentum that depends on data."""
    given = running_mean, running_var
    counted = type(momentum) is torch.SymFloat and type(eps) is float and type(training) is bool
    if (
        not counted
        or None in given
        or not can_be_whole((input, *given, weight, bias), on_cuda=True)
    ):
        return _batch_norm(input, *given, weight, bias, training, momentum, eps)
    if not training:
        return _batch_norm(input, *given, weight, bias, False, 0.0, eps)
    found = _batch_norm(input, None, None, weight, bias, True, 0.0, eps)
    with torch.no_grad():
        input._tracer.dispatch(_kernel, (input, None, None, *given, True, momentum, eps), {})
    return found


HANDLERS: dict[Any, Any] = {_batch_norm: batch_norm}
"""The replacement for torch's batch norm, by function; ``FunctionMode`` calls it."""
