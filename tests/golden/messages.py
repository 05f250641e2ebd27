"""The messages in the source: the texts that the product may show, read from the syntax trees.

Read are all texts of two words or more, wherever they are written, and texts of one word that are
raised, warned of, logged or printed.  A message that no test raises is listed too.  A line is
``file: where: text``: ``where`` is the class or function that the text is given to.  A field of an
f-string is the last name of its expression in braces, or ``{…}``.  Texts that are put together
elsewhere are lines of their own.

What is not seen:

- docstrings, of which the command line makes its help (``docs/reference/command-line.md`` has it,
  as a page that a test keeps fresh);
- single words that are stored or returned (``how="decomposition"``), and names of operators, units
  and columns of one word;
- the scripts of reports (``exploring/assets``) and the errors of C and C++;
- what torch, Z3, Python or the user's program says: it stands in fields.

Seen though nobody reads it: Python and SQL that the product writes, patterns, and names of files.
A list of exceptions could hide a message.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.discovery import REPOSITORY

PACKAGES = ("guards", "meta_fns", "symshape")
# Functions that show their text to a user, whatever they are methods of.
LOUD = frozenset(
    {
        "BadParameter",
        "echo",
        "error",
        "exit",
        "info",
        "log",
        "print",
        "warn",
        "warn_user",
        "warning",
    }
)
_A_WORD = re.compile(r"[^\W\d_]")
_WORDS = re.compile(
    r"[^\W\d_]{2}\S* \S*[^\W\d_]{2}|[^\W\d_]{2}\S* \{|\} [^\W\d_]{2}|^ [^\W\d_]{2}|[^\W\d_]{2} $"
)


def messages() -> str:
    """All messages of the packages, one a line, by file in alphabetical order and then as they
    stand in the file.
    """
    files = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
    lines = [
        f"{path.relative_to(REPOSITORY).as_posix()}: {line}"
        for path in files
        for line in messages_of(path.read_text(encoding="utf-8"))
    ]
    return "\n".join(lines) + "\n"


def messages_of(source: str) -> list[str]:
    """The messages of one module, in the order of its text, each once."""
    found = sorted(set(_messages(ast.parse(source), "", False)))
    return list(dict.fromkeys(f"{where}: {text}" if where else text for _, _, where, text in found))


def _messages(node: ast.AST, where: str, loud: bool) -> Iterator[tuple[int, int, str, str]]:
    """Yield line, column, receiver and text of each message below a node that is given to
    ``where``.
    """
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Raise):
        loud = True
    elif isinstance(node, ast.Call):
        name = _last_name(node.func)
        if name not in ("join", "format"):  # methods of texts: who gets the result matters
            where, loud = name, loud or name in LOUD
    elif isinstance(node, ast.stmt):
        where, loud = "", False
    text = _text(node)
    if text is not None and (
        _WORDS.search(text) or (loud and _A_WORD.search(re.sub(r"\{.*?\}", "", text)))
    ):
        assert isinstance(node, ast.expr)
        yield node.lineno, node.col_offset, where, text.replace("\n", r"\n")
    for child in _inner(node):
        yield from _messages(child, where, loud)


def _text(node: ast.AST) -> str | None:
    """Return the text of a literal, an f-string or a sum of such, with fields in braces; None for
    other nodes.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or _field(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_text(node.left), _text(node.right)]
        if any(side is not None for side in sides):
            return "".join(
                side or _field(part)
                for side, part in zip(sides, (node.left, node.right), strict=True)
            )
    return None


def _field(node: ast.AST) -> str:
    return f"{{{_last_name(node) or '…'}}}"


def _last_name(node: ast.AST) -> str:
    """Return the name that tells most of an expression: of an attribute its own, of a call its
    function's.
    """
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return _last_name(node.func)
        case ast.FormattedValue() | ast.Subscript():
            return _last_name(node.value)
    return ""


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of a node may hold further messages: of a text that was read, its fields."""
    if _text(node) is None:
        yield from ast.iter_child_nodes(node)
    elif isinstance(node, ast.JoinedStr):
        yield from (part.value for part in node.values if isinstance(part, ast.FormattedValue))
    elif isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            yield from _inner(side) if _text(side) is not None else (side,)
