"""A store in a test's own folder, and what a compiled function tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import symshape
from symshape import events

TOLD = (events.Stored, events.NotStored, events.Loaded, events.NotServed, events.StoreFailed)


@contextmanager
def told() -> Iterator[list[Any]]:
    """The events of stores inside."""
    found: list[Any] = []
    unsubscribe = events.subscribe(
        lambda event: found.append(event) if isinstance(event, TOLD) else None
    )
    try:
        yield found
    finally:
        unsubscribe()


def compiled(fn: Callable[..., Any], folder: Path | str, **options: Any) -> Any:
    """``fn`` compiled as a new process would compile it, with a store in the folder."""
    made = symshape.compile(fn, store=folder, **{"dynamic": True, "fullgraph": True, **options})
    return symshape.compiled_of(made) if not isinstance(made, symshape.Compiled) else made


def counts(fn: Any) -> tuple[int, int]:
    """Programs traced and loaded."""
    found = fn.stats()
    return found.traces, found.loaded


def entries(folder: Path) -> list[Path]:
    """The files of entries."""
    return sorted(folder.glob("*/*.entry"))
