"""The demo, in small: it runs, its tables tell the truth, and a wrong result is an error."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from symshape.exploring import metering
from symshape.exploring.metering import Summary
from symshape.frontends.cli.commands import app
from symshape.frontends.cli.demo import Settings, comparison, run_demo

pytest.importorskip("transformers")


@pytest.mark.slow
def test_it_runs() -> None:
    console = Console(file=io.StringIO(), width=160)
    threads = torch.get_num_threads()
    assert run_demo(console, Settings(models=("gpt2",), requests=12)) == 0
    assert torch.get_num_threads() == threads
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for part in (
        "GPT-2-shaped",
        "input_ids.size(0)",
        "modeling_gpt2.py:",
        "attention_mask = attention_mask.view(batch_size, -1)",
        "12 requests",
        "Azure Public Dataset (Microsoft, CC-BY 4.0)",
        "torch.compile",
        "was traced again: the nearest entry",
        "every result of symshape equals eager's",
    ):
        assert part in shown, f"{part!r} is missing in\n{shown}"


@pytest.mark.slow
def test_a_result_that_differs_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "difference", lambda got, wanted: "made up")
    result = CliRunner().invoke(app, ["demo", "--model", "gpt2", "--requests", "2"])
    assert result.exit_code == 1, result.output
    assert "results differ from eager's" in result.output
    assert "made up" in result.output


def test_comparison() -> None:
    ours = Summary("symshape", 3, 0.5, 0, None, 12.4, 1.0, 2.0, 0, "")
    theirs = Summary("torch.compile", 4, 1.5, 7, 99.6, 50.0, 3.0, 4.0, 2, "1x3: no")
    table = comparison("t", [ours, theirs])
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["fallbacks to eager"] == ("0", "7")
    assert rows["dispatch of new sizes, µs a call"] == ("–", "100")
    assert rows["results that differ from eager's"] == ("0", "2")
    assert rows["the first that differs"] == ("", "1x3: no")
    assert "the first that differs" not in {row[0] for row in comparison("t", [ours]).rows}
