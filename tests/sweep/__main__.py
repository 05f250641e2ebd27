"""Runs the sweep; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

import tests.sweep
from tests.bench.report import Report
from tests.sweep import libraries
from tests.sweep.judging import LEARNT, OTHERS, Asked
from tests.sweep.trying import named, rows_of_all

COLUMNS = (
    "architecture",
    "way",
    "outcome",
    "traces",
    "ran as it is",
    "keeps dynamic",
    "padded",
    "of eager's time",
    "s",
    "reason",
)
SMOKE = ("bert", "t5", "mamba", "llama, reranker", "unet", "denoiser")


def main(argv: Sequence[str] | None = None) -> Report:
    """Prints the table, a line for each row as it is done."""
    parser = argparse.ArgumentParser(
        description=tests.sweep.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names, with ; between them")
    parser.add_argument("--ways", default="", help="plain, mask, training: with , between them")
    parser.add_argument("--seconds", type=int, default=60, help="of processor time, for a row")
    parser.add_argument("--device", default="cpu", help="where they run")
    parser.add_argument(
        "--runner",
        default="auto",
        help="what runs programs: auto, eager, padded, inductor, cudagraph",
    )
    parser.add_argument(
        "--inference", action="store_true", help="calls in inference mode, but for training"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--smoke", action="store_true", help=f"a few: {', '.join(SMOKE)}")
    parser.add_argument("--out", type=Path, help="folder in which sweep-DEVICE.json is written")
    args = parser.parse_args(argv)
    only = SMOKE if args.smoke else [each for each in args.only.split(";") if each]
    ways = [each for each in args.ways.split(",") if each]
    asked = Asked(args.device, args.runner, args.seconds, args.inference)
    report, start = (
        Report(
            "_".join(
                ["sweep"] + [args.runner] * (args.runner != "auto") + ["inference"] * args.inference
            ),
            args.device,
        ),
        time.perf_counter(),
    )
    table = report.table("compiled, called at seven shapes", *COLUMNS)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    names = [name for name in named() if not only or name in only]
    for row in rows_of_all(names, ways, asked, args.jobs):
        reason, padded = (
            " ".join(each.split())[:300].replace("|", "/") for each in (row.reason, row.padded)
        )
        cells = (
            *attrs.astuple(row)[:-4],
            padded,
            round(row.of_eager, 2),
            round(row.seconds, 1),
            reason or "–",
        )
        table.row(*cells)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    _summed_up(report)
    if args.out is not None:
        words = ["python -m tests.sweep", *(sys.argv[1:] if argv is None else argv)]
        report.write(args.out, arguments=words, seconds=time.perf_counter() - start)
    return report


def _summed_up(report: Report) -> None:
    rows = report.tables[0].rows
    counts = {
        outcome: sum(row[2] == outcome for row in rows)
        for outcome in sorted({str(row[2]) for row in rows})
    }
    whole = sum(row[5] == "batch length" for row in rows)
    report.note(f"learnt at (batch, length) {LEARNT}, then {OTHERS}")
    report.note(
        "as a compiler sees it: the model computes otherwise where torch.compiler.is_compiling() "
        "(an associative scan in place of a loop, about 1e-7 away; another mask); equal bit for "
        "bit to the model run with that flag set, or close to it where it is far from the one "
        "without"
    )
    report.note(
        "of eager's time: the least of twelve calls each, in turn, at batch 4 and length 16, on a "
        "busy machine"
    )
    report.note(
        f"{len({row[0] for row in rows})} architectures, {len(rows)} rows: {counts}; {whole} keep "
        "both"
    )
    print("\n".join(["", *report.notes]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["libraries"]:
        libraries.main(sys.argv[2:])
    else:
        main()
