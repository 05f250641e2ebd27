"""Composites inside ``torch.func.grad``, ``vjp`` and ``jvp``, whose tensors are wrapped around
symbolic ones.

C++ computes these composites and their gradients with plain sizes, which would fix them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.intercept.torch_functions import sized_composites, stft
from symshape.tracing.intercept.vmapped_branches import under_gradients


def _masked_select(input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Compute ``torch.masked_select`` by indexing, whose gradient takes symbolic sizes."""
    tensor, chosen = torch.broadcast_tensors(input, mask)
    found: torch.Tensor = tensor[chosen]
    return found


def _where_wrapped(handler: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``handler`` for tensors that a gradient transform wraps around symbolic ones,
    ``function`` for others.
    """

    def answer(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        chosen = function if under_gradients(tensor) is None else handler
        return chosen(tensor, *args, **kwargs)

    return answer


_COMPOSITES: dict[Any, Callable[..., Any]] = {
    **stft.HANDLERS,
    **sized_composites.HANDLERS,
    **dict.fromkeys((torch.masked_select, torch.Tensor.masked_select), _masked_select),
}
HANDLERS = {
    function: _where_wrapped(handler, function) for function, handler in _COMPOSITES.items()
}
"""The replacements inside gradient transforms, by function; ``FunctionMode`` calls these."""
