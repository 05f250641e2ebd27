"""Runs fuzzers: all of them, each in a process of its own, or the ones named; prints tallies and
reproducers.

    python -m tests.fuzz [NAME ...] [FLAGS]

    python -m tests.fuzz                                  all, each with its default count
    python -m tests.fuzz decide --count 1000000 --seed 7  one, longer
    python -m tests.fuzz decide --seed 7 --start 41 --count 1   one case again
    python -m tests.fuzz world --jobs 16 --count 100000 --json world.json   in 16 processes

Flags it does not know go to the fuzzer.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.discovery import main_of, names, run_apart, split_names
from tests.fuzz.harness import Outcome
from tests.fuzz.jobs import ENDLESS, Plan, run_jobs

PIECES = 4  # for each process, where the number of cases is known


def _in_jobs(name: str, jobs: int, rest: Sequence[str]) -> Outcome:
    """Runs a fuzzer in several processes."""
    parser = argparse.ArgumentParser(prog=f"tests.fuzz {name} --jobs {jobs}", allow_abbrev=False)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--piece", type=int, help="cases handed to a process at once")
    parser.add_argument(
        "--most", type=int, default=50, help="failures after which no more pieces are begun"
    )
    args, flags = parser.parse_known_args(rest)
    if args.count is None and args.seconds is None:
        parser.error("say --count or --seconds")
    count = ENDLESS if args.count is None else args.count
    piece = args.piece or (
        500 if args.count is None else max(1, min(2000, -(-count // (jobs * PIECES))))
    )
    plan = Plan(name, flags, args.seed, args.start, count, jobs, piece, args.seconds, args.most)
    return run_jobs(plan)


def _alone(name: str, rest: Sequence[str]) -> object:
    """Runs a fuzzer in this process, which is its own: what was imported is not collected again and
    again.
    """
    run = main_of("fuzz", name)
    gc.collect()
    gc.freeze()
    try:
        return run(rest)
    finally:
        gc.unfreeze()


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 where no fuzzer found a failure, 1 otherwise."""
    chosen, flags = split_names(argv)
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--list", action="store_true", help="list the fuzzers and stop")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes for one fuzzer (needs --count or --seconds)"
    )
    parser.add_argument("--json", type=Path, help="write the outcome of one fuzzer here")
    known, rest = parser.parse_known_args(flags)
    if known.list:
        print("\n".join(names("fuzz")) or "none yet")
        return 0
    chosen = chosen or list(names("fuzz"))
    if len(chosen) != 1 and (known.jobs > 1 or known.json):
        parser.error("--jobs and --json are for one fuzzer")
    if len(chosen) != 1:
        failed = [name for name in chosen if run_apart("fuzz", name, rest) != 0]
        if failed:
            print(f"failed: {', '.join(failed)}")
        return 1 if failed else 0
    outcome = _in_jobs(chosen[0], known.jobs, rest) if known.jobs > 1 else _alone(chosen[0], rest)
    if not isinstance(outcome, Outcome):
        print(
            f"error: main of fuzz_{chosen[0]} returned {type(outcome).__name__}, not an Outcome",
            file=sys.stderr,
        )
        return 1
    print(outcome.text(), flush=True)
    if known.json:
        outcome.write(known.json)
    return 1 if outcome.failures or outcome.cases == 0 else 0
