"""The state of a device's random generator during a capture.

torch has one generator a device.  During a capture the generator is in capture mode for all
threads: ``torch.rand`` in another thread raises ("Offset increment outside graph capture"), and in
the same thread too after a capture that failed half way.  So a capture that draws no random numbers
uses a spare state, which is replaced right after its beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def begin_aside(begin: Callable[[], object], device: torch.device) -> None:
    """Begin a capture that draws no random numbers, and leave the device's generator outside the
    capture.

    Args:
        begin: begins the capture; it may raise.
        device: the device, with its index.
    """
    default = torch.cuda.default_generators[device.index or 0]
    own = default.graphsafe_get_state()
    aside = default.clone_state()
    aside.seed()  # a thread that draws at this very moment gets different numbers from all others
    default.graphsafe_set_state(aside)
    try:
        begin()
    finally:
        default.graphsafe_set_state(own)
