"""The command line: exit codes, words, and errors of our own."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from symshape.frontends import cli
from symshape.frontends.cli.arguments import read_range
from symshape.frontends.cli.commands import app


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["s0 // 8 * 8 == s0", "-a", "s0 % 8 == 0"], 0, "always"),
        (["s0 >= 0"], 0, "always"),
        (["s0 < 2", "--range", "s0=2:"], 1, "never"),
        (["s0 + s1 == 7", "-r", "s0=3", "-r", "s1=:"], 3, "holds at s0 = 3, s1 = 4"),
        (["s0 > 4", "-r", "s0=2:5"], 3, "fails at s0 = 2"),
        (["s0 >= -3", "-r", "s0=:"], 3, "holds at"),
        (["n*n*n + m*m*m != k*k*k", "-r", "n=1:", "-r", "m=1:", "-r", "k=1:"], 3, "not known"),
    ],
)
def test_prove(words: list[str], code: int, said: str) -> None:
    result = run("prove", *words)
    assert result.exit_code == code, result.output
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["s0 +"], "not a Python expression"),
        (["s0 + 1"], "a condition is needed"),
        (["s0 > 1", "-a", "s0 < 0"], "nothing satisfies"),
        (["s0 > 1", "-r", "s0"], "'s0' is not a range"),
        (["s0 > 1", "-r", "s0=9:3"], "s0"),
        (["s0 > 1", "-r", "s1=3"], "'s1', which is not among the symbols s0; did you mean 's0'?"),
        (["s0 > 1", "-r", "s0=1:", "-r", "s1=3"], "'s1', which is not among the symbols s0"),
        (["s0 > 1", "-r", "s0=1:", "-r", "s0=3"], "two ranges for s0"),
        (["__import__('os').system('true') == 0"], "symshape prove:"),
    ],
)
def test_prove_refuses(words: list[str], said: str) -> None:
    result = run("prove", *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("s0=2:64", ("s0", (2, 64))),
        (" s0 = 2 : ", ("s0", (2, None))),
        ("s0=:64", ("s0", (None, 64))),
        ("s0=:", ("s0", (None, None))),
        ("s0=-8:-1", ("s0", (-8, -1))),
        ("s0=8", ("s0", (8, 8))),
    ],
)
def test_ranges(text: str, pair: tuple[str, tuple[int | None, int | None]]) -> None:
    assert read_range(text) == pair


@pytest.mark.parametrize("text", ["", "s0", "s0=", "=1:2", "s0=1:2:3", "s0=a:b", "s0=1.5:"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range"):
        read_range(text)


def test_version() -> None:
    import importlib.metadata

    if not list(importlib.metadata.distributions(name="symshape")):
        pytest.skip("symshape is not installed as a package")
    result = run("--version")
    assert (result.exit_code, result.stdout.split()) == (
        0,
        ["symshape", importlib.metadata.version("symshape")],
    )


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (["s0 // 8 * 8 == s0", "-a", "s0 % 8 == 0"], 0, "always"),
        (["s0 != s0"], 1, "never"),
        (["x.size(0) > 4", "-r", "x.size(0)=2:5"], 3, "depends"),
        (["n*n*n + m*m*m != k*k*k", "-r", "n=1:", "-r", "m=1:", "-r", "k=1:"], 3, "unknown"),
    ],
)
def test_prove_as_json(words: list[str], code: int, answer: str) -> None:
    result = run("prove", *words, "--json")
    assert result.exit_code == code, result.output
    found = json.loads(result.stdout)
    assert found["answer"] == answer
    if answer == "depends":
        assert (found["holds_at"], found["fails_at"]) == ({"x.size(0)": 5}, {"x.size(0)": 2})


def test_every_command_has_an_example_or_options_that_say_enough() -> None:
    for name in ("prove", "trace", "explain", "report", "cost", "plan", "demo", "env"):
        result = run(name, "--help")
        assert result.exit_code == 0
        assert name in ("cost", "plan", "demo", "env") or "Example: symshape" in " ".join(
            result.stdout.split()
        )


def test_what_never_holds_is_called_never() -> None:
    assert run("prove", "s0 < s0").stdout.strip() == "never: it is a constant"
    assert run("prove", "s0 == s0").stdout.strip() == "always: it is a constant"


def test_env() -> None:
    import torch

    result = run("env")
    assert result.exit_code == 0
    for word in ("python", "z3-solver", torch.__version__.split("+")[0]):
        assert word in result.output
    assert ("compiled by mypyc" in result.output) is not ("interpreted" in result.output)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nope"], "there is no model 'nope'"),
        (["--device", "nope"], "device 'nope' cannot be used here"),
    ],
)
def test_demo_refuses(words: list[str], said: str) -> None:
    result = run("demo", "--requests", "2", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_no_words_is_help() -> None:
    assert "prove" in run().output


def test_it_runs_as_a_module() -> None:
    """``python -m symshape`` is the command line, too."""
    found = subprocess.run(
        [sys.executable, "-m", "symshape", "--help"], capture_output=True, text=True, check=True
    )
    assert "python -m symshape [OPTIONS] COMMAND" in found.stdout
    assert "fits" in found.stdout
    blocked = "import sys, runpy; sys.modules['typer'] = None; runpy.run_module('symshape')"
    left_alone = subprocess.run([sys.executable, "-c", blocked], check=False)
    assert left_alone.returncode == 0, "importing the module runs nothing"
    runs = blocked.replace("run_module('symshape')", "run_module('symshape', run_name='__main__')")
    refused = subprocess.run(
        [sys.executable, "-c", runs], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert refused.stderr.strip() == (
        "symshape: the command line needs typer: pip install 'symshape[cli]'"
    )


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_typer(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "typer":
            raise ModuleNotFoundError("No module named 'typer'", name="typer")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "symshape.frontends.cli.commands")
    monkeypatch.setattr(builtins, "__import__", without_typer)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'symshape\[cli\]'"):
        cli.main()


def test_other_import_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "symshape.frontends.cli.doctor":
            raise ModuleNotFoundError("No module named 'environment'", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "symshape.frontends.cli.commands")
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(ModuleNotFoundError):
        cli.main()
