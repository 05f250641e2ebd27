"""The report of a compiled function: buckets, calls, waste, bytes, refusals, budget."""

from __future__ import annotations

import re

import torch

import symshape
from symshape import Options


def test_buckets_with_calls_and_waste() -> None:
    weight = torch.ones(4, 5)
    compiled = symshape.compile(lambda x: x @ weight, dynamic={"x": {0: "rows"}}, runner="padded")
    for rows in (3, 3, 12, 10, 9, 16):
        compiled(torch.ones(rows, 4))
    text = compiled.report()
    assert "entry 0: padded, 3 buckets, 6 calls" in text
    assert "bucket rows<=3: 2 calls, 0% waste, captured 1 times" in text
    waste = 3 * 12 / (12 + 10 + 9) - 1
    assert f"bucket rows<=12: 3 calls, {waste:.0%} waste" in text
    assert re.search(r"kept: 3 of 64 graphs, \d+(\.\d+)? k?B, 0 evicted", text)


def test_what_finds_no_room_and_the_budget() -> None:
    compiled = symshape.compile(
        lambda x: x * 2,
        dynamic={"x": {0: "rows"}},
        runner="padded",
        options=Options(max_cuda_graphs=1, graph_memory="1 MB"),
    )
    for rows in (3, 100, 100, 2):
        compiled(torch.ones(rows))
    text = compiled.report()
    assert "no bucket: 2 calls" in text
    assert "bucket rows<=3: 2 calls" in text
    assert "kept: 1 of 1 graphs" in text
    assert "of 1.00 MB" in text


def test_exact_symbols_and_refusals_are_named() -> None:
    compiled = symshape.compile(lambda x, y: (x.unfold(0, 2, 1) * 2, y * 2), dynamic=True, runner="padded")
    compiled(torch.ones(4), torch.ones(5))
    text = compiled.report()
    assert "bucket s0=4, s1<=6: 1 calls" in text
    assert "s0: refused by aten.unfold.default" in text


def test_other_runners_and_none() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    assert compiled.report() == "no entries"
    compiled(torch.ones(4))
    assert compiled.report() == "entry 0: eager, 1 calls\n  x: f32[4]"
