"""What a benchmark returns: tables, goals and notes, with where and when they were measured."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

RESULTS = Path(__file__).resolve().parent / "results"

Cell = str | int | float | bool | None


_writers: list[Callable[[Report], None]] = []
"""What writes a report that is not whole yet: the runner's, while a benchmark runs."""


@contextmanager
def writing(write: Callable[[Report], None]) -> Iterator[None]:
    """While it lasts, :meth:`Report.so_far` calls this with the report."""
    _writers.append(write)
    try:
        yield
    finally:
        _writers.pop()


class NotHere(Exception):
    """A benchmark cannot run on this machine (no CUDA, a peer not installed); the message says why.
    Not a failure.
    """


def bench_parser(doc: str | None, *, device: str = "cpu") -> argparse.ArgumentParser:
    """A parser with the flags every benchmark has: `--smoke`, `--seed`, `--device`; add your own to
    it.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="the smallest workload that runs every line: seconds, not minutes",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the workload (default: 0)")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default=device,
        help=f"where tensors live (default: {device})",
    )
    return parser


def against_parser(doc: str | None) -> argparse.ArgumentParser:
    """The flags of a benchmark that measures another checkout in turn, in processes of their
    own.
    """
    parser = bench_parser(doc)
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn")
    parser.add_argument(
        "--rounds", type=int, default=3, help="processes for each checkout (default: 3)"
    )
    parser.add_argument("--round", action="store_true", help="one round here, figures as JSON")
    return parser


@attrs.define
class Table:
    """One table of figures; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = attrs.field(factory=list)

    def row(self, *cells: Cell) -> None:
        """Append a row, one cell a column."""
        if len(cells) != len(self.columns):
            raise ValueError(
                f"table {self.title!r} has {len(self.columns)} columns, the row has {len(cells)}"
            )
        self.rows.append(cells)

    def text(self) -> str:
        """The table as Markdown, columns aligned."""
        grid = [self.columns, *[tuple(_show(cell) for cell in row) for row in self.rows]]
        widths = [max(len(line[i]) for line in grid) for i in range(len(self.columns))]
        lines = [
            "| "
            + " | ".join(_pad(cell, widths[i], left=i == 0) for i, cell in enumerate(line))
            + " |"
            for line in grid
        ]
        rule = (
            "|"
            + "|".join(
                ("-" * (w + 2)) if i == 0 else ("-" * (w + 1) + ":") for i, w in enumerate(widths)
            )
            + "|"
        )
        return "\n".join([f"{self.title}", "", lines[0], rule, *lines[1:]])


@attrs.frozen
class Goal:
    """A figure with the bound it is to keep."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        """Whether the value keeps its bounds (NaN keeps none)."""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return above and below

    def text(self) -> str:
        """One line: the figure, its bound, met or missed."""
        bounds = [f"at most {_show(self.at_most)}"] * (self.at_most is not None)
        bounds += [f"at least {_show(self.at_least)}"] * (self.at_least is not None)
        return (
            f"{'met   ' if self.met else 'MISSED'} {self.name}: {_show(self.value)} "
            f"({', '.join(bounds)})"
        )


@attrs.define
class Report:
    """The result of one benchmark run; `main(argv)` of every `bench_*.py` returns one.

    `part` names a part of a benchmark whose results are kept apart; `series` are figures call by
    call, for drawings.
    """

    name: str
    device: str = "cpu"
    part: str = ""
    tables: list[Table] = attrs.field(factory=list)
    goals: list[Goal] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    series: dict[str, list[float]] = attrs.field(factory=dict)

    def table(self, title: str, *columns: str) -> Table:
        """Start a table; say units in the column's name (`ours µs`)."""
        table = Table(title, columns)
        self.tables.append(table)
        return table

    def goal(
        self,
        name: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Record a figure and the bound that the project set itself for it."""
        if at_most is None and at_least is None:
            raise ValueError(f"goal {name!r} has no bound")
        self.goals.append(Goal(name, value, at_most, at_least))

    def note(self, sentence: str) -> None:
        """Record what a reader has to know to read the figures."""
        self.notes.append(sentence)

    def so_far(self) -> None:
        """Print and write what there is, in a long benchmark: a stop then loses nothing of it."""
        print(f"\n{self.text()}", flush=True)
        for write in _writers:
            write(self)

    def text(self) -> str:
        """The whole report as text."""
        parts = [table.text() for table in self.tables]
        parts += ["\n".join(goal.text() for goal in self.goals)] if self.goals else []
        parts += ["\n".join(f"note: {note}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts)

    def write(self, folder: Path, *, arguments: list[str], seconds: float) -> Path:
        """Write `<name>-<device>.json` into the folder, with versions, device and date; the path
        written.

        A part of a benchmark is `<name>_<part>-<device>.json`.
        """
        device = device_name(self.device)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{'_'.join(filter(None, (self.name, self.part)))}-{_slug(device)}.json"
        content: dict[str, Any] = {
            "bench": self.name,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device,
            "torch": importlib.metadata.version("torch"),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
            "commit": _commit(),
            "arguments": arguments,
            "seconds": round(seconds, 1),
            "goals": [attrs.asdict(goal) | {"met": goal.met} for goal in self.goals],
            "tables": [attrs.asdict(table) for table in self.tables],
            "notes": self.notes,
        } | ({"series": self.series} if self.series else {})
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def device_name(device: str) -> str:
    """The device's own name: `cpu`, or what CUDA calls its card."""
    if device == "cpu":
        return "cpu"
    import torch

    return torch.cuda.get_device_name()


def _commit() -> str | None:
    """The commit that was measured, with `+` where tracked files differ from it; None outside a
    checkout.
    """
    try:
        return _git("rev-parse", "--short=12", "HEAD") + (
            "+" if _git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    here = Path(__file__).resolve().parent
    return subprocess.run(
        ["git", *words], cwd=here, capture_output=True, text=True, check=True
    ).stdout.strip()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _pad(text: str, width: int, *, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)


def _show(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
