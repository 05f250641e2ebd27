"""The arguments and options that commands share: programs, sizes, ranges and traffic, as the
command line spells them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from guards.errors import GuardsError
from guards.text.escaping import printable
from symshape.cost.optimizers import OPTIMIZERS
from symshape.dims import Dim
from symshape.errors import InputError, SymShapeError
from symshape.exploring.traffic import bundled_requests
from symshape.planning.traffic import Traffic

USAGE = 2
"""The exit code of a command that was called wrongly."""
Program = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="gpt2 or llama (the demo's models), or MODULE:FACTORY, which answers (fn, args[, "
        "kwargs[, dynamic]]).",
    ),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        "-d",
        metavar="ARG.DIM=NAME[:LOW:HIGH]",
        help="A size that varies, such as ids.0=batch, or ids.1=length:8:512 with bounds. Default: "
        "what the factory says.",
    ),
]
Train = Annotated[
    str, typer.Option(metavar="OPTIMIZER", help=f"A step of training: {', '.join(OPTIMIZERS)}.")
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column", "-c", metavar="NAME=COLUMN", help="The column of the file that holds a size."
    ),
]
Fixed = Annotated[
    list[str] | None,
    typer.Option("--fixed", metavar="NAME=SIZE", help="A size that is always the same."),
]
Rows = Annotated[int, typer.Option(min=1, help="Rows of each table.")]


def json_instead_of(what: str) -> Any:
    """Return the option ``--json``."""
    return typer.Option("--json", help=f"Print one JSON object instead of {what}.")


@contextmanager
def usage_errors(command: str) -> Iterator[None]:
    """Print an error within the block in a line of the command's, and exit with ``USAGE``."""
    try:
        yield
    except (SymShapeError, GuardsError, ValueError, OSError) as error:
        typer.echo(printable(f"symshape {command}: {error}", keep="\n"), err=True)
        raise typer.Exit(USAGE) from None


# -- sizes
_ARGUMENT = r"(?P<argument>[^\W\d][^=]*?)"
_PLACE = r"(?:\.(?P<dim>\d+)|\.size\((?P<size>\d+)\)|\.shape\[(?P<shape>\d+)\])"
_DYNAMIC = re.compile(
    rf"\s*{_ARGUMENT}{_PLACE}\s*=\s*(?P<name>[^\W\d]\w*)(?::(?P<low>\d*):(?P<high>\d*))?\s*"
)
_SIZES = re.compile(r"\s*(?P<argument>[^\W\d][^=]*?)\s*=\s*(?P<sizes>[-\d\s,?]+?)\s*")


def read_dynamic(texts: Sequence[str]) -> dict[str, dict[int, Any]] | None:
    """Return ``ids.0=batch`` and ``ids.size(1)=length:8:512`` as ``dynamic`` of ``symshape.trace``;
    None for no texts.

    Raises:
        InputError: a text has another form, or one size is named twice.

    >>> read_dynamic(["ids.0=batch", "ids.size(1)=length:8:"])
    {'ids': {0: Dim('batch'), 1: Dim('length', min=8)}}
    """
    found: dict[str, dict[int, Any]] = {}
    for text in texts:
        match = _DYNAMIC.fullmatch(text)
        if match is None:
            raise InputError(
                f"--dynamic {text!r} should be ARG.DIM=NAME or ARG.DIM=NAME:LOW:HIGH, such as "
                "ids.1=length:8:512"
            )
        dim = int(next(each for each in match.group("dim", "size", "shape") if each is not None))
        words = (("min", "low"), ("max", "high"))
        bounds: dict[str, Any] = {key: int(match[word]) for key, word in words if match[word]}
        sizes = found.setdefault(match["argument"], {})
        if dim in sizes:
            raise InputError(f"--dynamic names {match['argument']}.{dim} twice")
        sizes[dim] = Dim(match["name"], **bounds)
    return found or None


