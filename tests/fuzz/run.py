"""Runs fuzzers: all of them, each in a process of its own, or the ones named; prints tallies and reproducers.

    python -m tests.fuzz [NAME ...] [FLAGS]

    python -m tests.fuzz                                  all, each with its default count
    python -m tests.fuzz decide --count 1000000 --seed 7  one, longer
    python -m tests.fuzz decide --seed 7 --start 41 --count 1   one case again

Flags it does not know go to the fuzzer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.discovery import main_of, names, run_apart, split_names
from tests.fuzz.harness import Outcome


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 where no fuzzer found a failure, 1 otherwise."""
    chosen, flags = split_names(argv)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--list", action="store_true", help="list the fuzzers and stop")
    known, rest = parser.parse_known_args(flags)
    if known.list:
        print("\n".join(names("fuzz")) or "none yet")
        return 0
    chosen = chosen or list(names("fuzz"))
    if len(chosen) != 1:
        failed = [name for name in chosen if run_apart("fuzz", name, rest) != 0]
        if failed:
            print(f"failed: {', '.join(failed)}")
        return 1 if failed else 0
    outcome = main_of("fuzz", chosen[0])(rest)
    if not isinstance(outcome, Outcome):
        print(f"error: main of fuzz_{chosen[0]} returned {type(outcome).__name__}, not an Outcome", file=sys.stderr)
        return 1
    print(outcome.text(), flush=True)
    return 1 if outcome.failures or outcome.cases == 0 else 0
