"""Texts that are shown only if a check fails: f-strings that are the message of a checking
function.

``torch_compilable_check(found == wanted, f"found {found}")`` makes its text even if the check
holds.  When the check is traced, the text is never shown.  When the check fails in a run, the
function runs eagerly and makes eager's text.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

from symshape.torch_internals import operators

_CHECKS = {("transformers.utils.import_utils", "torch_compilable_check")}
"""The checking functions of other libraries, by module and name; their second argument is a
message.
"""
_OF_TORCH = {id(operators.asserting)}
_NAMES = frozenset(("msg", "message"))
_FORMATS = frozenset(("format", "format_map", "__format__"))


def is_unsaid(frame: FrameType) -> bool:
    """Return whether all texts that the current line formats are messages of checking functions."""
    names = _messages(frame.f_code.co_filename).get(frame.f_lineno)
    return bool(names) and all(_only_checks(name, frame) for name in names or ())


def _only_checks(name: tuple[str, ...], frame: FrameType) -> bool:
    code = frame.f_code
    if not name or name[0] in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return False
    found: Any = frame.f_globals.get(name[0])
    for each in name[1:]:
        found = getattr(found, each, None)
    if id(found) in _OF_TORCH:
        return True
    return (getattr(found, "__module__", ""), getattr(found, "__qualname__", "")) in _CHECKS


@lru_cache(maxsize=256)
def _messages(filename: str) -> dict[int, set[tuple[str, ...]]]:
    """Return, by line, the functions whose messages the f-strings are; an empty name for any other
    formatting.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, set[tuple[str, ...]]] = {}
    for node, name in _formatting(tree, ()):
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found.setdefault(line, set()).add(name)
    return found


def _formatting(node: ast.AST, name: tuple[str, ...]) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """Yield each f-string and each call of ``format`` under a node, with the function whose message
    it is.
    """
    if isinstance(node, ast.JoinedStr):
        yield node, name
        name = ()  # texts formatted inside it are not the message itself
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _formatting(part.value, ())
        return
    messages: list[ast.AST] = []
    callee: tuple[str, ...] = ()
    if isinstance(node, ast.Call):
        callee = _dotted(node.func)
        if callee and callee[-1] in _FORMATS:
            yield node, ()
        messages = [*node.args[1:2], *(each.value for each in node.keywords if each.arg in _NAMES)]
    for child in ast.iter_child_nodes(node):
        inner = child.value if isinstance(child, ast.keyword) else child
        yield from _formatting(inner, callee if any(inner is each for each in messages) else ())


def _dotted(node: ast.expr) -> tuple[str, ...]:
    """Return the names of ``a.b.c``; for any other expression an empty name and the last attribute,
    if it has one.
    """
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return (*before, node.attr) if before else ("", node.attr)
    return ()
