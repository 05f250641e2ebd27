"""The text of an assertion, with places for numbers that are known only at run time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from guards.terms import fold
from guards.terms.term import Term
from symshape.graph.float_terms import FloatTerm

_BEGIN, _END = "\ue000", "\ue001"  # private characters that no text has
_MARK = re.compile(f"{_BEGIN}([0-9]+){_END}")


@attrs.frozen
class Place:
    """A number in a text: its term, and its format."""

    term: Term | FloatTerm = attrs.field(
        eq=lambda term: id(term) if isinstance(term, Term) else term
    )
    spec: str = ""

    def text(self, values: Mapping[str, int]) -> str:
        """Return the number for these values of symbols."""
        if isinstance(self.term, FloatTerm):
            return format(self.term.evaluate(values, values), self.spec)
        return format(fold.evaluate(self.term, values), self.spec)


@attrs.frozen
class Message:
    """A text with places for numbers.

    >>> from guards.terms import arithmetic
    >>> message = Message(("", Place(arithmetic.symbol("u0")), " is too few"))
    >>> print(message, "|", message.text({"u0": 3}))
    u0 is too few | 3 is too few
    """

    parts: tuple[str | Place, ...] = ()

    def text(self, values: Mapping[str, int]) -> str:
        """Return the text for these values of symbols (unbacked floats among them)."""
        return "".join(part if isinstance(part, str) else part.text(values) for part in self.parts)

    def __str__(self) -> str:
        return "".join(part if isinstance(part, str) else str(part.term) for part in self.parts)

    def __bool__(self) -> bool:
        return any(self.parts)

    def names(self) -> set[str]:
        """The symbols whose values the text needs."""
        places = [part.term for part in self.parts if isinstance(part, Place)]
        floats = {
            name for term in places if isinstance(term, FloatTerm) for name in term.unbacked()
        }
        return floats | {symbol.name for symbol in self.symbols()}

    def symbols(self) -> frozenset[Term]:
        """The integer symbols among them."""
        places: Iterable[Term | FloatTerm] = [
            part.term for part in self.parts if isinstance(part, Place)
        ]
        each = [term.symbols() if isinstance(term, FloatTerm) else term.symbols for term in places]
        return frozenset().union(*each)


class Places:
    """The marks that stand for numbers while a text is made."""

    def __init__(self) -> None:
        self._places: list[Place] = []

    def mark(self, term: Term | FloatTerm, spec: str = "") -> str:
        """Return a mark to put into a text in place of a number."""
        self._places.append(Place(term, spec))
        return f"{_BEGIN}{len(self._places) - 1}{_END}"

    def message(self, text: str) -> Message:
        """Return the text with its places; an empty message if the program cut a mark to pieces."""
        parts: Sequence[str] = _MARK.split(text)  # text, number, text, number, ..., text
        if any(_BEGIN in part or _END in part for part in parts[::2]):
            return Message()
        return Message(
            tuple(self._places[int(part)] if i % 2 else part for i, part in enumerate(parts))
        )
