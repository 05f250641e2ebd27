"""Which module imports which, read from the import statements alone: nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from tests.discovery import REPOSITORY


@attrs.frozen
class Import:
    """One imported name: the module or attribute asked for, dotted, and where."""

    module: str
    target: str
    line: int
    typing_only: bool = False

    @property
    def top(self) -> str:
        """The top-level package imported."""
        return self.target.partition(".")[0]

    def __str__(self) -> str:
        """`module:line imports target`."""
        return f"{self.module}:{self.line} imports {self.target}"


@attrs.frozen
class Package:
    """A package as found on disk: module names to files, and all imports in them."""

    name: str
    files: Mapping[str, Path]
    imports: tuple[Import, ...]

    @classmethod
    def read(cls, name: str) -> Package:
        """Parse every module of a package of this repository, wherever in it the imports stand."""
        files = {_module_name(path): path for path in sorted((REPOSITORY / name).rglob("*.py"))}
        found = [each for module, path in files.items() for each in imports_of(module, path)]
        return cls(name, files, tuple(found))

    def edges(self, *, typing_only: bool) -> dict[str, set[str]]:
        """For each module the modules of this package it imports (`from p import m` means `p.m` if
        that is one).

        Either the imports under `if TYPE_CHECKING:`, or all others.
        """
        graph: dict[str, set[str]] = {module: set() for module in self.files}
        for each in self.imports:
            if each.typing_only is not typing_only:
                continue
            target = each.target
            if target.endswith(".?"):
                graph[each.module] |= {
                    module for module in self.files if module.rpartition(".")[0] == target[:-2]
                }
                continue
            while target and target not in graph:
                target = target.rpartition(".")[0]
            if target and target != each.module:
                graph[each.module].add(target)
        return graph


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """Every import statement of a file, nested and type-checking-only ones too, and
    `import_module(...)`.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    guarded = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    typing_only = {
        id(inner) for node in guarded for statement in node.body for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, id(node) in typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            for alias in node.names:
                yield Import(module, f"{base}.{alias.name}", node.lineno, id(node) in typing_only)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            for argument in node.args[:1]:
                yield Import(module, _computed(module, argument), node.lineno)


def cycle(graph: Mapping[str, set[str]]) -> list[str] | None:
    """One cycle of a graph, as the nodes along it with the first repeated at the end, or None."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for follower in sorted(graph.get(node, ())):
            if found := walk(follower, [*path, node]):
                return found
        done.add(node)
        return None

    return next((found for node in sorted(graph) if (found := walk(node, []))), None)


def _module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _computed(module: str, argument: ast.expr) -> str:
    """What `import_module(argument)` imports; `m.?` (all below m) for `f"{__name__}.{...}"`; `?...`
    where unknown.
    """
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return (
        f"{module}.?"
        if ast.unparse(argument).startswith("f'{__name__}.{")
        else f"?{ast.unparse(argument)}"
    )


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )
