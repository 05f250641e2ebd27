"""``symshape audit``: arguments, options and exit codes; ``symshape.auditing`` does the work."""

from __future__ import annotations

import inspect
import json
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import attrs
import torch
import typer
from rich.console import Console

from symshape.auditing.audit import audit_padding
from symshape.auditing.report import LEAKS, PROVEN, UNKNOWN, PaddingAudit
from symshape.dims import Dim
from symshape.errors import InputError
from symshape.exploring.terminal import terminal_text
from symshape.frontends.cli.arguments import Program, json_instead_of, read_dynamic, usage_errors
from symshape.frontends.cli.example_programs import example_program

_VALID = (
    "The mask or the lengths among the arguments; ~NAME is true at padding; SIZE=NAME for "
    "one of several sizes."
)


class Exit(IntEnum):
    """Exit codes of ``symshape audit``."""

    PROVEN = 0
    LEAKS = 1
    UNKNOWN = 3


def audit(
    program: Program,
    padded: Annotated[
        list[str],
        typer.Option(
            "--padded", "-p", metavar="ARG.DIM=NAME", help="A padded dimension and its size's name."
        ),
    ],
    valid: Annotated[list[str], typer.Option("--valid", "-v", metavar="[SIZE=]ARG", help=_VALID)],
    fixed: Annotated[
        list[str] | None,
        typer.Option("--fixed", metavar="ARG=NUMBER", help="The value of an argument at padding."),
    ] = None,
    side: Annotated[str, typer.Option(help="right, left or any. Default: as in the example.")] = "",
    anything: Annotated[
        bool, typer.Option("--anything", help="Padding may hold infinities and NaN.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as a page here.")
    ] = None,
    as_json: Annotated[bool, json_instead_of("sentences")] = False,
) -> None:
    """Say whether padding changes the outputs of a program, and where.

    Exit code: 0 where every output is proven unaffected, 1 where padding leaks, 3 where an output
    is unknown.

    Example: symshape audit my_model:example --padded ids.1=length --valid mask
    """
    console = Console(soft_wrap=True)
    with usage_errors("audit"):
        fn, args, kwargs, _ = example_program(program)
        example = _by_name(fn, args, kwargs)
        wanted = {
            name: {dim: _name(each) for dim, each in dims.items()}
            for name, dims in _padded(padded).items()
        }
        numbers = {name: float(value) for name, value in map(_pair, fixed or [])}
        with console.status("auditing", spinner="dots"):
            found = audit_padding(
                fn,
                example,
                wanted,
                _sources(valid),
                fixed=numbers,
                padding="anything" if anything else "finite",
                side=side or None,
            )
        if html is not None:
            html.write_text(
                f"<!doctype html><meta charset='utf-8'>{found._repr_html_()}", encoding="utf-8"
            )
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=1))
    else:
        _show(console, found)
    raise typer.Exit(Exit.LEAKS if found.leaks else Exit.UNKNOWN if found.unknown else Exit.PROVEN)


def _padded(texts: list[str]) -> dict[str, dict[int, Any]]:
    try:
        return read_dynamic(texts) or {}
    except InputError as error:
        raise InputError(str(error).replace("--dynamic", "--padded")) from None


def _name(dim: Any) -> str:
    return dim.name if isinstance(dim, Dim) else str(dim)


def _by_name(fn: Any, args: Any, kwargs: Any) -> Any:
    """Return the example call in the form that ``audit_padding`` takes."""
    if not args:
        return dict(kwargs)
    if not kwargs:
        return tuple(args)
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    return dict(inspect.signature(target).bind(*args, **kwargs).arguments)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise InputError(f"{text!r} should be ARG=NUMBER, such as labels=-100")
    return name, value


def _sources(texts: list[str]) -> Any:
    """Return ``--valid mask`` as one name, ``--valid length=mask`` as a mapping."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    return dict(map(_pair, texts))


def _show(console: Console, found: PaddingAudit) -> None:
    colours = {PROVEN: "green", LEAKS: "red", UNKNOWN: "yellow"}
    for each in found.outputs:
        first, _, rest = str(each).partition("\n")
        console.print(terminal_text(first, colours[each.verdict]))
        if rest:
            console.print(terminal_text(rest))
    for text in (
        *(f"assumed: {each}" for each in found.assumes),
        *(f"note: {each}" for each in found.notes),
    ):
        console.print(terminal_text(text, "dim"))


def _plain(found: PaddingAudit) -> dict[str, Any]:
    """Return a report as plain data."""
    plain = attrs.asdict(found)
    return {**plain, "proven": found.proven}
