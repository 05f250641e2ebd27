"""``symshape trace``, ``explain`` and ``report`` print what the library says; errors come before
output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import guards
import symshape
from symshape.frontends.cli.arguments import read_dynamic, read_sizes
from symshape.frontends.cli.commands import app

PROGRAM = """
import torch

def example():
    def fn(ids, mask, k=2):
        return (ids * mask).view(-1, 4) * k
    return fn, (torch.ones(8), torch.ones(8))

def broken():
    return 3
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"program_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return f"{name}:example"


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_trace_prints_and_its_json_is_shown_again(program: str, tmp_path: Path) -> None:
    result = run(
        "trace", program, "--json", "--dynamic", "ids.0=n:1:64", "--dynamic", "mask.size(0)=n:1:64"
    )
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert [each["name"] for each in data["symbols"]] == ["n"]
    said = guards.GuardSet(each["condition"] for each in data["guards"])
    assert said.equivalent(guards.GuardSet("n % 4 == 0", ranges={"n": (1, 64)}))
    assert data["symbols"][0]["read_from"] == ["ids.size(0)", "mask.size(0)"]
    stored = tmp_path / "trace.json"
    stored.write_text(result.stdout)
    shown = run("report", str(stored))
    assert shown.exit_code == 0, shown.output
    assert "n % 4 == 0" in shown.stdout
    traced = run("trace", program, "--dynamic", "ids.0=n:1:64", "--dynamic", "mask.size(0)=n:1:64")
    assert shown.stdout.splitlines() == [
        line for line in traced.stdout.splitlines() if "tracing" not in line
    ]


def test_report_shows_plans_and_guard_sets(tmp_path: Path) -> None:
    file = tmp_path / "stored.json"
    file.write_text(guards.to_json(guards.GuardSet("s0 % 8 == 0", "x.size(0) > 2")))
    shown = run("report", str(file))
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == ["s0 % 8 == 0", "x.size(0) >= 3"]
    file.write_text(
        symshape.plan(None, symshape.Traffic.of([3, 5, 9], ("n",)), max_graphs=2).to_json()
    )
    shown = run("report", str(file)).stdout
    assert "this plan" in shown
    caps = shown.split("caps")[-1].split()
    assert [each for each in caps if each.isdigit()] == ["5", "9"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        ("[1]", "none of what symshape writes"),
        ('{"caps": [], "format": "\x1b[31m"}', "holds no JSON"),
        ('{"caps": [], "format": "a\\n\\u001b[31m"}', "a\\n\\x1b[31m"),
        ('{"format": "symshape trace", "version": 7}', "version 7"),
        ('{"format": "symshape trace", "version": 1}', "needs the name"),
        (
            '{"format": "symshape trace", "version": 1, "program": "f", "tables": [{}]}',
            "a title, columns and rows",
        ),
        (
            '{"format": "symshape trace", "version": 1, "program": "f", '
            '"tables": [{"title": "t", "columns": ["a"], "rows": [[]]}]}',
            "has not 1 cells",
        ),
        ('{"format": "guards", "version": 1}', "symshape report"),
    ],
)
def test_report_refuses(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "stored.json"
    file.write_text(text)
    result = run("report", str(file))
    assert result.exit_code == 2
    assert said in result.output
    assert "\x1b[31m" not in result.output
    assert not result.stdout.strip()


def test_names_in_a_file_give_a_terminal_no_orders(tmp_path: Path) -> None:
    file, order = tmp_path / "stored.json", "\x1b]0;title\x07"
    table = {"title": order, "columns": [order], "rows": [[order]]}
    stored = {"format": "symshape trace", "version": 1, "program": order, "tables": [table]}
    file.write_text(json.dumps(stored))
    result = run("report", str(file))
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert result.output.count("\\x1b]0;title\\x07") == 4


def test_explain(program: str) -> None:
    fits = run("explain", program, "--size", "ids=12,", "--size", "mask=12,")
    assert (fits.exit_code, fits.stdout.strip().splitlines()[-1]) == (0, "it fits")
    result = run("explain", program, "--size", "ids=13,", "--size", "mask=13,", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["fits"] is False
    assert "mask.size(0) % 4 == 0, but mask.size(0) = 13" in found["reasons"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trace", "PROGRAM", "--dynamic", "ids=n"], "should be ARG.DIM=NAME"),
        (["trace", "PROGRAM", "--dynamic", "idz.0=n"], "idz"),
        (
            ["trace", "PROGRAM", "--dynamic", "ids.0=n", "--dynamic", "ids.size(0)=m"],
            "names ids.0 twice",
        ),
        (["trace", "PROGRAM", "--html", "no/such/folder/x.html"], "there is no folder"),
        (["trace", "nowhere:example"], "cannot be imported"),
        (["explain", "PROGRAM", "--size", "idz=3,"], "did you mean 'ids'"),
        (["explain", "PROGRAM", "--size", "ids=a"], "should be ARG=SIZES"),
        (["explain", "PROGRAM", "--size", "ids=3"], "a sequence of 1 sizes"),
        (["explain", "PROGRAM", "--size", "ids=-3,"], "cannot be -3"),
    ],
)
def test_errors_come_before_output(words: list[str], said: str, program: str) -> None:
    result = run(*(program if word == "PROGRAM" else word for word in words))
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not result.stdout.strip()
    assert "Traceback" not in result.output


def test_html_is_the_page_of_the_trace(program: str, tmp_path: Path) -> None:
    result = run("trace", program, "--html", str(tmp_path / "page.html"))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "The trace of example.&lt;locals&gt;.fn" in page


def test_spellings() -> None:
    assert read_dynamic([]) is None
    made = read_dynamic(["batch['ids'].0=n", "x.shape[2]=m::9"])
    assert made is not None
    assert sorted(made) == ["batch['ids']", "x"]
    assert (made["x"][2].min, made["x"][2].max) == (symshape.Dim("m").min, 9)
    assert read_sizes(["x=1,2", "y=?,3", "k=-4", "batch['ids']=0,"]) == {
        "x": (1, 2),
        "y": (None, 3),
        "k": -4,
        "batch['ids']": (0,),
    }
    with pytest.raises(symshape.InputError, match="names x twice"):
        read_sizes(["x=1,", "x=2,"])
