"""``symshape bake``: arguments, options and exit codes; ``frontends/baking.py`` does the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.console import Console

from symshape.errors import SymShapeError
from symshape.exploring.terminal import terminal_table
from symshape.frontends.baking import MODES, bake
from symshape.frontends.cli.example_programs import example_program
from symshape.frontends.cli.sizes import read_dynamic
from symshape.frontends.cli.traffic import read_traffic
from symshape.store.disk import default_path

_PROGRAM = (
    "gpt2 or llama (the demo's models), or MODULE:FACTORY, which answers (fn, args[, "
    "kwargs[, dynamic]])."
)
_USAGE = 2
_Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column", "-c", metavar="NAME=COLUMN", help="The column of the file that holds a size."
    ),
]
_Fixed = Annotated[
    list[str] | None,
    typer.Option("--fixed", metavar="NAME=SIZE", help="A size that is always the same."),
]
_Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        "-d",
        metavar="ARG.DIM=NAME[:LOW:HIGH]",
        help="A size that varies. Default: the factory's.",
    ),
]
_Mode = Annotated[
    list[str] | None,
    typer.Option(help=f"The modes of calls: {', '.join(MODES)}; may be given more than once."),
]


def bake_command(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=_PROGRAM)],
    traffic: Annotated[
        Path | None, typer.Option(help="CSV with a header, or JSONL. Default: the example.")
    ] = None,
    column: _Column = None,
    fixed: _Fixed = None,
    dynamic: _Dynamic = None,
    store: Annotated[
        Path | None, typer.Option(help="The folder. Default: that of symshape.compile(store=True).")
    ] = None,
    mode: _Mode = None,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Also trace what is declared and not served, until a proof says all is.",
        ),
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="Programs that may be traced.")] = 64,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Trace and store what recorded traffic needs, before it comes.

    Exit code: 1 if a call would still be a miss; with --certify also if it is not proven that no
    call of the declared sizes can miss.

    Example: symshape bake my_model:example --traffic trace.csv -c length=tokens
    """
    try:
        seen = read_traffic(traffic, column or [], fixed or [])
        fn, args, kwargs, declared = example_program(program)
        wanted = read_dynamic(dynamic or [])
        found = bake(
            fn,
            args,
            kwargs,
            dynamic=declared if wanted is None else wanted,
            traffic=seen,
            store=default_path() if store is None else store,
            modes=mode or ("no_grad",),
            certify=certify,
            most=most,
            progress=not as_json,
        )
    except (SymShapeError, ValueError, OSError) as error:
        typer.echo(f"symshape bake: {error}", err=True)
        raise typer.Exit(_USAGE) from None
    if as_json:
        typer.echo(
            json.dumps(
                {**attrs.asdict(found), "complete": found.complete, "closed": found.closed},
                indent=1,
            )
        )
    else:
        Console().print(terminal_table(found.table()))
    raise typer.Exit(0 if found.complete and (found.closed or not certify) else 1)
