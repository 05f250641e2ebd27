"""Every benchmark and fuzzer keeps the convention and runs with its smallest workload in a process
of its own.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY, names
from tests.forked import Forks

MODULES = [(kind, name) for kind in ("bench", "fuzz") for name in names(kind)]


def _cases() -> list[object]:
    return [pytest.param(kind, name, id=f"{kind}_{name}") for kind, name in MODULES]


@pytest.mark.parametrize(("kind", "name"), _cases())
def test_convention(kind: str, name: str) -> None:
    tree = ast.parse(
        (REPOSITORY / "tests" / kind / f"{kind}_{name}.py").read_text(encoding="utf-8")
    )
    assert ast.get_docstring(tree), (
        "say in the module's docstring what is measured against whom, or which oracle checks"
    )
    mains = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"
    ]
    assert mains, "no main(argv), see CONTRIBUTING.md"
    assert [argument.arg for argument in mains[0].args.args][:1] == ["argv"]


# These run by their command lines, from nothing; all others begin as forks of a process that has
# imported torch.
FROM_NOTHING = {("bench", "terms"), ("fuzz", "decide")}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as started:
        yield started


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize(("kind", "name"), _cases())
def test_smoke(kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    arguments = [name, "--smoke"]
    if kind == "bench":
        arguments += ["--out", str(tmp_path)]
    if (kind, name) in FROM_NOTHING:
        command = [sys.executable, "-m", f"tests.{kind}", *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        run = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    else:
        run = request.getfixturevalue("forks").run(
            f"tests.{kind}", arguments, said=tmp_path / "said", timeout=240
        )
    assert run.returncode == 0, f"tests.{kind} {' '.join(arguments)}\n{run.stdout}\n{run.stderr}"
    if kind == "bench" and "not run here:" not in run.stdout:
        assert list(tmp_path.glob("*.json")), run.stdout


def test_a_fork_ends_as_a_process_does(forks: Forks, tmp_path: Path) -> None:
    wrong = forks.run("tests.fuzz", ["no_such_fuzzer"], said=tmp_path / "wrong", timeout=240)
    assert wrong.returncode == 1
    assert "no fuzz called 'no_such_fuzzer'" in wrong.stderr
    listed = forks.run("tests.bench", ["--list"], said=tmp_path / "listed", timeout=240)
    leaks = ("nanobind:", " - leaked", " - ...", "See https://nanobind")  # Triton's, on torch 2.15
    said = [line for line in listed.stderr.splitlines() if not line.startswith(leaks)]
    assert (listed.returncode, said) == (0, [])
    assert "terms" in listed.stdout.split()
    late = forks.run("tests.bench", ["terms"], said=tmp_path / "late", timeout=0)
    assert late.returncode == -signal.SIGKILL
