"""Reading of the places of values, in the words of ``guards.sets.sources``:

``x.size(0)``, ``kwargs['mask'].stride(1)``.

Such a text is the name of a symbol, so that what guards print is read back as it was meant.
``x.shape[0]`` is ``x.size(0)``.
"""

from __future__ import annotations

import ast

from guards.text.transcript import Transcript, described

READINGS = ("size", "stride", "storage_offset")
"""The methods of tensors that a program reads integers by."""

MODULES = {
    "math": ("floor", "ceil", "trunc", "prod"),
    "torch": ("sym_min", "sym_max", "sym_not", "sym_ite", "sym_int"),
}
"""Modules, and those of their functions that have a meaning here."""


def place(notes: Transcript, node: ast.expr) -> str:
    """The name of the place that a node writes.

    Raises:
        ParseError: it is none.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        arguments = "" if method == "storage_offset" else str(_dimension(notes, node.args, node))
        if node.keywords or (node.args and not arguments):
            notes.fail(f"{method} takes {'a dimension' if arguments else 'nothing'} here", node)
        return f"{_path(notes, node.func.value)}.{method}({arguments})"
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "shape"
    ):
        return f"{_path(notes, node.value.value)}.size({_dimension(notes, [node.slice], node)})"
    raise notes.error(f"{described(node)} is not allowed", node)


def _dimension(notes: Transcript, args: list[ast.expr], node: ast.expr) -> int:
    value = args[0].value if len(args) == 1 and isinstance(args[0], ast.Constant) else None
    if type(value) is not int:
        notes.fail("a dimension is a number from 0, counted from the front", node)
    return value


def _path(notes: Transcript, node: ast.expr) -> str:
    """An argument, or a part of one."""
    if isinstance(node, ast.Name):
        if node.id in MODULES:
            notes.fail(f"{node.id} is a module here, not an argument", node)
        return node.id
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("__"):
            notes.fail(f"the name {node.attr[:40]!r} is not allowed", node)
        return f"{_path(notes, node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        key = node.slice.value
        if type(key) is int or (type(key) is str and "\\" not in repr(key)):
            return f"{_path(notes, node.value)}[{key!r}]"
    raise notes.error(f"{described(node)} is not allowed", node)
