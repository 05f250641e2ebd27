"""``symshape trace``, ``symshape explain`` and ``symshape report``: arguments, options and exit
codes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import guards
from symshape.errors import InputError
from symshape.exploring.tables import (
    Table,
    guards_table,
    inputs_table,
    outputs_table,
    symbols_table,
)
from symshape.exploring.terminal import terminal_table, terminal_text
from symshape.frontends.cli.arguments import (
    Dynamic,
    Program,
    Rows,
    json_instead_of,
    read_dynamic,
    read_sizes,
    usage_errors,
)
from symshape.frontends.cli.cost_commands import show_plan
from symshape.frontends.cli.example_programs import traced_program
from symshape.frontends.exploration.explore import explore
from symshape.frontends.trace import Traced
from symshape.planning.bucket_plan import BucketPlan

FORMAT, VERSION = "symshape trace", 1


def trace(
    program: Program,
    dynamic: Dynamic = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page to look at in a browser here.")
    ] = None,
    as_json: Annotated[bool, json_instead_of("tables; `symshape report` shows it again")] = False,
    limit: Rows = 40,
) -> None:
    """Trace a program and show its symbols, guards and outputs.

    Example: symshape trace my_model:example --dynamic ids.0=batch:1:64
    """
    console = Console()
    with usage_errors("trace"):
        wanted = read_dynamic(dynamic or [])
        save = None if html is None else _writer(html)
        with console.status("tracing", spinner="dots"):
            traced = traced_program(program, wanted)
        if save is not None:
            save(traced)
    if as_json:
        typer.echo(json.dumps(document_of(traced), indent=1))
        return
    _show(console, document_of(traced), limit)
    if html is not None:
        console.print(terminal_text(f"written: {html}", "dim"))


def explain(
    program: Program,
    size: Annotated[
        list[str],
        typer.Option(
            "--size",
            "-s",
            metavar="ARG=SIZES",
            help="Sizes of the call: ids=4,128 or k=3, or a symbol's.",
        ),
    ],
    dynamic: Dynamic = None,
    as_json: Annotated[bool, json_instead_of("sentences")] = False,
) -> None:
    """Say whether a call of these sizes fits the program, or why not.

    Exit code: 0 where it fits, 1 where it does not.

    Example: symshape explain my_model:example --size ids=0,5
    """
    with usage_errors("explain"):
        wanted, sizes = read_dynamic(dynamic or []), read_sizes(size)
        with Console().status("tracing", spinner="dots"):
            traced = traced_program(program, wanted)
        reasons = traced.explain(sizes=sizes)
    if as_json:
        typer.echo(json.dumps({"fits": not reasons, "reasons": reasons}, indent=1))
    else:
        console = Console(soft_wrap=True)
        console.print(
            terminal_text("it fits", "green")
            if not reasons
            else terminal_text("it does not fit:", "red")
        )
        for reason in reasons:
            console.print(terminal_text(f"  {reason}"))
    raise typer.Exit(1 if reasons else 0)


def report(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file of trace --json, plan --output or to_json."),
    ],
    limit: Rows = 40,
) -> None:
    """Show a stored trace, plan of buckets, or guard set.

    Example: symshape trace gpt2 --json > trace.json; symshape report trace.json
    """
    console = Console()
    with usage_errors("report"):
        text = file.read_text(encoding="utf-8")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file} holds no JSON: {error}") from None
        kind = data.get("format") if isinstance(data, dict) else None
        if kind == FORMAT:
            _show(console, checked(data), limit)
        elif kind == "guards":
            console.print(terminal_text(str(guards.from_json(text))))
        elif isinstance(data, dict) and "caps" in data:
            show_plan(console, BucketPlan.from_json(text), limit)
        else:
            raise InputError(
                f"{file} holds none of what symshape writes: a trace, a plan or a guard set"
            )


def _writer(path: Path) -> Callable[[Traced], Path]:
    """Return the function that writes the page of a trace; the folder is checked before anything is
    traced.

    Raises:
        InputError: there is no such folder.
    """
    if not path.resolve().parent.is_dir():
        raise InputError(f"--html {path}: there is no folder {path.resolve().parent}")
    return lambda traced: explore(traced).save(path)


def document_of(traced: Traced) -> dict[str, Any]:
    """Return a trace as plain data, for JSON."""
    program = traced.program
    found: dict[str, Any] = {"format": FORMAT, "version": VERSION, "program": program.name}
    found["ops"] = len(program.graph.nodes)
    found["symbols"] = [
        {
            "name": symbol.name,
            "example": symbol.hint,
            "read_from": [source.text() for source in symbol.sources],
        }
        for symbol in program.symbols.values()
    ]
    found["guards"] = [
        {"condition": guard.text(), "needed_by": str(guard.origin) if guard.origin else ""}
        for guard in program.guards
    ]
    tables = (
        symbols_table(program),
        inputs_table(program),
        guards_table(program),
        outputs_table(program),
    )
    found["tables"] = [
        {
            "title": each.title,
            "columns": list(each.columns),
            "rows": [list(row) for row in each.rows],
        }
        for each in tables
    ]
    return found


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """Return a stored trace after a check of its form.

    Raises:
        InputError: a part is missing or has another type, or the version is not supported.
    """
    if data.get("version") != VERSION:
        raise InputError(
            f"a trace of version {data.get('version')!r}; this reads version {VERSION}: write it "
            "again"
        )
    if not isinstance(data.get("program"), str) or not isinstance(data.get("tables"), list):
        raise InputError("a stored trace needs the name of its program and its tables")
    for table in data["tables"]:
        rows = table.get("rows") if isinstance(table, dict) else None
        columns = table.get("columns") if isinstance(table, dict) else None
        if (
            not isinstance(columns, list)
            or not isinstance(rows, list)
            or not isinstance(table.get("title"), str)
        ):
            raise InputError("a table of a stored trace needs a title, columns and rows")
        if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
            raise InputError(f"a row of the table {table['title']!r} has not {len(columns)} cells")
    return data


def _show(console: Console, data: dict[str, Any], limit: int) -> None:
    console.print(terminal_text(f"{data['program']}: {data.get('ops', '?')} ops", "bold"))
    for each in data["tables"]:
        rows = tuple(tuple(map(str, row)) for row in each["rows"])
        console.print(
            terminal_table(
                Table(each["title"], tuple(map(str, each["columns"])), rows), limit=limit
            )
        )
