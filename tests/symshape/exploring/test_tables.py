"""What a trace found, as texts: symbols, guards with their origins, inputs and outputs."""

from __future__ import annotations

import torch

import symshape
from symshape.exploring.tables import (
    guards_table,
    inputs_table,
    outputs_table,
    short_guards_table,
    symbols_table,
)


def halves(x: torch.Tensor, n: int) -> dict[str, object]:
    y = x.view(2, -1)
    return {"rows": y, "kept": y[y > n], "n": n}


def test_tables_of_a_program() -> None:
    program = symshape.trace(halves, torch.ones(6), 0, dynamic=True).program
    symbols = {row[0]: row[1:] for row in symbols_table(program).rows}
    assert symbols["s0"] == ("6", "x.size(0)", "auto")
    (born,) = [row for name, row in symbols.items() if name.startswith("u")]
    assert born[0] == "", "no value in the example"
    assert "test_tables.py" in born[1]
    table = guards_table(program)
    assert table.title == f"guards ({len(table.rows)})"
    by_guard = {row[0]: row for row in table.rows}
    (divisible,) = [row for guard, row in by_guard.items() if "% 2" in guard]
    assert "x.size(0)" in divisible[1]
    assert "test_tables.py" in divisible[2]
    assert divisible[3] == "y = x.view(2, -1)"
    assert {row[0] for row in short_guards_table(program).rows} == set(by_guard)
    (short,) = [row for row in short_guards_table(program).rows if row[0] == divisible[0]]
    assert short[1].endswith("\ny = x.view(2, -1)")
    assert [row[0] for row in inputs_table(program).rows] == ["x"]
    outputs = {row[0] for row in outputs_table(program).rows}
    assert outputs == {"['rows']", "['kept']", "['n']"}
    for each in (symbols_table(program), table, inputs_table(program), outputs_table(program)):
        assert all(len(row) == len(each.columns) for row in each.rows)
        assert each.code | each.numbers <= set(each.columns)
