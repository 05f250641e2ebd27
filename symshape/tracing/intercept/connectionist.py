"""CTC loss of lengths on another device than the probabilities: C++ reads them there, which a graph does where it runs.

Taken apart for a mode, the loss divides by the lengths where they lie; one kernel computes on one device.
"""

from __future__ import annotations

from typing import Any

import torch

from symshape.tracing.symbolic.tensors import SymbolicTensor

_ctc_loss = torch.ctc_loss


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **named: Any
) -> torch.Tensor:
    """As ``torch.ctc_loss``; targets and lengths that are tensors are where the probabilities are."""
    given = (targets, input_lengths, target_lengths)
    if type(log_probs) is SymbolicTensor and all(isinstance(each, torch.Tensor) for each in given):
        targets, input_lengths, target_lengths = (each.to(log_probs.device) for each in given)
    return _ctc_loss(log_probs, targets, input_lengths, target_lengths, *args, **named)


HANDLERS: dict[Any, Any] = {_ctc_loss: ctc_loss}
"""What a function mode sees of CTC loss, and what to do instead."""
