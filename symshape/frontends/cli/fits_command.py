"""``symshape fits``: arguments, options and exit codes; ``symshape.fitting.fits`` does the work."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from symshape.cost.optimizers import OPTIMIZERS
from symshape.errors import InputError, SymShapeError
from symshape.exploring.terminal import terminal_table
from symshape.fitting.fits import Fits, budget_of, fits_of
from symshape.frontends.cli.example_programs import traced_program
from symshape.frontends.cli.ranges import read_ranges
from symshape.frontends.cli.sizes import read_dynamic

_PROGRAM = (
    "gpt2 or llama (the demo's models), or MODULE:FACTORY, which answers (fn, args[, "
    "kwargs[, dynamic]])."
)


class Exit(IntEnum):
    """Exit codes of ``symshape fits``."""

    FITS = 0
    TOO_LARGE = 1
    USAGE = 2


def fits_command(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=_PROGRAM)],
    memory: Annotated[
        str,
        typer.Option(
            "--memory", "-m", help="The budget, such as 80GB. Default: the current CUDA device's."
        ),
    ] = "",
    train: Annotated[
        str, typer.Option(metavar="OPTIMIZER", help=f"A step of training: {', '.join(OPTIMIZERS)}.")
    ] = "",
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            "--dynamic",
            "-d",
            metavar="ARG.DIM=NAME",
            help="A size that varies. Default: the program's.",
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at", metavar="NAME=SIZE", help="A size at which the others are solved for."
        ),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Print pairs of sizes that fit, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a sentence.")
    ] = False,
) -> None:
    """Say which sizes of a program fit into the memory of a device.

    Exit code: 0 where some size fits, 1 where not even the smallest does.

    Example: symshape fits my_model:example --memory 80GB --train adamw
    """
    console = Console(soft_wrap=True)
    try:
        budget = budget_of(memory or None)
        sizes = {name: _one(name, each) for name, each in read_ranges(at or []).items()}
        with console.status("tracing", spinner="dots"):
            traced = traced_program(program, read_dynamic(dynamic or []), train)
            found = fits_of(traced, budget, train=train, at=sizes)
            fitting = found.fits or bool(found.sizes)
    except (SymShapeError, ValueError) as error:
        typer.echo(f"symshape fits: {error}", err=True)
        raise typer.Exit(Exit.USAGE) from None
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=1, ensure_ascii=False))
    else:
        console.print(Text(str(found), "green" if fitting else "red"))
        if table:
            console.print(terminal_table(found.table()))
    raise typer.Exit(Exit.FITS if fitting else Exit.TOO_LARGE)


def _one(name: str, bounds: tuple[int | None, int | None]) -> int:
    low, high = bounds
    if low is None or low != high:
        raise InputError(f"--at {name} needs one size, such as --at {name}=1024")
    return low


def _plain(found: Fits) -> dict[str, Any]:
    """Return an answer as plain data."""
    return {
        "program": found.name,
        "budget": found.budget,
        "train": found.train,
        "formula": str(found.peak.total),
        "in_words": found.formula,
        "largest": found.sizes,
        "pairs": list(found.pairs),
        "answer": found.answer,
        "unknown": list(found.unknown),
    }
