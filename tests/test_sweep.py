"""The sweep of architectures at its smallest: eager's results, in few programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweep.__main__ import SMOKE, main

pytest.importorskip("transformers")


@pytest.mark.smoke
def test_a_few(tmp_path: Path) -> None:
    rows = main(["--smoke", "--out", str(tmp_path)]).tables[0].rows
    assert {row[0] for row in rows} == set(SMOKE)
    assert {row[2] for row in rows if row[0] != "mamba"} == {"right"}
    assert {row[2] for row in rows if row[0] == "mamba"} == {"as a compiler sees it"}
    assert all((row[4], row[5]) == (0, "batch length") for row in rows)
    assert all(isinstance(row[3], int) and row[3] <= 3 for row in rows)
    assert list(tmp_path.glob("sweep-*.json"))
