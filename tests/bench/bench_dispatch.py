"""Dispatch of a warm call of a two-tensor function: ``symshape.compile`` against
``torch.compile(backend="eager")``.

Both run the same op eagerly behind their guards, so a call minus the plain function is what
dispatch costs. Ours is measured at 1 to 256 entries, once where the exact sizes were seen before
(the memo answers) and once where each call brings sizes that were not (the dispatch tree answers);
torch's at 1, 8, 64 and 128 entries with its recompile limit raised. Each sample calls all entries
in turn (one entry: the same one again and again), and everything is sampled in turn in one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import symshape
from symshape import Options
from tests.bench.report import Report, bench_parser
from tests.bench.timing import measure_together

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WIDTH = 64  # sizes in the range of one entry


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def fresh() -> Function:
    """A function with code of its own: caches of torch.compile hang on the code object."""
    scope: dict[str, Any] = {}
    exec("def add(a, b):\n    return a + b", scope)
    return scope["add"]  # type: ignore[no-any-return]


def pair(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(size), torch.ones(size)


def sizes_of(entries: int) -> range:
    """A size for each static entry."""
    return range(1, entries + 1)


def in_turn(fn: Function, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
    """Calls ``fn`` on all pairs."""

    def run() -> None:
        for a, b in pairs:
            fn(a, b)

    return run


def static_entries(entries: int) -> symshape.Compiled:
    """Ours with one entry for each size from 1 to ``entries``."""
    compiled: symshape.Compiled = symshape.compile(
        fresh(), dynamic=False, options=Options(max_entries=1024, plain_calls=False)
    )
    for size in range(1, entries + 1):
        compiled(*pair(size))
    assert compiled.stats().traces == entries == len(compiled.entries)
    return compiled


def ranged(entries: int) -> Function:
    """A function that makes an entry of a range of ``WIDTH`` sizes for each branch: the tree has to
    tell them apart.
    """
    lines = [
        f"    if a.shape[0] <= {WIDTH * (i + 1)}:\n        return a + b" for i in range(entries - 1)
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(["def add(a, b):", *lines, "    return a + b"]), scope)
    return scope["add"]  # type: ignore[no-any-return]


def unseen(entries: int) -> list[int]:
    """Sizes that the memo will not know when their turn comes: at least 16 different ones."""
    each = -(-16 // entries)
    return [WIDTH * index + 16 + position for index in range(entries) for position in range(each)]


def tree_entries(entries: int) -> symshape.Compiled:
    """Ours with ``entries`` ranges of sizes and a memo of two: it remembers the last call alone."""
    compiled: symshape.Compiled = symshape.compile(
        ranged(entries), dynamic=True, options=Options(memo_size=2, plain_calls=False)
    )
    for index in range(entries):
        compiled(*pair(WIDTH * index + WIDTH // 2))
    assert len(compiled.entries) == entries, len(compiled.entries)
    for size in unseen(entries):
        compiled(*pair(size))
    assert compiled.stats().traces == entries
    return compiled


def torch_entries(entries: int) -> Function:
    """torch.compile with one entry for each size from 1 to ``entries``."""
    compiled = torch.compile(fresh(), backend="eager", dynamic=False)
    for size in range(1, entries + 1):
        compiled(*pair(size))
    return compiled


def main(argv: Sequence[str] | None = None) -> Report:
    """Measures everything in turn."""
    args = bench_parser(__doc__).parse_args(argv)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 4096
    report = Report("dispatch", device="cpu")
    ours = (1, 8) if args.smoke else (1, 8, 64, 256)
    theirs = (1, 2) if args.smoke else (1, 8, 64, 128)
    samples = 20 if args.smoke else 300
    calls: dict[str, Callable[[], None]] = {}
    length: dict[str, int] = {}

    def add_call(name: str, fn: Function, sizes: Sequence[int]) -> None:
        calls[name] = in_turn(fn, [pair(size) for size in sizes])
        length[name] = len(sizes)

    for entries in ours:
        add_call(f"memo {entries}", static_entries(entries), sizes_of(entries))
        add_call(f"tree {entries}", tree_entries(entries), unseen(entries))
        add_call(f"plain tree {entries}", add, unseen(entries))
    for entries in theirs:
        add_call(f"torch {entries}", torch_entries(entries), sizes_of(entries))
    for entries in sorted({*ours, *theirs}):
        add_call(f"plain memo {entries}", add, sizes_of(entries))
    took = measure_together(calls, samples=samples, sample_us=200.0)
    times = {name: timing.median / length[name] for name, timing in took.items()}
    table = report.table(
        "warm call, µs (median)", "who", "entries", "call", "minus the plain function"
    )
    over: dict[str, float] = {}
    for who, kind, counts, plain in (
        ("symshape, memo", "memo", ours, "memo"),
        ("symshape, tree (unseen sizes)", "tree", ours, "tree"),
        ("torch.compile", "torch", theirs, "memo"),
    ):
        for entries in counts:
            name = f"{kind} {entries}"
            over[name] = times[name] - times[f"plain {plain} {entries}"]
            table.row(who, entries, times[name], over[name])
    report.goal(
        "dispatch at 1 entry, ours / torch.compile", over["memo 1"] / over["torch 1"], at_most=1 / 3
    )
    report.goal(
        "whole call at 1 entry, ours / torch.compile",
        times["memo 1"] / times["torch 1"],
        at_most=1 / 2,
    )
    most = ours[-1]
    report.goal(
        f"dispatch by memo, {most} entries / 1", over[f"memo {most}"] / over["memo 1"], at_most=1.5
    )
    report.goal(
        f"dispatch by tree, {most} entries / 1", over[f"tree {most}"] / over["tree 1"], at_most=1.5
    )
    report.goal("dispatch by tree at 1 entry, µs", over["tree 1"], at_most=15.0)
    for few, many in itertools.pairwise(theirs):
        report.note(
            f"torch.compile at {many} entries / at {few}: "
            f"{over[f'torch {many}'] / over[f'torch {few}']:.1f}"
        )
    return report
