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

_FOLDER = "../tests/bench/results"  # from the page
_ROWS = 14  # of a table; a longer one is cut, its file has all


def page() -> str:
    """Return the page: the streams first, then missed goals, then each recorded run with its
    command and machine.
    """
    files = [
        (path, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(RESULTS.glob("*.json"))
    ]
    # the others are counts that tests wrote
    runs = [(path, run) for path, run in files if "tables" in run]
    lines = [
        "# Benchmarks",
        "<!-- This page is made by `python -m tests.pages --write`; do not edit it. -->\n",
        "Each figure here is read from a file that a benchmark wrote. Peers are measured in the "
        "same run unless the benchmark says otherwise. Compare ratios within one run; absolute "
        "times depend on the machine.",
        "",
        "## From the first call on, sizes never repeating",
        "",
        "Totals over all calls. *Most behind eager*: the most seconds by which symshape's total so "
        "far was above eager's, after any call. *Ahead from call*: the call from which its total "
        "stays below eager's; – if it does not within these calls.",
        "",
        streams.table(_FOLDER),
        "## The same on a CPU",
        "",
        "Two cores. A model of such a size runs in a few milliseconds, so that its traces are most "
        "of what the first calls take.",
        "",
        streams.on_cpus(_FOLDER),
        "## Slower than eager",
        "",
        "Streams that at least one recorded run found slower than eager, in all calls or in the "
        "last ones. Runs differ "
        "by machine and by the state of symshape: the newest is the one to go by.",
        "",
        streams.slower(_FOLDER),
        "On a CPU arithmetic is eager's: programs of a few small operators gain nothing there, and "
        "run eagerly once that is measured to be faster ([Speed](sharp-bits/speed.md)).",
        "",
        "## The streams as pictures",
        "",
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
    lines = [f"### {path.stem}", "", _purpose(run), ""]
    lines += [_command(run), ""]
    lines += [
        (
            f"{run['device']}, {run['machine']}; torch {run['torch']}, Python {run['python']}; "
            f"{run['date'][:10]}."
        ),
        "",
    ]
    for each in run["tables"]:
        rows = [tuple(map(_one_line, row)) for row in each["rows"][:_ROWS]]
        table = Table(each["title"], tuple(each["columns"]), rows)
        title, _, body = table.text().partition("\n\n")
        cut = len(each["rows"]) - _ROWS
        lines += [f"**{title}**", "", body, ""]
        if cut > 0:
            lines += [f"… and {cut} rows more in [the file]({_FOLDER}/{path.name}).", ""]
    return lines


def _purpose(run: dict[str, Any]) -> str:
    """Return the first paragraph of the docstring of the module that made a run; without one, the
    run's first note.
    """
    path = _module(run)
    text = (
        run["notes"][0]
        if path is None
        else ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    )
    return re.sub(r"\s+", " ", (text or "").partition("\n\n")[0])


def _command(run: dict[str, Any]) -> str:
    """Return the command that repeats a run, as Markdown."""
    arguments = " ".join(run["arguments"])
    if _module(run) is None:
        return "Measured once; the script is not in this checkout."
    if arguments.startswith("python -m"):
        return f"`{arguments}`"
    return f"`make bench NAME={run['bench']}" + (f' ARGS="{arguments}"' if arguments else "") + "`"


def _module(run: dict[str, Any]) -> Path | None:
    """Return the file of the module that made a run: a benchmark, or the module, subcommand or
    package of its command.
    """
    paths = [REPOSITORY / "tests" / "bench" / f"bench_{run['bench']}.py"]
    named = re.match(r"python -m ([\w.]+)(?: (\w+))?", " ".join(run["arguments"]))
    if named:
        base = REPOSITORY.joinpath(*named[1].split("."))
        paths += [base / f"{named[2]}.py", base.with_suffix(".py"), base / "__init__.py"]
    return next((path for path in paths if path.exists()), None)


def _one_line(cell: Any) -> Any:
    """Return a cell without line breaks, which would end a row of a Markdown table."""
    return " ".join(cell.split()) if isinstance(cell, str) else cell


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
