"""Entries as text: their function, their calls, what they read, and their operators; no code of
them runs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import torch

from guards.text.escaping import printable
from symshape.graph.text import text
from symshape.store.entry_format import EntryBody, StoredEntry, read_header
from symshape.store.json_values import Json, exactly, label_of, list_of
from symshape.store.store_errors import EntryError, NotImported


def show(content: bytes) -> str:
    """Return an entry as text.

    Raises:
        EntryError: it is none.
    """
    stored = read_header(content)
    read = checked(stored)
    with _damaged():
        return printable("\n".join(_lines(stored, read)), keep="\n")


def _lines(stored: StoredEntry, read: EntryBody) -> list[str]:
    header = stored.header
    lines = [f"entry {stored.digest}", f"function: {header['function']}", "for calls with:"]
    lines += [f"  {each}" for each in header["slots"]]
    lines += ["guards:", *(f"  {each}" for each in header["guards"])]
    for question, answer in read.data(lambda _: torch.empty(0)):
        lines += [
            f"numbers that it branches on, answered {json.dumps(answer)}:",
            text(question.about.graph),
        ]
    lines += [
        "made by:",
        *(f"  {key}: {json.dumps(value)}" for key, value in sorted(header["environment"].items())),
    ]
    lines += ["read:", *(f"  {each}" for each in _read_places(read.checks, read.objects))]
    try:
        lines.append(text(read.graph(lambda _: torch.empty(0))))
    except NotImported as error:
        lines.append(f"its operators cannot be shown here: {error}")
    return lines


@contextlib.contextmanager
def _damaged() -> Iterator[None]:
    """Turn any error within the block, which a hostile file may cause, into an ``EntryError``."""
    try:
        yield
    except EntryError:
        raise
    except Exception as error:
        raise EntryError(f"the file is damaged: {type(error).__name__}: {error}") from error


def checked(stored: StoredEntry) -> EntryBody:
    """Return the body of an entry after a check: its formulas, guards and graph can be read.

    Raises:
        EntryError: it does not.
    """
    with _damaged():
        read = EntryBody(stored)
        with contextlib.suppress(NotImported):  # the rest of the graph was read before that
            read.graph(lambda _: torch.empty(0))
            read.data(lambda _: torch.empty(0))
    return read


def _read_places(checks: list[Json], objects: list[Json]) -> Iterator[str]:
    for check in checks:
        _, kind, _, expected, name = exactly(check, 5)
        if name is None:
            continue
        if kind in ("items", "hooks"):
            shown = ", ".join(_shown(each, objects) for each in list_of(expected)) or "nothing"
        else:
            shown = _shown(expected, objects)
        yield printable(f"{label_of(name)} = {shown}")


def _shown(expected: Json, objects: list[Json]) -> str:
    if type(expected) is dict and "missing" in expected:
        return "nothing"
    if type(expected) is dict and "object" in expected:
        number = expected["object"]
        known = objects[number] if type(number) is int and 0 <= number < len(objects) else None
        return " ".join(str(each)[:64] for each in known) if type(known) is list else "?"
    return json.dumps(expected)