def read_sizes(texts: Sequence[str]) -> dict[str, int | tuple[int | None, ...]]:
    """Return ``ids=4,128`` (``?``: any size; ``x=5,``: one dimension) as a tensor's sizes, ``k=3``
    as an integer.

    Raises:
        InputError: a text has another form, or one argument is named twice.

    >>> read_sizes(["ids=4,?", "k=3", "x=5,"])
    {'ids': (4, None), 'k': 3, 'x': (5,)}
    """
    found: dict[str, int | tuple[int | None, ...]] = {}
    for text in texts:
        match = _SIZES.fullmatch(text)
        if match is None:
            raise InputError(
                f"--size {text!r} should be ARG=SIZES, such as ids=4,128 (one dimension: x=5,; an "
                "integer: k=3)"
            )
        if match["argument"] in found:
            raise InputError(f"--size names {match['argument']} twice")
        parts = [part.strip() for part in match["sizes"].split(",")]
        several = len(parts) > 1
        if several and not parts[-1]:
            parts.pop()
        try:
            if several:
                found[match["argument"]] = tuple(
                    None if part == "?" else int(part) for part in parts
                )
            else:
                found[match["argument"]] = int(parts[0])
        except ValueError:
            raise InputError(f"--size {text!r}: {match['sizes']!r} are no sizes") from None
    return found


# -- ranges
_RANGE = re.compile(
    r"^\s*(?P<name>[^\W\d][^=]*?)\s*=\s*(?P<low>-?\d+)?\s*(?P<colon>:)?\s*(?P<high>-?\d+)?\s*$"
)


def read_range(text: str) -> tuple[str, tuple[int | None, int | None]]:
    """Return the name and range of ``s0=2:64``, ``s0=2:``, ``s0=:64``, ``s0=:`` (any integer) or
    ``s0=8``.

    The name may be a place that a size is read from, as guards print it: ``x.size(0)=2:64``.

    Raises:
        ValueError: the text is no range.
    """
    match = _RANGE.match(text)
    if match is None or not (match["colon"] or match["low"]):
        raise ValueError(
            f"{text!r} is not a range; write NAME=LOW:HIGH, with either bound left out if there is "
            "none"
        )
    low = None if match["low"] is None else int(match["low"])
    high = None if match["high"] is None else int(match["high"])
    return match["name"], (low, high if match["colon"] else low)


def read_ranges(texts: Sequence[str]) -> dict[str, tuple[int | None, int | None]]:
    """Return several ranges, by name.

    Raises:
        ValueError: a text is no range, or a name has two ranges.
    """
    found: dict[str, tuple[int | None, int | None]] = {}
    for text in texts:
        name, pair = read_range(text)
        if name in found:
            raise ValueError(f"there are two ranges for {name}")
        found[name] = pair
    return found


# -- recorded traffic: a file, its columns, and sizes that are always the same


def read_traffic(path: Path | None, columns: Sequence[str], fixed: Sequence[str]) -> Traffic | None:
    """Return the traffic of ``--traffic FILE --column length=ContextTokens --fixed batch=1``; None
    without a file.

    Raises:
        InputError: a column is missing, or no column is named for the sizes.
    """
    pairs = _pairs(columns, "--column", "COLUMN")
    if path is None:
        if pairs:
            raise InputError("--column is for --traffic FILE")
        return None
    if not path.is_file():
        raise InputError(f"the traffic cannot be read: there is no file {path}")
    if not pairs:
        raise InputError("say which column holds which size: --column length=ContextTokens")
    return _having(Traffic.read(path, pairs), fixed)


def bundled_traffic(fixed: Sequence[str]) -> Traffic:
    """Return the bundled sample of Azure's trace: the lengths of its requests."""
    seen = Traffic.of([request.context_tokens for request in bundled_requests()], ("length",))
    return _having(seen, fixed)


def _having(seen: Traffic, fixed: Sequence[str]) -> Traffic:
    sizes: dict[str, Any] = {**_pairs(fixed, "--fixed", "SIZE")}
    return seen.having(**sizes) if sizes else seen


def _pairs(texts: Sequence[str], option: str, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise InputError(f"{option} {text!r} should be NAME={what}")
        if name in found:
            raise InputError(f"{option} names {name} twice")
        found[name] = value
    return found
