"""The house rules of imports and files: three packages, one direction, no cycles, nothing of one machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY
from tests.imports import Import, Package, cycle, imports_of

# What a package may import beside the standard library and itself.
ALLOWED = {
    "guards": {"attrs", "sympy", "z3"},
    "meta_fns": {"attrs", "torch"},
    "symshape": {"attrs", "torch", "guards", "meta_fns"},
}
# Third-party packages that belong to one place: the only modules (or packages) that may import them.
CONFINED = {
    "sympy": {"guards.deciders.factoring"},
    "z3": {"guards.deciders.z3_solver"},
    # Optional extras, only where something is shown to a person.
    "IPython": {"symshape.explore"},
    "matplotlib": {"symshape.explore"},
    "numpy": {"symshape.explore"},
    "rich": {"symshape.explore", "symshape.frontends.cli"},
    "transformers": {"symshape.explore", "symshape.frontends.cli"},
    "typer": {"symshape.frontends.cli"},
}
# Annotations that name the owner of an object: under `if TYPE_CHECKING:`, the only imports that may close a circle.
OWNERS = {
    ("symshape.tracing.symbolic.numbers", "symshape.tracing.symbolic.env"),
    ("symshape.tracing.symbolic.undecided", "symshape.tracing.symbolic.env"),
    ("symshape.tracing.symbolic.tensors", "symshape.tracing.tracer"),
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
    """Imports inside functions count: a late import breaks a circle for Python, not for the reader."""
    graph = package.edges(typing_only=False)
    for module, targets in package.edges(typing_only=True).items():
        graph[module] |= {target for target in targets if (module, target) not in OWNERS}
    found = cycle(graph)
    assert found is None, " -> ".join(found or [])


def test_owners_are_used() -> None:
    used = {
        (module, target) for module, ts in Package.read("symshape").edges(typing_only=True).items() for target in ts
    }
    assert used >= OWNERS, f"no longer needed: {OWNERS - used}"


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
    ("name", "unwanted"), [("guards", ["torch", "meta_fns", "symshape"]), ("meta_fns", ["guards", "symshape", "z3"])]
)
def test_importing_loads_nothing_above(name: str, unwanted: list[str]) -> None:
    code = f"import sys, {name}; print([each for each in {unwanted} if each in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]", f"importing {name} loads {run.stdout.strip()}"


def test_library_never_imports_the_tests() -> None:
    for name in ALLOWED:
        assert not [each for each in Package.read(name).imports if each.top == "tests"]


# --- nothing of one machine in what is committed --------------------------------------------------------------------

HOME = re.compile(r"(?<![\w.-])/(?:root\b|home/[a-z]|Users/[A-Za-z]|work/|farm/|opt/(?:wheels|pypi))|[A-Z]:\\Users")
REGISTRY = re.compile(
    r"https?://[^\s\"')>]*(?:/simple\b|/whl\b|pypi|pythonhosted)|--(?:extra-)?index-url[ =]\S|--find-links[ =]\S"
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
    run = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in run.stdout.split("\0") if name]


def _confined_here(each: Import) -> bool:
    places = CONFINED.get(each.top, set())
    return any(each.module == place or each.module.startswith(place + ".") for place in places)


# --- the reader of imports itself -----------------------------------------------------------------------------------


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
