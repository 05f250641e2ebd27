"""The report of a compiled function: buckets, calls, waste, bytes, refusals, budget."""

from __future__ import annotations

import re

import attrs
import torch

import symshape
from symshape import DevicePeaks, Options

WEIGHT = torch.ones(4, 5)


def product(x: torch.Tensor) -> torch.Tensor:
    return x @ WEIGHT


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
    fn = lambda x, y: (torch.renorm(x[:, None], 2, 0, 1.0), y * 2)  # noqa: E731
    compiled = symshape.compile(fn, dynamic=True, runner="padded")
    compiled(torch.ones(4), torch.ones(5))
    text = compiled.report()
    assert "bucket s0=4, s1<=6: 1 calls" in text
    assert "s0: refused by aten.renorm.default" in text


def test_other_runners_and_none() -> None:
    compiled = symshape.compile(lambda x: x * 2)
    assert compiled.report() == "no entries"
    compiled(torch.ones(4))
    assert compiled.report() == "entry 0: eager, 1 calls\n  x: f32[4]"


def test_what_is_attainable() -> None:
    """The least time at the sizes that came most, and what timed replays achieve of it."""
    peaks = DevicePeaks("made up", {"float32": 1e12}, 1e9)
    compiled = symshape.compile(product, dynamic={"x": {0: "rows"}})
    for rows in (3, 1000, 1000):
        compiled(torch.ones(rows, 4))
    moved = 4 * (1000 * 4 + 20 + 1000 * 5)
    assert (
        f"  on made up at rows=1000: at least {moved / 1e9 * 1e3:.3g} ms, 100% of it bound by "
        "memory" in (compiled.report(peaks))
    )
    assert "made up" not in compiled.report()


def test_what_replays_achieve() -> None:
    peaks = DevicePeaks("made up", {"float32": 1e12}, 1e9)
    compiled = symshape.compile(product, dynamic={"x": {0: "rows"}}, runner="padded")
    compiled(torch.ones(12, 4))
    assert "of attainable" not in compiled.report(peaks)  # nobody timed it
    (bucket,) = compiled.entries[0].runner.buckets  # type: ignore[attr-defined]
    bucket.variants = tuple(attrs.evolve(each, milliseconds=1e-3) for each in bucket.variants)
    moved = 4 * (12 * 4 + 20 + 12 * 5)
    share = moved / 1e9 / 1e-6
    assert "480 MFLOP/s" in compiled.report(peaks)
    assert f"{share:.0%} of attainable" in compiled.report(peaks)
