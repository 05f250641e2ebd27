"""Torch's structured log: artefacts of ``TORCH_TRACE``, which tlparse shows.

``torch._logging.trace_structured`` and ``torch._logging._internal.trace_log`` are private; checked
on 2.11 to 2.15. Where they are missing, nothing is written.
"""

from __future__ import annotations

from typing import Any

import torch._logging
import torch._logging._internal

from symshape.environment_variables import STRUCTURED_LOG

__all__ = ["collects", "write_artefact"]


def collects() -> bool:
    """Return whether a handler stores artefacts."""
    log = getattr(torch._logging._internal, "trace_log", None)
    known = hasattr(torch._logging, "trace_structured")
    return log is not None and known and any(map(_stores, log.handlers))


def _stores(handler: Any) -> bool:
    """Return whether a handler stores records: torch installs one without a folder unless
    ``TORCH_TRACE`` names one.

    (That handler removes itself at the first record, for which the whole graph would have to be
    printed.)
    """
    return getattr(handler, "root_dir", "") is not None or STRUCTURED_LOG.is_set()


def write_artefact(name: str, payload: str) -> None:
    """Write a text under a name."""
    write: Any = vars(torch._logging)["trace_structured"]
    write(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "string"},
        payload_fn=lambda: payload,
        expect_trace_id=False,
    )
