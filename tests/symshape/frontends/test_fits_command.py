"""``symshape fits``: exit codes, the sentence, the table and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from symshape.frontends.cli.commands import app

PROGRAM = """
import torch

class Trained(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).mean()

class Bounded(torch.nn.Linear):
    def forward(self, x):
        if x.size(1) > 100:
            raise ValueError("too long")
        return super().forward(x)

def bounded():
    return Bounded(64, 8), (torch.ones(3, 5, 64),), {}, {"x": {0: "batch", 1: "length"}}

def example():
    return torch.nn.Linear(64, 8), (torch.ones(3, 5, 64),), {}, {"input": {0: "batch", 1: "length"}}

def training():
    return Trained(64, 8), (torch.ones(3, 64),), {}, {"x": {0: "batch"}}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"fitted_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return name


def run(module: str, factory: str, *words: str) -> Any:
    return CliRunner().invoke(app, ["fits", f"{module}:{factory}", *words], env={"COLUMNS": "200"})


def test_the_sentence_and_the_exit_code(module: str) -> None:
    result = run(module, "example", "--memory", "1GB")
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) == 1
    assert "f32 parameters 2.08 kB" in result.output
    assert "fits up to batch" in result.output
    assert "× length 5" in result.output
    result = run(module, "example", "--memory", "1kB")
    assert result.exit_code == 1
    assert "does not fit in 1.00 kB" in result.output


def test_training_and_given_sizes(module: str) -> None:
    result = run(module, "training", "--memory", "1GB", "--train", "adamw")
    assert result.exit_code == 0, result.output
    assert "optimizer 4.16 kB" in result.output
    result = run(module, "example", "-m", "1GB", "--at", "length=128", "--table")
    assert "× length 128" in result.output
    assert "live tensors" in result.output
    result = run(module, "example", "-m", "1GB", "--dynamic", "input.0=rows")
    assert "fits up to rows" in result.output


def test_as_json(module: str) -> None:
    result = run(module, "example", "-m", "1GB", "--json")
    found = json.loads(result.output)
    assert found["budget"] == 10**9
    assert found["largest"]["length"] == 5
    assert found["pairs"][0] == found["largest"]
    assert "batch*length" in found["formula"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memory", "much"], "is no amount"),
        (["-m", "1GB", "--train", "lion"], "choose from adamw, adam, sgd, momentum"),
        (["-m", "1GB", "--at", "depth=3"], "has no symbol 'depth'"),
        (["-m", "1GB", "--at", "batch=3:5"], "--at batch needs one size"),
        (["-m", "1GB", "--dynamic", "input"], "should be ARG.DIM=NAME"),
    ],
)
def test_refused(module: str, words: list[str], said: str) -> None:
    result = run(module, "example", *words)
    assert result.exit_code == 2
    assert said in result.output


def test_a_bounded_length(module: str) -> None:
    result = run(module, "bounded", "-m", "1GB", "--table")
    assert result.exit_code == 0, result.output
    assert "× 100 in 1.00 GB (the guards allow no more: length <= 100)" in result.output
    data = json.loads(run(module, "bounded", "-m", "1GB", "--json").output)
    assert data["pairs"][-1]["length"] == 100
    assert data["limits"] == ["length <= 100"]
    result = run(module, "bounded", "-m", "1GB", "--at", "length=101")
    assert result.exit_code == 2
    assert "length <= 100" in result.output
