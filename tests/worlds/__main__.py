"""``python -m tests.worlds``: runs every program each way and prints the table.

python -m tests.worlds --jobs 16 --json worlds.json   in 16 processes, every verdict written
python -m tests.worlds -k "hook" --ways ours,dynamo   some of them, two ways
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.worlds.corpus import PROGRAMS
from tests.worlds.table import bad_ones, collected, judged, judged_in_jobs, table, write_verdicts
from tests.worlds.ways import WAYS


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.worlds", description=__doc__)
    parser.add_argument("--ways", default="ours,default,dynamo", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--json", type=Path, help="write every verdict here")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("-k", default="", help="only programs with this in their class or name")
    parser.add_argument(
        "--every", type=int, default=1, help="only every so many programs: a sample"
    )
    parser.add_argument("--slow", action="store_true", help="also the slow ones (Inductor)")
    # the work of one of the processes
    parser.add_argument("--share", type=Path, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch._logging.set_logs(all=logging.CRITICAL)
    if args.share:
        write_verdicts(*args.share)
        return 0
    chosen = [
        each for each in PROGRAMS.values() if args.k in str(each) and (args.slow or not each.slow)
    ]
    programs = chosen[:: args.every]
    names, ways = [str(each) for each in programs], args.ways.split(",")
    start = time.perf_counter()
    found = (
        judged_in_jobs(names, ways, args.jobs)
        if args.jobs > 1
        else collected(ways, judged(names, ways))
    )
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
    print(
        f"{len(programs)} programs, {len(ways)} ways, {time.perf_counter() - start:.0f} s, "
        f"{versions}"
    )
    print(table(programs, found))
    print("\n".join(bad_ones(programs, found)))
    if args.json:
        rows = {
            name: {
                way: [verdicts[name].outcome, verdicts[name].detail]
                for way, verdicts in found.items()
            }
            for name in names
        }
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
