"""The ledger on a simulated clock: regret of thousands of streams against the best fixed choice in
hindsight.

No device and no clock: machines are recorded figures (``tests.bench.simulated_streams``), guesses
of them are off by a factor of two.  *hindsight* is the best of eager, one wide bucket, a bucket for
each octave or step, a graph for each size; *behind* is the most by which the time so far was above
1.25 times eager's, over all calls of all streams.

    python -m tests.bench policy --streams 10000
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from tests.bench.report import Report, bench_parser
from tests.bench.simulated_streams import ADVERSARY, MACHINES, TRAFFIC, play


def main(argv: Sequence[str] | None = None) -> Report:
    """Plays the streams."""
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--streams", type=int, default=10_000, help="how many in all (default: 10,000)"
    )
    parser.add_argument("--calls", type=int, default=300, help="calls of a stream (default: 300)")
    args = parser.parse_args(argv)
    report = Report("policy", device="cpu")
    pairs = [
        (machine, traffic)
        for machine in MACHINES
        for traffic in (*TRAFFIC, ADVERSARY)
        if (machine == "graphs") == (traffic == "four sizes")
    ]
    each = 1 if args.smoke else max(1, args.streams // len(pairs))
    table = report.table(
        f"{each} streams of {args.calls} calls each",
        *(
            "machine",
            "traffic",
            "total / hindsight, mean",
            "worst",
            "total / eager, mean",
            "worst",
            "behind, ms",
            "buckets",
        ),
    )
    start, behind = time.perf_counter(), 0.0
    for machine, traffic in pairs:
        found = [
            play(MACHINES[machine], traffic, args.calls, args.seed + seed) for seed in range(each)
        ]
        hindsight = [one.total / one.hindsight for one in found]
        eager = [one.total / one.eager for one in found]
        late = max(one.behind for one in found)
        if MACHINES[machine].first < 1000:  # else the first trace alone breaks the promise
            behind = max(behind, late)
        made = statistics.mean(one.buckets for one in found)
        table.row(
            machine,
            traffic,
            statistics.mean(hindsight),
            max(hindsight),
            statistics.mean(eager),
            max(eager),
            late,
            made,
        )
    report.goal("ms above 1.25 of eager's time so far, at most", behind, at_most=1000.0)
    rate = each * len(pairs) / (time.perf_counter() - start)
    report.note(f"{rate:.0f} streams a second; hindsight includes the first trace, but for eager's")
    return report
