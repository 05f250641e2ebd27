"""Why an entry cannot be stored, or what was stored cannot be used."""

from __future__ import annotations

from guards.text.escaping import printable
from symshape.errors import SymShapeError


class NotStorable(Exception):
    """A program cannot be kept in words that another process understands; the message says what of it."""


class Differs(Exception):
    """What an entry read is not what it was; the message names it.

    Attributes:
        of_code: whether it is code that is another.
    """

    def __init__(self, name: str, of_code: bool = False) -> None:
        super().__init__(printable(name))
        self.of_code = of_code


class EntryError(SymShapeError):
    """A stored entry is damaged, of another version, or not one at all; delete it (``symshape cache prune``).

    The message may quote the file: what is not printable is escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class NotImported(EntryError):
    """An entry's result is of a class that this process does not know: it may be whole, and of use to another."""
