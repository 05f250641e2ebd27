"""What each command prints in a terminal of 80 columns: its help, its tables, and formulas in the
user's names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from symshape.frontends.cli.commands import app

PROGRAM = """
import torch

def pair(a, b):
    return {"joined": torch.cat([a, b]), "folded": b.reshape(a.size(0), -1)}

def unnamed():
    return pair, (torch.ones(4), torch.ones(8)), {}, True

def named():
    return pair, (torch.ones(4), torch.ones(8)), {}, {"a": {0: "batch"}, "b": {0: "length"}}
"""


def run(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return str(result.output)


def commands() -> Iterator[list[str]]:
    """The words of every command and every group of commands."""

    def below(command: Any, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, [*words, name])

    return below(typer.main.get_command(app), [])


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_is_short_and_long(words: list[str]) -> None:
    text = run(*words, "-h")
    assert text == run(*words, "--help")
    assert "Usage: " in text
    assert max(map(len, text.splitlines())) <= 80


def test_lists_of_commands_have_whole_sentences() -> None:
    """A terminal of 80 columns leaves 78; the runner of these tests has 80 to fill."""
    for words in commands():
        command: Any = typer.main.get_command(app)
        for word in words:
            command = command.commands[word]
        listed = getattr(command, "commands", {})
        room = 78 - 6 - max(map(len, listed), default=0)
        for name, each in listed.items():
            assert not each.get_short_help_str(room).endswith("..."), (name, room)


def leaves() -> Iterator[tuple[list[str], Any]]:
    """Yield the words of every command that does something, and the command."""

    def below(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
        inner = getattr(command, "commands", {})
        for name, each in inner.items():
            yield from below(each, [*words, name])
        if not inner:
            yield words, command

    return below(typer.main.get_command(app), [])


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in leaves()]
)
def test_help_has_an_example_with_options_that_exist(words: list[str], command: Any) -> None:
    (example,) = re.findall(r"Example: (.+(?:\n.+)*)", command.help)
    (own,) = (
        each
        for each in example.split(";")
        if each.split()[: len(words) + 1] == ["symshape", *words]
    )
    options = {name for each in command.params for name in each.opts}
    shown = [word.partition("=")[0] for word in shlex.split(own) if word.startswith("-")]
    assert set(shown) <= options


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_program_to_trace.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    return "a_program_to_trace"


def test_outputs_are_in_the_names_that_the_user_gave(program: str) -> None:
    text = run("trace", f"{program}:named")
    assert "f32[batch + length]" in text
    assert "f32[batch, length//batch]" in text
    assert "in your words" not in text[text.index("outputs") :]


def test_outputs_of_unnamed_sizes_are_in_the_words_of_the_arguments_too(program: str) -> None:
    text = run("trace", f"{program}:unnamed")
    assert "f32[s0 + s1]" in text
    assert "f32[a.size(0) + b.size(0)]" in text


def test_a_formula_that_a_guard_makes_a_symbol_is_shown_as_that_symbol() -> None:
    import symshape
    from symshape.exploring.tables import outputs_table

    def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mask = mask.view(x.size(0), -1)
        return mask * 2 if mask.size(1) == x.size(1) else mask

    traced = symshape.trace(attend, torch.ones(2, 3), torch.ones(6), dynamic=True)
    (row,) = outputs_table(traced.program).rows
    assert "s2//s0 == s1" in str(traced.guards) or "s1 == s2//s0" in str(traced.guards)
    assert row[1:] == ("f32[s0, s1]", "f32[x.size(0), x.size(1)]")


@pytest.mark.parametrize("words", [["env"], ["plan", "--max-graphs", "3"]])
def test_tables_fit(words: list[str]) -> None:
    assert max(map(len, run(*words).splitlines())) <= 80


def test_cost_breaks_no_word(program: str) -> None:
    text = run("cost", f"{program}:named")
    assert max(map(len, text.splitlines())) <= 80
    assert "aten.cat.default" in text.split()
