"""Every benchmark and fuzzer keeps the convention and runs with its smallest workload in a process of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY, names

MODULES = [(kind, name) for kind in ("bench", "fuzz") for name in names(kind)]


def _cases() -> list[object]:
    return [pytest.param(kind, name, id=f"{kind}_{name}") for kind, name in MODULES]


@pytest.mark.parametrize(("kind", "name"), _cases())
def test_convention(kind: str, name: str) -> None:
    tree = ast.parse((REPOSITORY / "tests" / kind / f"{kind}_{name}.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), (
        "say in the module's docstring what is measured against whom, or which oracle checks"
    )
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    assert mains, "no main(argv), see CONTRIBUTING.md"
    assert [argument.arg for argument in mains[0].args.args][:1] == ["argv"]


@pytest.mark.smoke
@pytest.mark.parametrize(("kind", "name"), _cases())
def test_smoke(kind: str, name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"tests.{kind}", name, "--smoke"]
    if kind == "bench":
        command += ["--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout}\n{run.stderr}"
    if kind == "bench" and "not run here:" not in run.stdout:
        assert list(tmp_path.glob("*.json")), run.stdout
