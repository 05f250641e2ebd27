"""The page of all recorded benchmarks, from ``tests/bench/results``."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from tests.bench.report import RESULTS, Goal, Table
from tests.discovery import REPOSITORY
from tests.pages import streams

_ROWS = 14  # of a table; a longer one is cut, its file has all


def page() -> str:
    """Return the page: the streams first, then missed goals, then each recorded run with its command and machine."""
    files = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(RESULTS.glob("*.json"))]
    runs = [(path, run) for path, run in files if "tables" in run]  # the others are counts that tests wrote
    lines = [
        "# Benchmarks",
        "<!-- This page is made by `python -m tests.pages --write`; do not edit it. -->\n",
        "Each figure here is read from a file that a benchmark wrote. Peers are measured in the same run unless the "
        "benchmark says otherwise. Compare ratios within one run; absolute times depend on the machine.",
        "",
        "## From the first call on, sizes never repeating",
        "",
        streams.table("../tests/bench/results"),
    ]
    for stream in streams.recorded():
        name = streams.NAMES.get(stream.name, stream.name)
        lines += [f"![{name}: seconds so far over calls](pictures/stream-{stream.name}.svg)", ""]
    lines += ["## Goals that were missed", "", *_missed(runs), "", "## All recorded runs", ""]
    for path, run in runs:
        lines += _run(path, run)
    return "\n".join(lines)


def _missed(runs: list[tuple[Path, dict[str, Any]]]) -> list[str]:
    lines = ["| run | goal | measured | bound |", "|---|---|--:|--:|"]
    for path, run in runs:
        for each in run.get("goals", ()):
            if not each["met"]:
                goal = Goal(each["name"], each["value"], each["at_most"], each["at_least"])
                bound = goal.text().rpartition("(")[2].rstrip(")")
                lines.append(f"| {path.stem} | {_cell(goal.name)} | {goal.value:.3g} | {bound} |")
    return lines


def _run(path: Path, run: dict[str, Any]) -> list[str]:
    arguments = " ".join(run["arguments"])
    command = f"make bench NAME={run['bench']}" + (f' ARGS="{arguments}"' if arguments else "")
    lines = [f"### {path.stem}", "", _purpose(run["bench"]), ""]
    lines += [f"`{command}`", ""]
    lines += [
        f"{run['device']}, {run['machine']}; torch {run['torch']}, Python {run['python']}; {run['date'][:10]}.",
        "",
    ]
    for each in run["tables"]:
        table = Table(each["title"], tuple(each["columns"]), [tuple(row) for row in each["rows"][:_ROWS]])
        title, _, body = table.text().partition("\n\n")
        cut = len(each["rows"]) - _ROWS
        lines += [f"**{title}**", "", body, "", *([f"… and {cut} rows more.", ""] if cut > 0 else [])]
    return lines


def _purpose(bench: str) -> str:
    """Return the first sentence of a benchmark's docstring."""
    path = REPOSITORY / "tests" / "bench" / f"bench_{bench}.py"
    if not path.exists():
        return ""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.sub(r"\s+", " ", doc.partition("\n\n")[0])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
