"""How large files, classes and folders are, read from their source alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE, METHODS, FOLDER = 900, 15, 20
"""Lines of a file, public methods of a class, files that lie flat in a folder."""


def over_budget(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Yield what is larger than its budget in a module, as `module` or `module.Class`, with its
    size.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > FILE:
        yield name, lines
    yield from _of(name, ast.parse(text))


def crowded(files: Mapping[str, Path]) -> dict[str, int]:
    """Return the folders in which more modules lie flat than their budget allows, with how many."""
    count = Counter(
        name.rpartition(".")[0] for name, path in files.items() if path.name != "__init__.py"
    )
    return {name: size for name, size in count.items() if size > FOLDER}


def _of(name: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of(f"{name}.{node.name}", node)
        elif isinstance(node, ast.ClassDef):
            inner = f"{name}.{node.name}"
            if (public := len(_public(node))) > METHODS:
                yield inner, public
            yield from _of(inner, node)
        else:
            yield from _of(name, node)


def _public(node: ast.ClassDef) -> set[str]:
    """Names of methods without a leading underscore; a property counts once, whatever it has of
    setters.
    """
    return {
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not each.name.startswith("_")
    }
