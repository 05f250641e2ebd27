"""``symshape cache``, ``symshape show`` and ``symshape bake``, which show, change and fill stores:
arguments, options and exit codes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.console import Console
from rich.text import Text

from guards.text.escaping import printable
from symshape.cost.units import amount, shown
from symshape.errors import InputError, SymShapeError
from symshape.exploring.tables import Table
from symshape.exploring.terminal import terminal_table
from symshape.frontends.baking import MODES, bake
from symshape.frontends.cli.arguments import (
    USAGE,
    Column,
    Dynamic,
    Fixed,
    Program,
    json_instead_of,
    read_dynamic,
    read_traffic,
    usage_errors,
)
from symshape.frontends.cli.example_programs import example_program
from symshape.store.bundles import export_to, import_from
from symshape.store.certificates import certificate_records, prove_again, why_not
from symshape.store.disk import CERTIFICATE, DiskStore, StoredFile, default_path
from symshape.store.entry_format import read_header
from symshape.store.entry_text import checked
from symshape.store.entry_text import show as show_entry
from symshape.store.store_errors import EntryError

_Where = Annotated[
    Path | None,
    typer.Option("--store", help="The folder. Default: that of symshape.compile(store=True)."),
]

_HELP = """Programs that are kept between processes.

Example: symshape cache list
"""
cache = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=_HELP)


def show(file: Annotated[Path, typer.Argument(help="A file of a store (….entry).")]) -> None:
    """Print an entry of a store: its calls, guards and operators.

    Example: symshape show 5f0e1c.entry
    """
    try:
        Console(soft_wrap=True).print(Text(show_entry(file.read_bytes())))
    except (SymShapeError, OSError) as error:
        typer.echo(printable(f"symshape show: {file}: {error}"), err=True)
        raise typer.Exit(USAGE) from None


@cache.command("list")
def list_entries(store: _Where = None) -> None:
    """List the entries, the most recently used first.

    Example: symshape cache list --store /srv/store
    """
    here = _existing(store, "list")
    found = sorted(here.all(), key=lambda each: -each.used)
    rows = tuple(
        (each.digest[:12], *_described(here, each), shown(each.bytes, "B"), _age(each))
        for each in found
    )
    numbers = frozenset({"size"})
    Console().print(
        terminal_table(
            Table(
                printable(str(here.path)),
                ("entry", "function", "sizes", "size", "used"),
                rows,
                numbers=numbers,
            )
        )
    )


@cache.command("show")
def show_one(
    entry: Annotated[str, typer.Argument(help="The beginning of its name.")], store: _Where = None
) -> None:
    """Print one entry: its calls, guards and operators.

    Example: symshape cache show 5f0e
    """
    here = _existing(store, "show")
    found = [each for each in here.all() if each.digest.startswith(entry)]
    if len(found) != 1:
        typer.echo(
            printable(
                f"symshape cache show: {len(found)} entries begin with {entry!r} in {here.path}"
            ),
            err=True,
        )
        raise typer.Exit(USAGE)
    show(here.path / found[0].address / f"{found[0].digest}.entry")


@cache.command()
def verify(
    store: _Where = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take away what is wrong.")] = False,
) -> None:
    """Read every entry whole and prove every certificate again.

    Exit code: 1 if an entry is damaged or a certificate does not hold.

    Example: symshape cache verify --remove
    """
    here, wrong, count = _existing(store, "verify"), 0, 0
    for each in here.all():
        count += 1
        try:
            checked(read_header(here.read(each.address, each.digest), each.digest))
        except (EntryError, OSError) as error:
            wrong += 1
            typer.echo(printable(f"{each.digest}: {error}"))
            if remove:
                here.remove(each.address, each.digest)
    typer.echo(f"{count} entries, {wrong} wrong{' and taken away' if remove and wrong else ''}")
    broken = _verify_certificates(here, remove)
    raise typer.Exit(1 if (wrong or broken) and not remove else 0)


def _verify_certificates(here: DiskStore, remove: bool) -> int:
    """Print whether each certificate holds; return how many do not."""
    broken = 0
    for kept, record in certificate_records(here):
        why = str(record)
        if not isinstance(record, EntryError):
            proof = prove_again(here, record)
            if proof:
                typer.echo(
                    printable(
                        f"{record.function} is closed for {record.text()}: proven in {proof.parts} "
                        "parts"
                    )
                )
                continue
            why = f"{record.function}: {why_not(here, record, proof)}"
        broken += 1
        gone = " and is taken away" if remove else ""
        typer.echo(printable(f"certificate {kept.digest[:12]} does not hold{gone}: {why}"))
        if remove:
            here.remove(kept.address, kept.digest, CERTIFICATE)
    return broken


@cache.command()
def prune(
    store: _Where = None,
    most: Annotated[str, typer.Option(help="The most that may stay, such as '200 MB'.")] = "1 GB",
) -> None:
    """Remove the least recently used entries.

    Files that were never finished go too.

    Example: symshape cache prune --most '200 MB'
    """
    here = _existing(store, "prune")
    with usage_errors("cache prune"):
        gone = here.prune(amount(most, "bytes"))
    typer.echo(f"{len(gone)} entries of {shown(sum(each.bytes for each in gone), 'B')} gone")


@cache.command("export")
def export_entries(
    file: Annotated[Path, typer.Argument(help="The file to write.")], store: _Where = None
) -> None:
    """Write all entries to one file, for another machine.

    Example: symshape cache export programs.store
    """
    here = _existing(store, "export")
    with usage_errors("cache export"):
        typer.echo(f"{export_to(here, file)} entries")


@cache.command("import")
def import_entries(
    file: Annotated[Path, typer.Argument(help="A file of export.")], store: _Where = None
) -> None:
    """Import the entries of a file.

    Entries decide what programs compute: import only files that you trust.

    Example: symshape cache import programs.store
    """
    try:
        typer.echo(f"{import_from(_store(store), file)} entries")
    except (SymShapeError, OSError) as error:
        typer.echo(printable(f"symshape cache import: {file}: {error}"), err=True)
        raise typer.Exit(USAGE) from None


def _store(path: Path | None) -> DiskStore:
    return DiskStore(default_path() if path is None else path)


def _existing(path: Path | None, command: str) -> DiskStore:
    """Return a store to read; exit with ``USAGE`` if its folder cannot be read.

    Only the default folder need not exist yet.
    """
    try:
        here = _store(path)
        if path is not None or here.path.exists():
            os.scandir(here.path).close()
    except (InputError, OSError) as error:
        typer.echo(printable(f"symshape cache {command}: no store: {error}"), err=True)
        raise typer.Exit(USAGE) from None
    return here


def _described(store: DiskStore, kept: StoredFile) -> tuple[str, str]:
    try:
        header = read_header(store.read(kept.address, kept.digest), kept.digest).header
    except (EntryError, OSError) as error:
        return printable(f"wrong: {error}")[:60], ""
    return header["function"], ", ".join(header["slots"])[:60]


def _age(kept: StoredFile) -> str:
    seconds = max(0.0, time.time() - kept.used)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


# -- ``symshape bake``; ``frontends/baking.py`` does the work
_Mode = Annotated[
    list[str] | None,
    typer.Option(help=f"The modes of calls: {', '.join(MODES)}; may be given more than once."),
]


def bake_command(
    program: Program,
    traffic: Annotated[
        Path | None, typer.Option(help="CSV with a header, or JSONL. Default: the example.")
    ] = None,
    column: Column = None,
    fixed: Fixed = None,
    dynamic: Dynamic = None,
    store: _Where = None,
    mode: _Mode = None,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Also trace what is declared and not served, until a proof says all is.",
        ),
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="Programs that may be traced.")] = 64,
    as_json: Annotated[bool, json_instead_of("a table")] = False,
) -> None:
    """Trace and store what recorded traffic needs, before it comes.

    Exit code: 1 if a call would still be a miss; with --certify also if it is not proven that no
    call of the declared sizes can miss.

    Example: symshape bake my_model:example --traffic trace.csv -c length=tokens
    """
    with usage_errors("bake"):
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
