"""``symshape cost`` and ``symshape plan``: what they say, in tables and in JSON, and their exit
codes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from symshape import BucketPlan
from symshape.frontends.cli.commands import app

PROGRAM = """
import torch
from symshape import Dim

def make():
    sizes = {"input": {0: "batch", 1: Dim("length", max=4096)}}
    return torch.nn.Linear(4, 8), (torch.ones(3, 5, 4),), {}, sizes

class Trained(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).mean()

def tied(x, mask):
    return (x * mask[..., None]).sum(1)

def two():
    return tied, (torch.ones(3, 8, 4), torch.ones(3, 8))

def training():
    return Trained(4, 8), (torch.ones(3, 4),), {}, {"x": {0: "batch"}}

def integers():
    return torch.relu, (torch.ones(3),)

def nothing():
    return None

NUMBER = 3
"""


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program_of_a_user.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_cost(here: Path) -> None:
    result = run("cost", "program_of_a_user:make", "-d", "batch=1:64", "--dim", "length=128")
    assert result.exit_code == 0, result.output
    for said in (
        "aten.addmm.default",
        "FLOPs: 64*batch*length",
        "grows with batch",
        "batch=64, length=128",
    ):
        assert said in result.output


def test_cost_as_json_and_solved(here: Path) -> None:
    words = (
        "--json",
        "-d",
        "length=4096",
        "--largest",
        "batch",
        "--memory",
        "1 GB",
        "--flops",
        "1 T",
    )
    result = run("cost", "program_of_a_user:make", *words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["formulas"]["flops"] == "64*batch*length"
    assert found["points"][0]["flops"] == 64 * 3 * 4096
    best = found["largest"]["batch"]
    assert 48 * 4096 * best + 160 <= 10**9 < 48 * 4096 * (best + 1) + 160


def test_a_guard_that_is_the_limit_is_named(here: Path) -> None:
    words = "--largest", "s0", "--memory", "1 GB"
    result = run("cost", "program_of_a_user:two", *words)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-2:] == [
        "largest s0 within 1 GB: 3",
        "not the budget, but the guard bounds s0: s0 == s3",
    ]
    found = json.loads(run("cost", "program_of_a_user:two", "--json", *words).output)
    assert (found["largest"], found["limits"]) == ({"s0": 3}, ["s0 == s3"])
    words = "--largest", "length", "--memory", "1 GB"
    result = run("cost", "program_of_a_user:make", *words)
    assert result.output.splitlines()[-2:] == [
        "largest length within 1 GB: 4096",
        "not the budget, but the guard bounds length: length <= 4096",
    ]
    result = run("cost", "program_of_a_user:make", "--largest", "batch", "--memory", "1 GB")
    assert result.output.splitlines()[-1].startswith("largest batch within 1 GB: ")


def test_training(here: Path) -> None:
    """A layer of 40 parameters, its gradients, and twice as much for AdamW."""
    peaks = {}
    for optimizer in ("adamw", "momentum", "sgd"):
        result = run(
            "cost", "program_of_a_user:training", "--json", "-d", "batch=100", "--train", optimizer
        )
        assert result.exit_code == 0, result.output
        peaks[optimizer] = json.loads(result.output)["points"][0]["peak_memory"]
    assert peaks["adamw"] - peaks["momentum"] >= 160
    assert peaks["momentum"] - peaks["sgd"] >= 160
    assert peaks["momentum"] >= 3 * 160


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["program_of_a_user:make", "--train", "lion"],
            "no optimizer 'lion'; choose from adamw, adam, sgd, momentum",
        ),
        (
            ["program_of_a_user:make", "--train", "sgd"],
            "is not a scalar loss and has no attribute .loss; --train needs a module that returns",
        ),
        (["program_of_a_user:two", "--train", "sgd"], "--train needs a module with parameters"),
        (["nowhere:make"], "nowhere cannot be imported"),
        (["program_of_a_user:none"], "has no 'none'"),
        (["program_of_a_user:nothing"], "must answer (fn, args)"),
        (["program_of_a_user:NUMBER"], "a function is needed"),
        (["bert"], "'bert' is no program: write one of gpt2, llama, or MODULE:FACTORY"),
        (["program_of_a_user:make", "-d", "depth=3"], "has no symbol 'depth'"),
        (["program_of_a_user:make", "-d", "batch=3:"], "needs both bounds"),
        (["program_of_a_user:make", "-d", "length=5000"], "does not hold for these sizes"),
        (["program_of_a_user:make", "--largest", "batch"], "needs a budget"),
        (["program_of_a_user:make", "--largest", "batch", "--memory", "1 B"], "nothing fits"),
        (["program_of_a_user:make", "--by", "colour"], "cannot be split by 'colour'"),
    ],
)
def test_cost_refuses(words: list[str], said: str, here: Path) -> None:
    result = run("cost", *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_plan(here: Path) -> None:
    result = run("plan", "--max-graphs", "6", "--output", "plan.json")
    assert result.exit_code == 0, result.output
    assert "6 graphs for 2000 calls" in result.output
    assert "Azure Public Dataset" in result.output
    plan = BucketPlan.from_json(here / "plan.json")
    assert plan.graphs == 6
    assert all(str(cap) in result.output for (cap,) in plan.caps)


def test_plan_for_a_program_and_a_file(here: Path) -> None:
    (here / "trace.csv").write_text(
        "t,tokens\n" + "".join(f"{i},{5 + i % 40}\n" for i in range(200)), encoding="utf-8"
    )
    words = (
        "--traffic",
        "trace.csv",
        "-c",
        "length=tokens",
        "--fixed",
        "batch=4",
        "--program",
        "program_of_a_user:make",
    )
    result = run("plan", *words, "--max-graphs", "3", "--memory", "1 GB", "--json")
    assert result.exit_code == 0, result.output
    plan = BucketPlan.from_json(result.output)
    assert (plan.symbols, plan.graphs, plan.hit_rate) == (("batch", "length"), 3, 1)
    assert {batch for batch, _ in plan.caps} == {4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--traffic", "none.csv", "-c", "n=tokens"], "cannot be read: there is no file none.csv"),
        (["--traffic", "none.csv"], "cannot be read: there is no file none.csv"),
        (["--traffic", "program_of_a_user.py"], "say which column holds which size"),
        (["-c", "n=tokens"], "--column is for --traffic"),
        (["--fixed", "batch"], "should be NAME=SIZE"),
        (["--max-graphs", "0"], "max_graphs=0 must be"),
        (["--objective", "speed"], "no objective 'speed'"),
        (["--memory", "1 GB"], "needs a traced program"),
        (["--memory", "1e400"], "is too much to count"),
        (["--price", "euros"], "there is no price 'euros'"),
        (["--capture-seconds", "inf"], "capture_seconds=inf must be 0 or more, and finite"),
        (["--capture-seconds", "nan"], "capture_seconds=nan must be 0 or more, and finite"),
        (["--fixed", "length=3"], "the traffic names 'length' twice"),
        (["--fixed", "a=3", "--fixed", "a=4"], "--fixed names a twice"),
        (["--fixed", "a=x"], "'x' is no size"),
    ],
)
def test_plan_refuses(words: list[str], said: str, here: Path) -> None:
    result = run("plan", *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output
