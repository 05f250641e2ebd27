"""The loop of a fuzzer. Case `i` of seed `s` depends on `(s, i)` alone, so each failure is
reproduced by its number.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from time import monotonic

import attrs

MOST_FAILURES = 5  # a broken build fails everywhere; five reproducers are enough to start from


class Counterexample(Exception):
    """A case whose result contradicts the oracle; the message is a reproducer that a person can
    paste.
    """


@attrs.define
class Outcome:
    """The result of one fuzzer run; `main(argv)` of every `fuzz_*.py` returns one.

    Attributes:
        cases, seconds: how many were tried, and how long it took on the clock.
        tally: how often each label was returned.
        counts: what a fuzzer counts beside its cases (calls, refusals by reason).
        failures: each with what it takes to see it again.
    """

    name: str
    cases: int = 0
    seconds: float = 0.0
    tally: Counter[str] = attrs.field(factory=Counter)
    counts: Counter[str] = attrs.field(factory=Counter)
    failures: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """One paragraph: how many cases, what they were, and each failure with its reproducer."""
        rate = f", {self.cases / self.seconds:,.0f} a second" if self.seconds > 0 else ""
        head = (
            f"{self.name}: {self.cases:,} cases in {self.seconds:.1f} s{rate}, "
            f"{len(self.failures)} failures"
        )
        told = [", ".join(f"{kind} {count:,}" for kind, count in self.tally.most_common())]
        told += [f"{count:,} {what}" for what, count in self.counts.most_common()]
        return "\n".join([head, *(f"  {line}" for line in told if line), *self.failures])

    def add(self, other: Outcome) -> None:
        """Adds what another run of the same fuzzer found; the seconds stay this one's."""
        self.cases += other.cases
        self.tally += other.tally
        self.counts += other.counts
        self.failures += other.failures

    def write(self, path: Path) -> None:
        """Writes it as JSON; the file is there only when it is whole."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(attrs.asdict(self), indent=1))
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """What :meth:`write` wrote."""
        fields = json.loads(path.read_text())
        return cls(**fields | {name: Counter(fields[name]) for name in ("tally", "counts")})


def fuzz_parser(doc: str | None, *, count: int, smoke: int) -> argparse.ArgumentParser:
    """A parser with the flags every fuzzer has; add your own to it."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=count, help=f"cases to try (default: {count:,})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: 0)")
    parser.add_argument(
        "--start", type=int, default=0, help="number of the first case, to reproduce one"
    )
    parser.add_argument(
        "--seconds", type=float, help="stop after this long, however many cases were tried"
    )
    parser.add_argument("--smoke", action="store_true", help=f"{smoke:,} cases")
    # where the number of the case is written
    parser.add_argument("--mark", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(smoke_count=smoke)
    return parser


def fuzz(
    name: str,
    case: Callable[[random.Random], str | None],
    args: argparse.Namespace,
    *,
    must_see: Collection[str] = (),
    counts: Counter[str] | None = None,
) -> Outcome:
    """Run `case` with one generator a case, count the labels it returns, and collect what it
    raises.

    `case` makes its input from the generator alone, compares with its oracle, raises
    `Counterexample` (or anything else) where they differ, and returns a label of what happened
    (`"proved"`, `"unknown"`) for the tally. A run of at least the smoke count that never saw a
    label of `must_see` fails: it did not test what it says it tests. What `case` counts in `counts`
    is told with the rest.
    """
    outcome = Outcome(name, counts=Counter() if counts is None else counts)
    count = args.smoke_count if args.smoke else args.count
    mark = None if args.mark is None else os.open(args.mark, os.O_WRONLY | os.O_CREAT)
    began = monotonic()
    said = began
    for number in range(args.start, args.start + count):
        if mark is not None:
            os.pwrite(mark, b"%-20d" % number, 0)
        try:
            label = case(random.Random(f"{args.seed}:{number}"))
        except KeyboardInterrupt:
            break
        except Exception as error:
            reproduce = f"python -m tests.fuzz {name} --seed {args.seed} --start {number} --count 1"
            told = str(error) if isinstance(error, Counterexample) else traceback.format_exc()
            outcome.failures.append(f"\nFAILED case {number}; again with: {reproduce}\n{told}")
            label = "failed"
        outcome.cases += 1
        if label is not None:
            outcome.tally[label] += 1
        now = monotonic()
        if now - said > 5:
            said = now
            print(
                f"  {name}: {outcome.cases:,} of {count:,} cases, {now - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        if len(outcome.failures) >= MOST_FAILURES or (
            args.seconds is not None and now - began > args.seconds
        ):
            break
    outcome.seconds = monotonic() - began
    whole = outcome.cases >= args.smoke_count and args.start == 0
    unseen = [label for label in must_see if whole and label not in outcome.tally]
    if unseen:
        outcome.failures.append(
            f"\nFAILED: in {outcome.cases:,} cases these never happened: {', '.join(unseen)}"
        )
    return outcome


def run_fuzzer(
    name: str,
    doc: str | None,
    argv: Sequence[str] | None,
    case: Callable[[random.Random], str | None],
    *,
    count: int,
    smoke: int,
    must_see: Collection[str] = (),
) -> Outcome:
    """Parse the flags every fuzzer has and run it: the whole `main` of a fuzzer without flags of
    its own.
    """
    return fuzz(
        name, case, fuzz_parser(doc, count=count, smoke=smoke).parse_args(argv), must_see=must_see
    )
