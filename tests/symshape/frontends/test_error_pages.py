"""``symshape error CODE`` prints the page of a code, and says so where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from symshape.errors import PAGES

pytest.importorskip("typer")
from typer.testing import CliRunner

from symshape.frontends.cli import error_pages
from symshape.frontends.cli.commands import app


@pytest.mark.parametrize("code", PAGES)
def test_the_page_of_each_code(code: str) -> None:
    ran = CliRunner().invoke(app, ["error", code.lower()])
    assert ran.exit_code == 0
    assert f"\n`{code}`\n" in ran.output
    if "#" in PAGES[code]:
        assert ran.output.count("\n## ") == 0, "one section alone"
        assert ran.output.startswith("## ")
    else:
        assert ran.output.startswith("# ")


def test_an_unknown_code_and_pages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CliRunner().invoke(app, ["error", "SYM999"])
    assert ran.exit_code == 2
    assert "there is no code SYM999" in ran.output
    monkeypatch.setattr(error_pages, "FOLDERS", (Path("/nowhere"),))
    ran = CliRunner().invoke(app, ["error", "SYM204"])
    assert ran.exit_code == 2
    assert "not installed" in ran.output
