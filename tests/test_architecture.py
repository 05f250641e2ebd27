"""The house rules: three packages, floors in each, imports that go down, rooms of a size, nothing
of one machine.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budgets import FILE, FOLDER, METHODS, crowded, over_budget
from tests.discovery import REPOSITORY
from tests.imports import Import, Package, cycle, imports_of

# What a package may import beside the standard library and itself.
ALLOWED = {
    "guards": {"attrs", "sympy", "z3"},
    "meta_fns": {"attrs", "torch"},
    "symshape": {"attrs", "torch", "guards", "meta_fns"},
}
# Third-party packages that belong to one place: the only modules (or packages) that may import
# them.
CONFINED = {
    "sympy": {"guards.deciders.factoring"},
    "z3": {"guards.deciders.z3_solver"},
    # Optional extras, only where something is shown to a person.
    "IPython": {"symshape.exploring"},
    "anywidget": {"symshape.exploring.widget"},
    "traitlets": {"symshape.exploring.widget"},
    "matplotlib": {"symshape.exploring"},
    "numpy": {"symshape.exploring"},
    "rich": {"symshape.exploring", "symshape.frontends.cli"},
    "fsspec": {"symshape.store.remote"},
    "platformdirs": {"symshape.native.cache", "symshape.store.disk"},
    "redis": {"symshape.store.remote"},
    "transformers": {"symshape.exploring", "symshape.frontends.cli"},
    "typer": {"symshape.frontends.cli"},
}
# The floors of each package, bottom-up: a folder (or a module that stands alone) imports from those
# before it only. The files directly in a folder stand above the folder's own sub-folders.
FLOORS = {
    "guards": (
        "errors",
        "budget",
        "terms",
        "domains",
        "text",
        "facts",
        "deciders",
        "asking",
        "regions",
        "sets",
        "dispatch",
    ),
    "meta_fns": ("errors", "torch_internals", "core", "padding", "ops", "cost", "custom_rules"),
    "symshape": (
        "environment_variables",
        *(
            "errors",
            "torch_internals",
            "forks",
            "interrupts",
            "spelling",
            "options",
            "dims",
            "events",
            "user_code",
            "data",
        ),
        *("own_packages", "native"),
        *("calls", "graph"),
        "tracing.restart",
        *(
            "tracing.symbolic.nodes",
            "tracing.symbolic",
            "tracing.intercept",
            "tracing.state",
            "tracing",
        ),
        *("runtime.policy", "runtime.pieces", "runtime.padding", "runtime.runners", "runtime"),
        "store",
        *("exploring", "cost", "planning", "frontends", "auditing", "fitting", "frontends.cli"),
        "__main__",
    ),
}
# What is larger than its budget (tests/budgets.py), with the size it may not exceed and the reason.
# Only to shrink.
LARGE: dict[str, tuple[int, str]] = {
    "meta_fns.ops": (52, "rows of one kind: the rules of a family of ops each"),
    "meta_fns.padding": (30, "rows of one kind: the padding rules of a family of ops each"),
    "symshape.frontends": (24, "no rooms yet"),
    "symshape.runtime.padding": (21, "no rooms yet"),
    "symshape.graph": (24, "no rooms yet"),
    "guards.sets.guard_set.GuardSet": (
        19,
        "what a person may ask of a guard set; each is a line or two",
    ),
    "symshape.tracing.symbolic.nodes.node.Node": (
        19,
        "torch's SymNode protocol: its methods are given",
    ),
    "symshape.tracing.symbolic.nodes.int_node.IntNode": (
        37,
        "torch's SymNode protocol: its methods are given",
    ),
    "symshape.tracing.symbolic.nodes.bool_node.BoolNode": (
        20,
        "torch's SymNode protocol: its methods are given",
    ),
    "symshape.tracing.symbolic.nodes.float_node.FloatNode": (
        22,
        "torch's SymNode protocol: its methods are given",
    ),
}


@pytest.fixture(scope="module", params=sorted(ALLOWED))
def package(request: pytest.FixtureRequest) -> Package:
    read = Package.read(request.param)
    if request.param not in read.files:
        pytest.fail(f"there is no package {request.param} (no __init__.py)")
    return read


def test_imports_go_one_way(package: Package) -> None:
    known = set(sys.stdlib_module_names) | {package.name} | ALLOWED[package.name]
    wrong = [each for each in package.imports if each.top not in known and not _confined_here(each)]
    assert not wrong, "\n".join(map(str, wrong))


def test_one_place_for_each_confined_package(package: Package) -> None:
    wrong = [each for each in package.imports if each.top in CONFINED and not _confined_here(each)]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_cycles(package: Package) -> None:
    """Imports inside functions, and for annotations, count: they break a circle for Python, not for
    the reader.
    """
    graph = package.edges(typing_only=False)
    for module, targets in package.edges(typing_only=True).items():
        graph[module] |= targets
    found = cycle(graph)
    assert found is None, " -> ".join(found or [])


def _floor(package: str, module: str) -> int:
    """The number of the floor that a module stands on; the package's own `__init__` stands on
    top.
    """
    floors = FLOORS[package]
    path = module.split(".")[1:]
    for end in range(len(path), 0, -1):
        if ".".join(path[:end]) in floors:
            return floors.index(".".join(path[:end]))
    assert not path, f"{module} stands on no floor: add its folder to FLOORS"
    return len(floors)


def _upward(package: Package) -> set[tuple[str, str]]:
    """Imports from a lower floor of a higher one; those for annotations alone count too."""
    name = package.name
    return {
        (module, target)
        for typing_only in (False, True)
        for module, targets in package.edges(typing_only=typing_only).items()
        for target in targets
        if target != name and _floor(name, target) > _floor(name, module)
    }


def test_floors_import_downwards(package: Package) -> None:
    wrong = sorted(_upward(package))
    assert not wrong, "\n".join(
        f"{module} imports {target}, which stands above it" for module, target in wrong
    )


def test_folders_have_no_cycles(package: Package) -> None:
    """Also among floors that the order above leaves next to each other."""
    graph: dict[str, set[str]] = {}
    for module, targets in package.edges(typing_only=False).items():
        for target in targets:
            if package.name in (module, target):
                continue
            here, there = (
                FLOORS[package.name][_floor(package.name, each)] for each in (module, target)
            )
            if here != there:
                graph.setdefault(here, set()).add(there)
    found = cycle(graph)
    assert found is None, " -> ".join(found or [])


def test_no_module_has_the_name_of_a_public_function(package: Package) -> None:
    """`import guards.prove as p` would answer a function, and `guards.prove(...)` a module,
    whichever came last.
    """
    public = importlib.import_module(package.name).__all__
    clash = {
        module
        for module in package.files
        if module.count(".") == 1 and module.partition(".")[2] in public
    }
    assert not clash, f"a name of the package's own: {clash}"


def test_rooms_are_of_a_size(package: Package) -> None:
    found = dict(
        each for module, path in package.files.items() for each in over_budget(module, path)
    )
    found |= crowded(package.files)
    grown = {name: size for name, size in found.items() if size > LARGE.get(name, (0, ""))[0]}
    budget = (
        f"a file has at most {FILE} lines, a class {METHODS} public methods, a folder "
        f"{FOLDER} files"
    )
    assert not grown, f"{budget}: {grown}"
    mended = {name for name in LARGE if name.partition(".")[0] == package.name} - found.keys()
    assert not mended, f"no longer large, take them out of LARGE: {mended}"


def test_budgets_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "here.py"
    method = "    def m{0}(self):\n        pass\n"
    source.write_text("class C:\n" + "".join(method.format(i) for i in range(METHODS + 1)))
    assert dict(over_budget("here", source)) == {"here.C": METHODS + 1}
    source.write_text("\n" * FILE + "x = 1\n")
    assert dict(over_budget("here", source)) == {"here": FILE + 1}
    files = {f"a.b.m{number}": tmp_path / f"m{number}.py" for number in range(FOLDER)}
    assert not crowded(files | {"a.b": tmp_path / "__init__.py", "a.m": tmp_path / "m.py"})
    assert crowded(files | {"a.b.n": tmp_path / "n.py"}) == {"a.b": FOLDER + 1}


def test_no_module_called_utils(package: Package) -> None:
    vague = [
        module
        for module in package.files
        if module.rpartition(".")[2] in {"utils", "util", "helpers", "misc", "common"}
    ]
    assert not vague, f"name what they are about: {vague}"


def test_typed(package: Package) -> None:
    assert (REPOSITORY / package.name / "py.typed").is_file()


@pytest.mark.parametrize(
    ("name", "unwanted"),
    [("guards", ["torch", "meta_fns", "symshape"]), ("meta_fns", ["guards", "symshape", "z3"])],
)
def test_importing_loads_nothing_above(name: str, unwanted: list[str]) -> None:
    code = f"import sys, {name}; print([each for each in {unwanted} if each in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]", f"importing {name} loads {run.stdout.strip()}"


def test_library_never_imports_the_tests() -> None:
    for name in ALLOWED:
        assert not [each for each in Package.read(name).imports if each.top == "tests"]


def test_no_property_of_ours_has_a_lock() -> None:
    """A child of ``os.fork`` finds that lock taken: ``symshape.forks`` has the one without."""
    imports = re.compile(r"^from functools import .*\bcached_property\b", re.M)
    decorates = re.compile(r"@functools\.cached_property\b")
    for name in ALLOWED:
        for path in sorted((REPOSITORY / name).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found = imports.search(text) or decorates.search(text)
            assert found is None, path


# --- nothing of one machine in what is committed --------------------------------------------------

HOME = re.compile(
    r"(?<![\w.-])/(?:root\b|home/[a-z]|Users/[A-Za-z]|work/|farm/|opt/(?:wheels|pypi))|"
    r"[A-Z]:\\Users"
)
REGISTRY = re.compile(
    r"https?://[^\s\"')>]*(?:/simple\b|/whl\b|pypi|pythonhosted)|--(?:extra-)?index-url[ "
    r"=]\S|--find-links[ =]\S"
)


def test_no_paths_or_registries_of_a_machine() -> None:
    wrong = []
    for path in _committed():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if path != Path(__file__) and (HOME.search(line) or REGISTRY.search(line)):
                wrong.append(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:160]}")
    assert not wrong, "\n".join(wrong)


def test_those_patterns_find_what_they_should() -> None:
    for bad in ("/root/x", "/home/me/x", "/Users/Me/x", "/work/" + "main", "C:\\Users\\me"):
        assert HOME.search(bad)
    for fine in ("src/root.py", "symshape/framework/x", "/usr/bin/env bash", "/dev/null"):
        assert not HOME.search(fine)
    assert REGISTRY.search("pip install --index-url https://example.org/simple x")
    assert not REGISTRY.search("https://example.org/docs")


def _committed() -> list[Path]:
    run = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in run.stdout.split("\0") if name]


def _confined_here(each: Import) -> bool:
    places = CONFINED.get(each.top, set())
    return any(each.module == place or each.module.startswith(place + ".") for place in places)


# --- the reader of imports itself -----------------------------------------------------------------


def test_reader_of_imports(tmp_path: Path) -> None:
    source = tmp_path / "here.py"
    source.write_text(
        "import a.b, c\nfrom d import e as f\nfrom . import g\nfrom .h import i\n"
        "def later():\n    import j\n    importlib.import_module('k.l')\n    __import__(name)\n"
        "    import_module(f'{__name__}.{m}')\nif TYPE_CHECKING:\n    import t\n"
    )
    found = sorted(imports_of("p.q.here", source), key=lambda each: (each.line, each.target))
    assert [each.target for each in found if each.typing_only] == ["t"]
    assert [each.target for each in found] == [
        "a.b",
        "c",
        "d.e",
        "p.q.g",
        "p.q.h.i",
        "j",
        "k.l",
        "?name",
        "p.q.here.?",
        "t",
    ]


def test_cycle() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
