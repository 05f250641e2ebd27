"""A progress bar, if ``rich`` is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Show a progress bar within the block. The yielded function advances it and names the next
    step.

    >>> with progress_bar("capturing", 2, shown=False) as step:
    ...     step("the second")
    """
    try:
        if not shown:
            raise ImportError
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        yield lambda text: None
        return
    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TextColumn("{task.description}"), transient=True) as progress:
        task = progress.add_task("", total=total, title=title)
        yield lambda text: progress.update(task, advance=1, description=text)
