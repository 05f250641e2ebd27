"""Text that is safe to print, or to write as UTF-8."""

from __future__ import annotations

import os

import pytest

from guards import Origin
from guards.text.escaping import encodable, printable

UNPRINTABLE = (
    "\x1b[31m",
    "\x07",
    "\n",
    "\r",
    "\x00",
    "\x9b",
    "\u202e",
    "\u2028",
    "\ud800",
    "\udce9",
    "\x7f",
    "\u200b",
)


@pytest.mark.parametrize("text", UNPRINTABLE, ids=ascii)
def test_what_is_not_printable_is_escaped(text: str) -> None:
    found = printable(f"a{text}b")
    assert found.isprintable()
    assert found.startswith("a\\")
    assert found.encode()
    assert printable(f"a{text}b", keep=text) == f"a{text}b"


def test_what_is_printable_stays() -> None:
    text = "models/mlp.py:12 in forward (`x → y`), 日本語 é"
    assert printable(text) is text
    assert encodable(text + "\n\t") == text + "\n\t"


def test_bytes_of_file_names_are_spelled_as_bytes() -> None:
    name = os.fsdecode(b"caf\xe9\xff.py")
    assert printable(name) == encodable(name) == "caf\\xe9\\xff.py"
    assert encodable("\ud800\n") == "\\ud800\n"


def test_an_origin_is_one_printable_line() -> None:
    origin = Origin(
        os.fsdecode(b"m\xe9\x1b[0m.py"), 3, "f\x07", "x\t= \x1b]0;y", "op\n", "rule\u202e"
    )
    assert str(origin).isprintable()
    assert origin.place.startswith("m\\xe9\\x1b[0m.py:3 in f\\x07")
    assert all(each.isprintable() for each in origin.cells)
