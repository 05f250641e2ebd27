"""The errors of this package: one root, one class for each remedy."""

from __future__ import annotations


class GuardsError(Exception):
    """The root of all errors that this package raises on purpose."""


class ParseError(GuardsError, ValueError):
    """A text is not an expression of the accepted language.  Remedy: rewrite the text.

    Attributes:
        source: the text, shortened when it is long.
        position: the 0-based offset at which reading stopped, where known.
    """

    def __init__(self, message: str, source: str = "", position: int | None = None) -> None:
        shown = source if len(source) <= 80 else source[:77] + "..."
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"{message}{where}: {shown!r}" if source else message)
        self.source = shown
        self.position = position


class Contradiction(GuardsError, ValueError):
    """Assumptions that no integers satisfy.  Remedy: drop or correct one of them.

    Attributes:
        conditions: the assumptions, as text.
    """

    def __init__(self, message: str, conditions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.conditions = conditions


class RangeError(GuardsError, ValueError):
    """A declared range is empty or is not a pair of integers or None.  Remedy: correct the
    range.
    """


class ArgumentError(GuardsError, TypeError):
    """An argument is of a type that the function does not take.  Remedy: pass what the message
    names.
    """


class Missing(GuardsError, KeyError):
    """Values lack a symbol, or an entry is not there.  Remedy: add the symbol's value, or name an
    entry that exists.
    """

    def __str__(self) -> str:
        return str(self.args[0])


class CannotSolve(GuardsError):
    """A relation has no closed form for the symbol asked for.  Remedy: use the relation as it
    is.
    """


class Undecided(GuardsError, TypeError):
    """Code asked whether a condition holds that depends on its symbols.  Remedy: assume it
    (``guards.assuming``).
    """


class FormatError(GuardsError, ValueError):
    """Stored data is not of the expected format or version.  Remedy: write it again with this
    version.
    """
