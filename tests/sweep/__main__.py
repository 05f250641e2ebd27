"""Runs the sweep; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import torch

import tests.sweep
from tests.bench.report import Report
from tests.sweep.architectures import architectures
from tests.sweep.heads import heads
from tests.sweep.judging import LEARNT, OTHERS, Architecture, Row, judge
from tests.sweep.nets import nets

COLUMNS = (
    "architecture",
    "way",
    "outcome",
    "traces",
    "ran as it is",
    "keeps dynamic",
    "of eager's time",
    "s",
    "reason",
)
SMOKE = ("bert", "t5", "mamba", "llama, reranker", "unet", "denoiser")


def every() -> Iterator[Architecture]:
    """All architectures."""
    yield from architectures()
    yield from heads()
    yield from nets()


def rows_of(it: Architecture, ways: Sequence[str], seconds: int) -> Iterator[Row]:
    """One architecture in the ways that it is called."""
    for way in (*it.ways, "training"):
        if not ways or way in ways:
            row = judge(it, way, seconds)
            yield row
            if row.outcome == "not built":
                return


def main(argv: Sequence[str] | None = None) -> Report:
    """Prints the table, a line for each row as it is done."""
    parser = argparse.ArgumentParser(
        description=tests.sweep.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names, with ; between them")
    parser.add_argument("--ways", default="", help="plain, mask, training: with , between them")
    parser.add_argument("--seconds", type=int, default=60, help="of processor time, for a row")
    parser.add_argument("--smoke", action="store_true", help=f"a few: {', '.join(SMOKE)}")
    parser.add_argument("--out", type=Path, help="folder in which sweep-cpu.json is written")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    only = SMOKE if args.smoke else [each for each in args.only.split(";") if each]
    ways = [each for each in args.ways.split(",") if each]
    report, start = Report("sweep"), time.perf_counter()
    table = report.table("compiled, called at seven shapes", *COLUMNS)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    for it in every():
        if not only or it.name in only:
            for row in rows_of(it, ways, args.seconds):
                reason = " ".join(row.reason.split())[:300].replace("|", "/")
                cells = (*attrs.astuple(row)[:-3], round(row.of_eager, 2), round(row.seconds, 1), reason or "–")
                table.row(*cells)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
    _summed_up(report)
    if args.out is not None:
        words = ["python -m tests.sweep", *(sys.argv[1:] if argv is None else argv)]
        report.write(args.out, arguments=words, seconds=time.perf_counter() - start)
    return report


def _summed_up(report: Report) -> None:
    rows = report.tables[0].rows
    counts = {outcome: sum(row[2] == outcome for row in rows) for outcome in sorted({str(row[2]) for row in rows})}
    whole = sum(row[5] == "batch length" for row in rows)
    report.note(f"learnt at (batch, length) {LEARNT}, then {OTHERS}")
    report.note(
        "as a compiler sees it: the model computes otherwise where torch.compiler.is_compiling() (an associative scan "
        "in place of a loop, about 1e-7 away); equal bit for bit to the model run with that flag set"
    )
    report.note("of eager's time: the least of twelve calls each, in turn, at batch 4 and length 16, on a busy machine")
    report.note(f"{len({row[0] for row in rows})} architectures, {len(rows)} rows: {counts}; {whole} keep both")
    print("\n".join(["", *report.notes]))


if __name__ == "__main__":
    main()
