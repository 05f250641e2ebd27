"""The package as users import it: all names are there, and what is not asked for is not loaded."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import guards
from tests.discovery import REPOSITORY
from tests.imports import imports_of

HIGH = ("guards.regions.", "guards.sets.", "guards.dispatch.")


def _loaded(code: str) -> set[str]:
    """The modules of guards that a fresh process has loaded after ``code``."""
    code += "\nimport sys; print(*(name for name in sys.modules if name.startswith('guards.')))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_every_public_name_is_there() -> None:
    assert len(set(guards.__all__)) == len(guards.__all__)
    for name in guards.__all__:
        assert getattr(guards, name) is not None
    assert set(guards.__all__) <= set(dir(guards))


def test_functions_are_not_hidden_by_folders_of_their_name() -> None:
    """`guards.ask` is a folder, too."""
    importlib.import_module("guards.asking.verdict")
    assert all(
        callable(getattr(guards, name)) for name in guards.__all__ if name not in ("Source",)
    )
    assert guards.ask(guards.Facts(), guards.parse("s0 >= 0")) is True
    fresh = (
        "import guards, guards.dispatch.explanation, guards.sets.serialize; assert "
        "callable(guards.ask)"
    )
    assert "guards.asking.ladder" in _loaded(fresh)


def test_names_that_come_later_are_the_ones_that_types_promise() -> None:
    promised = {
        (each.target.rpartition(".")[2], each.target.rpartition(".")[0])
        for each in imports_of("guards", REPOSITORY / "guards" / "__init__.py")
        if each.typing_only
    }
    later = {
        (name, f"guards.{module}") for module, names in guards._LATER.items() for name in names
    }
    assert later == promised
    assert {name for name, _ in later} <= set(guards.__all__)
    for name, module in later:
        assert getattr(guards, name) is getattr(importlib.import_module(module), name)


def test_no_other_name() -> None:
    with pytest.raises(AttributeError, match="module 'guards' has no attribute 'nothing'"):
        guards.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from guards import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_the_package_alone_loads_no_high_floor() -> None:
    assert not {
        name for name in _loaded("import guards; guards.prove('s0 >= 0')") if name.startswith(HIGH)
    }


@pytest.mark.parametrize(
    "code", ["import guards.sets.guard", "from guards import Guard, Origin, Violation"]
)
def test_a_guard_loads_no_region(code: str) -> None:
    loaded = _loaded(code)
    assert "guards.sets.guard" in loaded
    high = {name for name in loaded if name.startswith(HIGH)}
    assert high <= {"guards.sets.guard", "guards.sets.origin"}


def test_a_guard_set_loads_no_dispatch() -> None:
    loaded = _loaded("from guards import GuardSet; GuardSet.read('s0 > 2').holds({'s0': 3})")
    assert "guards.regions.raster" in loaded
    assert not {name for name in loaded if name.startswith("guards.dispatch.")}


def test_star() -> None:
    space: dict[str, object] = {}
    exec("from guards import *", space)
    assert set(guards.__all__) <= set(space)
