"""Notes that are taken while a text is read: where errors point, the divisors, the conditions to be
shown.
"""

from __future__ import annotations

import ast
from typing import NoReturn

from guards.errors import ParseError
from guards.terms.term import Term
from guards.terms.truncation import Made


class Required:
    """A condition that has to hold for all integers, and the error of the text where it does not.

    The reader knows no decider: who calls it finds out.
    """

    __slots__ = ("condition", "error")

    def __init__(self, condition: Term, error: ParseError) -> None:
        self.condition = condition
        self.error = error


class Transcript:
    """The notes on one text.

    Attributes:
        text: the text, as errors quote it.
        choosing: whether a condition was read: then not all that is written need be defined.
        divisors: those that are not numbers.
        required: what has to hold for the text to have a value everywhere.
        truncated: what the divisions that round towards zero were made of.
    """

    __slots__ = ("choosing", "divisors", "required", "text", "truncated")

    def __init__(self, text: str) -> None:
        self.text = text
        self.choosing = False
        self.divisors: dict[Term, None] = {}
        self.required: list[Required] = []
        self.truncated: Made = {}

    def error(self, message: str, node: ast.AST) -> ParseError:
        """The error that points at a node of the text."""
        return ParseError(message, self.text, getattr(node, "col_offset", None))

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        """Raises it."""
        raise self.error(message, node)

    def require(self, condition: Term, message: str, node: ast.AST) -> None:
        """Note a condition that has to hold, and the error if it does not."""
        self.required.append(Required(condition, self.error(message, node)))


def described(node: ast.AST) -> str:
    """Return the words by which errors name a node."""
    return (
        f"a {type(node).__name__} expression" if isinstance(node, ast.expr) else type(node).__name__
    )
