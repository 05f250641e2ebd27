"""Traced programs as artefacts of ``TORCH_TRACE``, which tlparse shows: the only use of torch's structured log.

``torch._logging.trace_structured`` and ``torch._logging._internal.trace_log`` are private; checked on 2.11 to 2.13.
Where they are missing, nothing is written.
"""

from __future__ import annotations

import os
from typing import Any

import torch._logging
import torch._logging._internal

from symshape.graph.program import Program
from symshape.graph.text import text


def recorded(program: Program) -> Program:
    """Return the program, after writing its ops and guards as artefacts if a handler collects them."""
    log = getattr(torch._logging._internal, "trace_log", None)
    write = getattr(torch._logging, "trace_structured", None)
    if log is not None and write is not None and any(map(_collects, log.handlers)):
        for what, payload in (("graph", text(program.graph)), ("guards", program.guards.text() or "no guards")):
            _artefact(write, f"symshape_{program.name}_{what}", payload)
    return program


def _collects(handler: Any) -> bool:
    """Return whether a handler stores records: torch installs one without a folder unless ``TORCH_TRACE`` names one.

    (That handler removes itself at the first record, for which the whole graph would have to be printed.)
    """
    return getattr(handler, "root_dir", "") is not None or "MAST_HPC_JOB_NAME" in os.environ


def _artefact(write: object, name: str, payload: str) -> None:
    assert callable(write)
    write(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "string"},
        payload_fn=lambda: payload,
        expect_trace_id=False,
    )
