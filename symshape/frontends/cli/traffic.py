"""Recorded traffic in command-line options: a file, its columns, and sizes that are always the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from symshape.errors import InputError
from symshape.exploring.traffic import bundled_requests
from symshape.planning.traffic import Traffic


def read_traffic(path: Path | None, columns: Sequence[str], fixed: Sequence[str]) -> Traffic | None:
    """Return the traffic of ``--traffic FILE --column length=ContextTokens --fixed batch=1``; None
    without a file.

    Raises:
        InputError: a column is missing, or no column is named for the sizes.
    """
    pairs = dict(_pair(text, "--column", "COLUMN") for text in columns)
    if path is None:
        if pairs:
            raise InputError("--column is for --traffic FILE")
        return None
    if not pairs:
        raise InputError("say which column holds which size: --column length=ContextTokens")
    return _having(Traffic.read(path, pairs), fixed)


def bundled_traffic(fixed: Sequence[str]) -> Traffic:
    """Return the bundled sample of Azure's trace: the lengths of its requests."""
    seen = Traffic.of([request.context_tokens for request in bundled_requests()], ("length",))
    return _having(seen, fixed)


def _having(seen: Traffic, fixed: Sequence[str]) -> Traffic:
    sizes = {name: int(value) for name, value in (_pair(text, "--fixed", "SIZE") for text in fixed)}
    return seen.having(**sizes) if sizes else seen


def _pair(text: str, option: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier() or not value.strip():
        raise InputError(f"{option} {text!r} should be NAME={what}")
    return name.strip(), value.strip()
