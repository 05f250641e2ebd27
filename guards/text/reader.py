"""A safe reader of Python-syntax text into terms: through ``ast``, never ``eval``, with limits on
everything.

Accepted are integers, names, ``+ - * // % **`` (constant exponents), ``& | ^ << >>`` where one side
is a constant, ``x.size(0)`` and its like as names, comparisons (chained too), ``and or not``,
``a if c else b``, and the functions in :data:`guards.text.functions.FUNCTIONS` under the names that
tensor compilers use for them. A fraction ``a / b`` is read where it is rounded or comes out even.
"""

from __future__ import annotations

import ast

from guards.errors import ParseError
from guards.terms.term import Term
from guards.text.grammar import Reader
from guards.text.reading_places import READINGS, place
from guards.text.transcript import Required, Transcript

MAX_LENGTH = 50_000  # characters


class Read:
    """A text that was read: its term, and what the text says beyond the term.

    Attributes:
        term: the term that it writes.
        divisors: the divisors that the text writes and that are not numbers; its term need not show
            them all.
        plain: whether the text is one comparison without a choice inside: undefined where any
            divisor is 0.
        required: what has to hold for all integers, or the text is not of the language.
        tree: the syntax tree.
    """

    __slots__ = ("divisors", "plain", "required", "term", "tree")

    def __init__(
        self,
        term: Term,
        divisors: tuple[Term, ...],
        plain: bool,
        required: tuple[Required, ...],
        tree: ast.expr,
    ) -> None:
        self.term = term
        self.divisors = divisors
        self.plain = plain
        self.required = required
        self.tree = tree


def names_in(text: str) -> set[str]:
    """The names of the symbols that a text writes, those that cancel included; the text has been
    read before.

    >>> sorted(names_in("max(s0, 8) - s1 + s1 > math.floor(x.size(0) / 2)"))
    ['s0', 's1', 'x.size(0)']
    """
    notes, found = Transcript(text), set()
    waiting: list[ast.AST] = [ast.parse(text.strip().replace("\n", " "), mode="eval").body]
    while waiting:
        node = waiting.pop()
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and not (
            isinstance(function, ast.Attribute) and function.attr in READINGS
        ):
            waiting += node.args
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Call):
            found.add(place(notes, node))
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def read(text: str) -> Read:
    """Read a text; the caller checks the conditions that it requires
    (:func:`guards.asking.reading.parse` does).

    Raises:
        ParseError: the text is not of the accepted language, or is too large.

    >>> found = read("Piecewise((s // 2, s % 2 == 0), (0, s % 2 == 1))")
    >>> found.term, [required.condition for required in found.required]
    (<(s//2 if s % 2 == 0 else 0)>, [<s % 2 == 1 or s % 2 == 0>])
    >>> read("s % (2*s) == 0").divisors
    (<2*s>,)
    """
    if not isinstance(text, str):
        raise ParseError(f"a text is needed, not {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise ParseError(f"the text has {len(text)} characters, more than {MAX_LENGTH}", text)
    text = text.strip().replace("\n", " ")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        offset = error.offset - 1 if error.offset else None
        raise ParseError(
            f"not a Python expression ({str(error.msg)[:120]})", text, offset
        ) from None
    except (RecursionError, MemoryError):
        raise ParseError("nested too deeply", text) from None
    except ValueError as error:  # null bytes, too many digits
        raise ParseError(f"not readable ({str(error)[:120]})", text) from None
    notes = Transcript(text)
    try:
        term = Reader(notes).read(tree)
    except ZeroDivisionError as error:
        raise ParseError(f"division by zero ({str(error)[:60]})", text) from None
    except RecursionError:
        raise ParseError("nested too deeply", text) from None
    plain = isinstance(tree, ast.Compare) and len(tree.ops) == 1 and not notes.choosing
    return Read(term, tuple(notes.divisors), plain, tuple(notes.required), tree)
