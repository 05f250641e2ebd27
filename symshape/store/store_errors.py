"""Reasons why a program cannot be stored, or a stored entry cannot be used."""

from __future__ import annotations

from guards.text.escaping import printable
from symshape.errors import SymShapeError


class NotStorable(Exception):
    """A program cannot be described for another process; the message says what of it."""


class Differs(Exception):
    """Something that an entry read has changed; the message names it.

    Attributes:
        of_code: whether it is code that is another.
    """

    def __init__(self, name: str, of_code: bool = False) -> None:
        super().__init__(printable(name))
        self.of_code = of_code


class EntryError(SymShapeError):
    """A stored entry is damaged, of another version, or not one at all; delete it
    (``symshape cache prune``).

    The message may quote the file: unprintable characters are escaped.
    """

    code = "SYM115"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class NotImported(EntryError):
    """The class of an entry's result is unknown in this process; the entry may be valid, and of use
    to another.
    """
