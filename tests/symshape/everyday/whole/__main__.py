"""The table: what became of each program with symshape.compile, and with torch.compile and the
backends given.

python -m tests.symshape.everyday.whole --backend eager  every program, beside torch.compile
python -m tests.symshape.everyday.whole --only vision --json r.json  of a class, or a word of the
name python -m tests.symshape.everyday.whole --backend inductor --every 8  a sample
python -m tests.symshape.everyday.whole --json r.json --results     and the rows as a table

With ``--json`` every row is written as soon as it is known, and rows that are there are not made
again: a run that was stopped goes on.  All in one process, one program after the other.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import torch

from tests.bench.report import RESULTS
from tests.symshape.everyday.whole.loaded import PROGRAMS
from tests.symshape.everyday.whole.table import class_of, report, text
from tests.symshape.everyday.whole.ways import OURS, Row, judged

COMMAND = (
    "python -m tests.symshape.everyday.whole --json rows.json --results, with --backend for "
    "each way"
)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only these programs")
    parser.add_argument("--only", default="", help="only programs with this in their class or name")
    parser.add_argument(
        "--every", type=int, default=1, help="only every so many programs: a sample"
    )
    parser.add_argument(
        "--backend", action="append", default=[], help="torch.compile with it, too (repeat)"
    )
    parser.add_argument(
        "--limit", type=int, default=120, help="seconds for one program one way (default: 120)"
    )
    parser.add_argument("--json", type=Path, help="the rows, written as they come")
    parser.add_argument(
        "--results", action="store_true", help="write the table to tests/bench/results"
    )
    parser.add_argument(
        "--note", action="append", default=[], help="a sentence for who reads the table (repeat)"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each program, then the table."""
    args = _parsed(argv)
    torch._logging.set_logs(all=logging.CRITICAL)
    rows: dict[str, dict[str, Row]] = {}
    if args.json and args.json.exists():
        kept = json.loads(args.json.read_text())
        rows = {name: {way: Row(**row) for way, row in of.items()} for name, of in kept.items()}
    chosen = (
        args.names
        or [name for name in PROGRAMS if args.only in f"{class_of(name)} {name}"][:: args.every]
    )
    ways, start = [OURS, *args.backend], time.perf_counter()
    for number, name in enumerate(chosen, 1):
        of = rows.setdefault(name, {})
        for way in ways:
            if way not in of:
                of[way] = judged(name, way, args.limit)
                _keep(args.json, rows)
        print(
            f"{number:3}/{len(chosen)} {name:30} "
            + "; ".join(f"{way}: {of[way].text()}" for way in ways),
            flush=True,
        )
    print(text(rows))
    if args.results:
        found = report(rows)
        found.notes += args.note
        print(found.write(RESULTS, arguments=[COMMAND], seconds=time.perf_counter() - start))
    return 0


def _keep(path: Path | None, rows: dict[str, dict[str, Row]]) -> None:
    """Writes the rows beside the file first: a stop leaves the old or the new ones."""
    if path is None:
        return
    shown = {name: {way: attrs.asdict(row) for way, row in of.items()} for name, of in rows.items()}
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(shown, indent=1))
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
