"""``symshape audit``: exit codes, sentences, JSON and pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from symshape.frontends.cli.commands import app

PROGRAM = """
import torch

x = torch.randn(2, 4, 3)
mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])

def mean():
    return (lambda x, mask: x.mean(1)), (x, mask)

def masked():
    fn = lambda x, mask: torch.where(mask[..., None] == 0, 0.0, x).sum(1)
    return fn, (), {"x": x, "mask": mask}

def odd():
    return (lambda x, mask: torch.linalg.det(x.transpose(1, 2) @ x) * 0), (x,), {"mask": mask}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"audited_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return name


def run(module: str, factory: str, *words: str) -> Any:
    options = words or ("--padded", "x.1=length", "--valid", "mask")
    return CliRunner().invoke(app, ["audit", f"{module}:{factory}", *options])


def test_exit_codes(module: str) -> None:
    assert [run(module, name).exit_code for name in ("masked", "mean", "odd")] == [0, 1, 3]
    assert run(module, "nothing").exit_code == 2
    result = run(module, "mean", "--padded", "x.9=length", "--valid", "mask")
    assert result.exit_code == 2
    assert "dimension 9 of x" in result.output
    result = run(module, "mean", "--padded", "x1=length", "--valid", "mask")
    assert result.exit_code == 2
    assert "--padded" in result.output


def test_sentences(module: str) -> None:
    result = run(module, "mean")
    assert "padding leaks into it" in result.output
    assert "repair: divide the sum of x * mask by the sum of the mask" in result.output
    assert "assumed: padding in length is on the right of each row" in result.output


def test_json_and_page(module: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = (
        "--padded",
        "x.1=length",
        "--valid",
        "length=mask",
        "--json",
        "--html",
        str(page),
        "--side",
        "right",
    )
    result = run(module, "mean", *words)
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["proven"] is False
    assert data["outputs"][0]["verdict"] == "leaks"
    assert data["outputs"][0]["step"]["op"] == "aten.mean.dim"
    assert "aten.mean.dim" in page.read_text()
