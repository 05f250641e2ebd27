"""CTC loss with lengths on another device than the probabilities.

C++ reads the lengths on their own device. The decomposition that a mode sees would divide by the
lengths there, and one kernel computes on one device. So the lengths are moved to the device of the
probabilities. The loss moves the targets itself, as in eager. Source:
aten/src/ATen/native/LossCTC.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.tracing.symbolic.tensors import SymbolicTensor


def _on_one_device(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return torch's function, called with length tensors moved to the device of the
    probabilities.
    """

    def ctc_loss(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        *args: Any,
        **named: Any,
    ) -> torch.Tensor:
        lengths = (input_lengths, target_lengths)
        if type(log_probs) is SymbolicTensor and all(
            isinstance(each, torch.Tensor) for each in lengths
        ):
            input_lengths, target_lengths = (each.to(log_probs.device) for each in lengths)
        return function(log_probs, targets, input_lengths, target_lengths, *args, **named)

    return ctc_loss


HANDLERS: dict[Any, Any] = {
    each: _on_one_device(each) for each in (torch.ctc_loss, torch.nn.functional.ctc_loss)
}
"""The replacements for torch's CTC loss functions, by function; ``FunctionMode`` calls these."""
