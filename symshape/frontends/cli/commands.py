"""The commands: arguments, options and exit codes; the library does the work."""

from __future__ import annotations

import importlib.metadata
import json
from enum import IntEnum
from typing import Annotated, Any

import attrs
import torch
import typer
from rich.console import Console

import guards
from guards.asking.assumptions import unknown_name
from guards.errors import RangeError
from guards.text.reader import names_in
from symshape.errors import InputError, SymShapeError
from symshape.exploring.terminal import terminal_table, terminal_text
from symshape.frontends.cli.arguments import USAGE, json_instead_of, read_ranges, usage_errors
from symshape.frontends.cli.audit_command import audit
from symshape.frontends.cli.cost_commands import cost, fits_command, plan
from symshape.frontends.cli.doctor import findings, findings_table, versions_table
from symshape.frontends.cli.error_pages import error
from symshape.frontends.cli.store_commands import bake_command, cache, show
from symshape.frontends.cli.trace_commands import explain, report, trace

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"]
    },  # commands and groups below inherit it
)


class Exit(IntEnum):
    """Exit codes of ``symshape prove``."""

    ALWAYS = 0
    NEVER = 1
    DEPENDS = 3


app.command()(cost)
app.command()(show)
app.add_typer(cache, name="cache")
app.command()(plan)
app.command("bake")(bake_command)
app.command()(trace)
app.command()(explain)
app.command()(error)
app.command()(report)
app.command()(audit)
app.command("fits")(fits_command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"symshape {importlib.metadata.version('symshape')}")
        raise typer.Exit


@app.callback()
def symshape(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Symbolic shapes for PyTorch: shapes as formulas, guards with their reasons, calls sent to the
    right graph.

    Each command explains itself with --help.

    Example: symshape trace gpt2
    """


@app.command()
def prove(
    query: Annotated[
        str,
        typer.Argument(help="A condition in Python's syntax, such as '(s0 + 7) // 8 * 8 >= s0'."),
    ],
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            "-r",
            metavar="NAME=LOW:HIGH",
            help="Bounds of a symbol. Default: a size, 0 or more.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume", "-a", metavar="CONDITION", help="A condition that is known to hold."
        ),
    ] = None,
    as_json: Annotated[bool, json_instead_of("sentences")] = False,
) -> None:
    """Say whether a condition holds for all sizes, for none or some.

    Exit code: 0 for all, 1 for none, 3 where it depends or is unknown.

    Example: symshape prove 'x.size(0) // 2 > 3' --range 'x.size(0)=8:'
    """
    console = Console(soft_wrap=True)
    with usage_errors("prove"):
        bounds = read_ranges(ranges or [])
        verdict = guards.decide(query, ranges=bounds, assume=assume or [])
        known = {name for text in (query, *(assume or [])) for name in names_in(text)}
        unknown = sorted(bounds.keys() - known)
        if unknown:
            raise RangeError(unknown_name(unknown[0], known))
    code = Exit.DEPENDS if verdict.value is None else Exit.ALWAYS if verdict.value else Exit.NEVER
    if as_json:
        typer.echo(json.dumps(_plain(verdict), indent=1))
        raise typer.Exit(code)
    if verdict.value is not None:
        console.print(terminal_text(verdict.reason, "green" if verdict.value else "red"))
        raise typer.Exit(code)
    console.print(terminal_text(verdict.reason, "yellow"))
    for words, values in (("holds at", verdict.holds), ("fails at", verdict.fails)):
        if values is not None:
            console.print(
                terminal_text(
                    f"  {words} {', '.join(f'{name} = {value}' for name, value in values.items())}"
                )
            )
    raise typer.Exit(code)


def _plain(verdict: guards.Verdict) -> dict[str, Any]:
    """Return a verdict as plain data."""
    answer = {True: "always", False: "never", None: "unknown"}[verdict.value]
    if verdict.value is None and verdict.holds is not None and verdict.fails is not None:
        answer = "depends"
    return {
        "answer": answer,
        "reason": verdict.reason,
        "rung": verdict.rung,
        "holds_at": verdict.holds,
        "fails_at": verdict.fails,
    }


@app.command()
def env() -> None:
    """Print versions, devices and what is compiled, for a bug report.

    Example: symshape env > environment.txt
    """
    Console().print(terminal_table(versions_table()))


@app.command()
def doctor() -> None:
    """Look at the installation and say what to do about it.

    Exit code: 1 where something is to be done.

    Example: symshape doctor
    """
    shown = findings()
    Console().print(terminal_table(findings_table(shown)))
    raise typer.Exit(1 if any(each.advice for each in shown) else 0)


@app.command()
def demo(
    model: Annotated[
        list[str] | None, typer.Option(help="gpt2 or llama; may be given twice. Default: both.")
    ] = None,
    requests: Annotated[
        int, typer.Option(min=2, max=2000, help="Requests of the bundled trace.")
    ] = 300,
    window: Annotated[
        float, typer.Option(help="Requests that arrive within so many ms form a batch.")
    ] = 250.0,
    device: Annotated[
        str, typer.Option(help="cpu, cuda, or auto: CUDA if there is a device.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="The seed of the random weights and tokens.")] = 0,
) -> None:
    """Trace two models and send real traffic through them.

    Shows their guards, and calls through symshape.compile and torch.compile side by side.

    Example: symshape demo --model gpt2 --requests 100
    """
    from symshape.frontends.cli.demo import Settings, run_demo

    try:
        chosen = _device(device)
        settings = Settings(requests=requests, window_s=window / 1e3, device=chosen, seed=seed)
        mismatches = run_demo(
            Console(), attrs.evolve(settings, models=tuple(model)) if model else settings
        )
    except SymShapeError as error:
        typer.echo(f"symshape demo: {error}", err=True)
        raise typer.Exit(USAGE) from None
    raise typer.Exit(1 if mismatches else 0)


def _device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is CUDA if available.

    Raises:
        InputError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise InputError(
            f"device {name!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from None
    return device
