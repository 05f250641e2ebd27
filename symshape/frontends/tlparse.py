"""Traced programs as artefacts of ``TORCH_TRACE``, which tlparse shows: the one place with torch's structured log.

``torch._logging.trace_structured`` and ``torch._logging._internal.trace_log`` are private; checked on 2.11 to 2.13.
Where they are missing, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable

import torch._logging
import torch._logging._internal

from symshape.graph.program import Program
from symshape.graph.text import text


def recorded(program: Program) -> Program:
    """The program itself, after its guards and ops were written as artefacts, if somebody collects them.

    Torch's handler is there until the first record shows it that nobody does, so the long text comes last.
    """
    write = getattr(torch._logging, "trace_structured", None)
    if write is not None:
        _artefact(write, f"symshape_{program.name}_guards", lambda: program.guards.text() or "no guards")
        _artefact(write, f"symshape_{program.name}_graph", lambda: text(program.graph))
    return program


def _artefact(write: Callable[..., None], name: str, payload: Callable[[], str]) -> None:
    log = getattr(torch._logging._internal, "trace_log", None)
    if log is not None and log.handlers:
        write(
            "artifact",
            metadata_fn=lambda: {"name": name, "encoding": "string"},
            payload_fn=payload,
            expect_trace_id=False,
        )
