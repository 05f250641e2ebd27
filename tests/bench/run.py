"""Runs benchmarks: all of them, each in a process of its own, or the ones named; prints tables,
writes JSON.

    python -m tests.bench [NAME ...] [FLAGS]

    python -m tests.bench                      all, results in tests/bench/results/
    python -m tests.bench dispatch --smoke     one, smallest workload (writes nothing without --out)
    python -m tests.bench gpu_mlp --out DIR    one, results elsewhere

Flags it does not know go to the benchmark (`python -m tests.bench dispatch --help` shows the
runner's own).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from tests.bench.report import RESULTS, NotHere, Report, writing
from tests.discovery import main_of, names, run_apart, split_names


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 where every benchmark ran (or cannot run here and said so), 1
    otherwise.
    """
    chosen, flags = split_names(argv)
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder for the JSON results (default: tests/bench/{RESULTS.name})",
    )
    parser.add_argument("--strict", action="store_true", help="a missed goal counts as a failure")
    known, rest = parser.parse_known_args(flags)
    if known.list:
        print("\n".join(names("bench")) or "none yet")
        return 0
    chosen = chosen or list(names("bench"))
    if len(chosen) == 1:
        return _run_one(chosen[0], rest, out=known.out, strict=known.strict)
    passed_on = [
        *rest,
        *(["--out", str(known.out.resolve())] if known.out else []),
        *["--strict"] * known.strict,
    ]
    failed = [name for name in chosen if run_apart("bench", name, passed_on) != 0]
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


def _run_one(name: str, arguments: list[str], *, out: Path | None, strict: bool) -> int:
    print(f"== bench {name} {' '.join(arguments)}".rstrip(), flush=True)
    start = perf_counter()
    folder = out or (None if "--smoke" in arguments else RESULTS)

    def write(report: Report) -> Path | None:
        seconds = perf_counter() - start
        return (
            None if folder is None else report.write(folder, arguments=arguments, seconds=seconds)
        )

    try:
        with writing(write):
            report = main_of("bench", name)(arguments)
    except NotHere as reason:
        print(f"not run here: {reason}\n")
        return 0
    if not isinstance(report, Report) or report.name != name:
        print(
            f"error: main of bench_{name} is to return a Report named {name!r}, not {report!r}",
            file=sys.stderr,
        )
        return 1
    print(f"\n{report.text()}\n\n{perf_counter() - start:.1f} s")
    if (path := write(report)) is not None:
        print(f"written: {path.name}")
    print(flush=True)
    return 1 if strict and not all(goal.met for goal in report.goals) else 0
