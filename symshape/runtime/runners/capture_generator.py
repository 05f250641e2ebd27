"""The state of a device's generator of random numbers that a capture works with.

torch has one generator a device.  From the beginning of a capture to its end that is in a capture, for all threads:
``torch.rand`` of another thread is an error meanwhile ("Offset increment outside graph capture"), and one of the same
thread is, from a capture on that failed half way.  So what draws nothing is captured with a state that is put aside
right after the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def begin_aside(begin: Callable[[], object], device: torch.device) -> None:
    """Begins a capture of what draws no random numbers; the generator of the device is in no capture afterwards.

    Args:
        begin: begins it; it may raise.
        device: where, with its index.
    """
    default = torch.cuda.default_generators[device.index or 0]
    own = default.graphsafe_get_state()
    aside = default.clone_state()
    aside.seed()  # another thread that draws at this very moment gets numbers that nobody else has
    default.graphsafe_set_state(aside)
    try:
        begin()
    finally:
        default.graphsafe_set_state(own)
