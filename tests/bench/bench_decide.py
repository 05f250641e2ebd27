"""Deciding: text in, verdict out, over the case table; ours against each peer that can be imported,
in the same run.

Each question starts in a fresh environment: our caches of texts, facts and decisions are emptied
before it (the terms' hash-consing stays, as it does in any process), a peer makes its symbols and
assumptions anew.  Reading the text counts for us and not for the peers.  A question asked once more
directly after is the repeated figure.  Answers are compared with the table's `best` column, which
the tests prove.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from time import perf_counter_ns

import attrs

from guards.asking.caches import clear_caches
from guards.asking.queries import decide, prove
from guards.asking.verdict import Verdict
from tests.bench.peers import OutOfTime, Peer, Prepared, Unsupported, all_peers, at_most
from tests.bench.report import Report, bench_parser
from tests.bench.timing import Timing
from tests.guards.case_table import Row, rows

SECONDS = 2.0  # a peer's time for one question


@attrs.define
class Score:
    """What one decider did."""

    proven: int = 0
    wrong: int = 0
    unanswered: int = 0
    first: list[float] = attrs.field(factory=list)
    again: list[float] = attrs.field(factory=list)

    def count(self, answer: bool | None, best: bool | None) -> None:
        if answer is None:
            self.unanswered += best is not None
        elif answer is best:
            self.proven += 1
        else:
            self.wrong += 1


def ours(row: Row, score: Score) -> Verdict:
    """Asks us, twice."""
    asked = row.question
    clear_caches(terms=False)
    start = perf_counter_ns()
    answer = prove(asked.query, ranges=asked.ranges, assume=asked.assume)
    middle = perf_counter_ns()
    prove(asked.query, ranges=asked.ranges, assume=asked.assume)
    end = perf_counter_ns()
    score.first.append(middle - start)
    score.again.append(end - middle)
    score.count(answer, row.best)
    return decide(asked.query, ranges=asked.ranges, assume=asked.assume)


def theirs(peer: Peer, prepared: Prepared, best: bool | None, score: Score) -> None:
    """Asks a peer, twice; what it cannot express or finish is no answer."""
    for taken in (score.first, score.again):
        start = perf_counter_ns()
        try:
            with at_most(SECONDS):
                answer = peer.answer(prepared)
        except (Unsupported, OutOfTime):
            answer = None
        except Exception:
            answer = None
        taken.append(perf_counter_ns() - start)
    score.count(answer, best)


def main(argv: Sequence[str] | None = None) -> Report:
    """Run the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--rows", type=int, default=0, help="ask so many rows of the table only (default: all)"
    )
    parser.add_argument("--alone", action="store_true", help="without the peers")
    args = parser.parse_args(argv)
    report = Report("decide")
    table = rows()
    count = 12 if args.smoke else args.rows
    if count:
        table = random.Random(args.seed).sample(table, min(count, len(table)))
    peers, absent = ([], []) if args.alone else all_peers()
    if args.smoke:
        peers = [peer for peer in peers if peer.name != "SymPy"]
    for warm in table[:20]:
        ours(warm, Score())
    score, rungs, topics = Score(), Counter[str](), dict[str, Counter[str]]()
    others = {peer.name: Score() for peer in peers}
    decidable = sum(row.best is not None for row in table)
    # one decider after the other: taking turns would leave each the other's cold caches
    for row in table:
        verdict = ours(row, score)
        seen = topics.setdefault(row.topic, Counter())
        if row.best is not None:
            rungs[verdict.rung] += 1
            seen["questions"] += 1
            seen["ours"] += verdict.value is row.best
    prepared = [Prepared.of(row.question) for row in table] if peers else []
    for peer in peers:
        for row, asked in zip(table, prepared, strict=True):
            before = others[peer.name].proven
            theirs(peer, asked, row.best, others[peer.name])
            if row.best is not None:
                topics[row.topic][peer.name] += others[peer.name].proven - before
    _tell(report, decidable, score, others, rungs, topics)
    for sentence in absent:
        report.note(sentence)
    return report


def _tell(
    report: Report,
    decidable: int,
    score: Score,
    others: dict[str, Score],
    rungs: Counter[str],
    topics: dict[str, Counter[str]],
) -> None:
    whole = report.table(
        f"Deciders on {decidable} decidable questions of the case table",
        *("decider", "proven", "proven %", "wrong", "first µs", "first p99 µs", "again µs"),
    )
    for name, found in {"ours": score, **others}.items():
        first, again = Timing.of(found.first), Timing.of(found.again)
        share = 100 * found.proven / max(1, decidable)
        whole.row(name, found.proven, share, found.wrong, first.median, first.p99, again.median)
    by_rung = report.table("Ours by rung", "rung", "questions", "share %")
    for rung, number in rungs.most_common():
        by_rung.row(rung, number, 100 * number / max(1, decidable))
    by_topic = report.table("Proven by topic", "topic", "questions", "ours", *others)
    for topic, seen in topics.items():
        by_topic.row(topic, seen["questions"], seen["ours"], *[seen[name] for name in others])
    first = Timing.of(score.first)
    report.goal("proven by us, %", 100 * score.proven / max(1, decidable), at_least=98.9)
    report.goal("wrong", score.wrong, at_most=0)
    report.goal("decided without Z3, %", 100 * (1 - rungs["z3"] / max(1, decidable)), at_least=85)
    report.goal("first call, median µs", first.median, at_most=99)
    report.goal("slowest question, s", max(score.first) / 1e9, at_most=2)


if __name__ == "__main__":
    print(main().text())
