"""Mutants of a module, as cosmic-ray makes them: which there are, and a fair sample of those that
change anything.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Mutant:
    """One small change of one module."""

    path: str
    line: int
    operator: str
    source: str  # the whole module, changed
    diff: str


def meaning(source: str) -> str | None:
    """What a source says, without docstrings and annotations (which nothing reads); None where it
    is no Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        if (
            isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def sample(root: Path, path: str, count: int, rng: random.Random) -> Iterator[Mutant]:
    """Up to ``count`` mutants of the module at ``root / path``.

    A place is drawn first, an operator among those that fit there second: otherwise comparisons and
    sums, for which cosmic-ray has ten operators each, would be most of the sample.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = (root / path).read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    places: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue  # it wants to be told which names to replace
        starts = [start for node in nodes for start, _ in kind().mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            places.setdefault(start, []).append((name, occurrence))
    original = meaning(source)
    drawn = sorted(places)
    rng.shuffle(drawn)
    for start in drawn:
        if count == 0:
            return
        name, occurrence = rng.choice(places[start])
        changed = mutate_code(source, get_operator(name)(), occurrence)
        if changed is None or meaning(changed) in (original, None):
            continue
        count -= 1
        lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
        diff = "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
        yield Mutant(path, start[0], name, changed, diff)
