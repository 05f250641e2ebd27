"""Traffic from calls and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from symshape import Traffic
from symshape.errors import InputError


def test_of_calls() -> None:
    calls: list[Any] = [(2, 7), torch.ones(2, 7).shape, [3, 1], {"length": 7, "batch": 2}]
    traffic = Traffic.of(calls, ("batch", "length"))
    assert traffic.counts == {(2, 7): 3, (3, 1): 1}
    assert Traffic.of([4, 4, 9], "n").counts == {(4,): 2, (9,): 1}
    assert traffic.along(["length"]) == {(7,): 3, (1,): 1}


def test_files(tmp_path: Path) -> None:
    table = tmp_path / "trace.csv"
    table.write_text("TIMESTAMP,ContextTokens,Batch\n0,374,1\n1,396,2\n2,374,1\n", encoding="utf-8")
    assert Traffic.read(table, {"length": "ContextTokens"}).counts == {(374,): 2, (396,): 1}
    lines = tmp_path / "trace.jsonl"
    lines.write_text('{"batch": 1, "length": 5}\n\n{"batch": 2, "length": 5}\n', encoding="utf-8")
    traffic = Traffic.read(lines, ("length", "batch"))
    assert traffic.counts == {(5, 1): 1, (5, 2): 1}
    assert (traffic.fixed, traffic.varying) == ({"length": 5}, ("batch",))


def test_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,x\n", encoding="utf-8")
    for columns, message in (
        ({"n": "b"}, "bad.csv:2: 'x' is no size"),
        ({"n": "c"}, "bad.csv:2 has no 'c'; it has a, b"),
    ):
        with pytest.raises(InputError, match=message):
            Traffic.read(bad, columns)
    lines = tmp_path / "bad.jsonl"
    lines.write_text("{\n", encoding="utf-8")
    with pytest.raises(InputError, match=":1 is no JSON"):
        Traffic.read(lines, ("n",))
    with pytest.raises(InputError, match="cannot be read"):
        Traffic.read(tmp_path / "none.csv", ("n",))
    for calls, message in (
        ([], "the traffic is empty"),
        ([-1], "call 0 of the traffic: -1 is no size"),
        ([5, 2.5], "call 1 of the traffic: 2.5 is no size"),
        ([(1, 2)], "has 2 sizes, but there are 1 symbols: n"),
        ([{"m": 1}], "has no size 'n'; it has m"),
    ):
        with pytest.raises(InputError, match=message):
            Traffic.of(calls, ("n",))
    for names, message in (
        (("n", "n"), "the traffic names 'n' twice"),
        (("n", "lambda"), "'lambda' cannot name a size"),
        (("n", "a b"), "'a b' cannot name a size"),
    ):
        with pytest.raises(InputError, match=message):
            Traffic.of([(1, 2)], names)
    with pytest.raises(InputError, match="the traffic names 'n' twice"):
        Traffic.of([1], ("n",)).having(n=2)
    deep = tmp_path / "deep.jsonl"
    deep.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match=":1 is no JSON"):
        Traffic.read(deep, ("n",))
    for counts in ({(1, 2): 3}, {(1,): 0}):
        with pytest.raises(InputError, match="must be a size for each of n, with the number"):
            Traffic(("n",), counts)
