"""``python -m tests.worlds``: runs every program each way and prints the table."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.worlds.corpus import PROGRAMS
from tests.worlds.ways import WAYS
from tests.worlds.world import GOOD, OUTCOMES, Program, Verdict, judge


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.worlds", description=__doc__)
    parser.add_argument("--ways", default="ours,default,dynamo", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--json", type=Path, help="write every verdict here")
    parser.add_argument("-k", default="", help="only programs with this in their class or name")
    parser.add_argument("--slow", action="store_true", help="also the slow ones (Inductor)")
    args = parser.parse_args(argv)
    torch._logging.set_logs(all=logging.CRITICAL)
    programs = [each for each in PROGRAMS.values() if args.k in str(each) and (args.slow or not each.slow)]
    found: dict[str, dict[str, Verdict]] = {}
    for name in args.ways.split(","):
        start = time.perf_counter()
        found[name] = {}
        for program in programs:
            with contextlib.redirect_stderr(io.StringIO()):
                found[name][str(program)] = judge(program, WAYS[name])
        print(f"{name}: {len(programs)} programs in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    print(table(programs, found))
    for name, verdicts in found.items():
        print(f"\n{name}, neither right nor refused:")
        for program in programs:
            verdict = verdicts[str(program)]
            if verdict.outcome not in GOOD:
                print(f"  {verdict.outcome:8} {program}: {verdict.detail}")
    if args.json:
        rows = {
            str(program): {
                name: [verdicts[str(program)].outcome, verdicts[str(program)].detail]
                for name, verdicts in found.items()
            }
            for program in programs
        }
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


def table(programs: Sequence[Program], found: dict[str, dict[str, Verdict]]) -> str:
    """Class, programs, and how many came to which outcome, for each way, as Markdown."""
    heads = [f"{name} {outcome}" for name in found for outcome in OUTCOMES]
    lines = ["| class | programs | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for kind in [*sorted({each.kind for each in programs}, key=_number), ""]:
        members = [each for each in programs if kind in ("", each.kind)]
        counts = [Counter(verdicts[str(each)].outcome for each in members) for verdicts in found.values()]
        cells = [str(count[outcome]) for count in counts for outcome in OUTCOMES]
        lines.append(f"| {kind or 'all'} | {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(kind: str) -> tuple[int, str]:
    return int(kind.split()[0]), kind


if __name__ == "__main__":
    sys.exit(main())
