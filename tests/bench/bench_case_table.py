"""The case table of `tests/guards/cases.json`, asked of `guards.prove` and of every decider that is
installed.

Text in, verdict out, in a fresh environment: ours parses inside the clock and sees each question
about symbols of its own, peers get the text read beforehand into calls of their operators
(`tests/bench/peers.py`). Everybody is asked each question twice in a row, block by block in turn;
the CPU time of the thread is taken. Right means the answer that the table has and its tests verify.
Peers that are not installed are named; SymPy, which takes seconds, is asked every tenth question.
"""

from __future__ import annotations

import gc
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from time import thread_time_ns

import attrs
import torch

from guards.asking.ladder import RUNGS, counters
from guards.asking.queries import prove
from tests.bench.peers import OutOfTime, Peer, Prepared, Sympy, all_peers, at_most
from tests.bench.report import Report, bench_parser
from tests.bench.timing import Timing
from tests.guards.case_table import Row, rows
from tests.oracles import Question, names_in

SECONDS = 2.0  # for one question
BLOCK = 40  # questions that one is asked before the next one is

Answerer = Callable[[], bool | None]


@attrs.frozen
class Answer:
    """What one decider said to one question. Units: ns."""

    row: Row
    value: bool | None
    first: int
    repeated: int
    late: bool = False

    @property
    def right(self) -> bool:
        """Whether it proved what is true."""
        return self.value is not None and self.value is self.row.best

    @property
    def wrong(self) -> bool:
        """Whether it claims what is not so."""
        return self.value is not None and self.value is not self.row.best


def renamed(question: Question, prefix: str) -> Question:
    """The same question about other symbols."""
    names = sorted({*names_in(question.query, *question.assume), *question.ranges})
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None

    def other(text: str) -> str:
        return pattern.sub(lambda match: prefix + match.group(), text) if pattern else text

    ranges = {prefix + name: limits for name, limits in question.ranges.items()}
    return Question(other(question.query), ranges, tuple(other(text) for text in question.assume))


def ours(row: Row, number: int) -> Answerer:
    """`guards.prove` on the text, about symbols that nobody has seen."""
    question = renamed(row.question, f"q{number}_")
    query, ranges, assume = question.query, question.ranges, list(question.assume)
    return lambda: prove(query, ranges=ranges, assume=assume)


def of_peer(peer: Peer) -> Callable[[Row, int], Answerer]:
    """A peer, on the question read beforehand."""

    def make(row: Row, number: int) -> Answerer:
        prepared = _prepared(row)
        return lambda: peer.answer(prepared)

    return make


_read: dict[int, Prepared] = {}


def _prepared(row: Row) -> Prepared:
    if id(row) not in _read:
        _read[id(row)] = Prepared.of(row.question)
    return _read[id(row)]


def ask(row: Row, answerer: Answerer, failures: Counter[str]) -> Answer:
    """One question, twice; what a peer cannot say or breaks off is no answer."""
    value: bool | None = None
    taken: list[int] = []
    late = False
    for _ in range(2):
        start = thread_time_ns()
        try:
            with at_most(SECONDS):
                value = answerer()
        except OutOfTime:
            value, late = None, True
        except Exception as error:
            value = None
            failures[type(error).__name__] += 1
        taken.append(thread_time_ns() - start)
    return Answer(row, value, taken[0], taken[1], late or taken[0] > SECONDS * 1e9)


def main(argv: Sequence[str] | None = None) -> Report:
    """Asks everybody everything, one question at a time."""
    args = bench_parser(__doc__).parse_args(argv)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    report = Report("case_table", device="cpu")
    table = rows()
    chosen = table[:: len(table) // 20] if args.smoke else table
    peers, absent = all_peers()
    makers: dict[str, Callable[[Row, int], Answerer]] = {"guards": ours} | {
        p.name: of_peer(p) for p in peers
    }
    seldom = {peer.name for peer in peers if isinstance(peer, Sympy)}
    answers: dict[str, list[Answer]] = {name: [] for name in makers}
    failures = {name: Counter[str]() for name in makers}
    rungs: Counter[str] = Counter()
    for (
        name,
        make,
    ) in makers.items():  # what is imported or made on a first call is no part of any answer
        ask(chosen[0], make(chosen[0], -1), failures[name])
    for block in range(0, len(chosen), BLOCK):
        for name, make in makers.items():
            gc.collect()
            for number in range(block, min(block + BLOCK, len(chosen))):
                if name in seldom and number % 10:
                    continue
                answerer = make(chosen[number], number)
                before = counters()
                answers[name].append(ask(chosen[number], answerer, failures[name]))
                if name == "guards":
                    rungs[_rung(before)] += 1
    show(report, answers, rungs, chosen)
    for sentence in absent:
        report.note(sentence)
    for peer in peers:
        if failures[peer.name]:
            kinds = ", ".join(
                f"{kind} ({count})" for kind, count in failures[peer.name].most_common()
            )
            report.note(
                f"{peer.name} {peer.version} broke off: {kinds}, each question counted twice"
            )
    return report


def _rung(before: dict[str, int]) -> str:
    """What settled the question that was just asked (twice)."""
    now = counters()
    return next(
        (name for name in RUNGS if name != "memo" and now[name] != before[name]), "constant"
    )


def show(
    report: Report, answers: dict[str, list[Answer]], rungs: Counter[str], chosen: Sequence[Row]
) -> None:
    """Tables and goals."""
    times = {name: Timing.of(answer.first for answer in found) for name, found in answers.items()}
    again = {
        name: Timing.of(answer.repeated for answer in found) for name, found in answers.items()
    }
    proven = {name: _share(found) for name, found in answers.items()}
    columns = ("decidable", "proven", "%", "wrong", "over 2 s", "first µs", "p99", "repeated µs")
    table = report.table("who decides what", "who", *columns)
    for name, found in answers.items():
        decidable = sum(answer.row.best is not None for answer in found)
        counts = (
            decidable,
            sum(a.right for a in found),
            100 * proven[name],
            sum(a.wrong for a in found),
        )
        table.row(
            name,
            *counts,
            sum(a.late for a in found),
            times[name].median,
            times[name].p99,
            again[name].median,
        )
    topics = report.table("proven by topic, %", "topic", "questions", *answers)
    for topic in sorted({row.topic for row in chosen}):
        each = [
            [answer for answer in found if answer.row.topic == topic] for found in answers.values()
        ]
        topics.row(topic, len(each[0]), *(100 * _share(found) if found else None for found in each))
    ladder = report.table("what settled ours", "rung", "questions", "%")
    for rung in RUNGS:
        if rungs[rung]:
            ladder.row(rung, rungs[rung], 100 * rungs[rung] / len(chosen))
    mine = answers["guards"]
    report.goal("wrong answers of ours", sum(answer.wrong for answer in mine), at_most=0)
    report.goal("ours over 2 s", sum(answer.late for answer in mine), at_most=0)
    report.goal("proven by ours, %", 100 * proven["guards"], at_least=98.9)
    report.goal(
        "proven by ours minus by Z3, points", 100 * (proven["guards"] - proven["Z3"]), at_least=0.0
    )
    report.goal("ours without Z3, %", 100 * (1 - rungs["z3"] / len(chosen)), at_least=85.0)
    if "TVM analyzer" in times:
        theirs = times["TVM analyzer"].median, again["TVM analyzer"].median
        report.goal(
            "median of ours / of TVM's analyzer, first call",
            times["guards"].median / theirs[0],
            at_most=1.0,
        )
        report.goal(
            "median of ours / of TVM's analyzer, repeated",
            again["guards"].median / theirs[1],
            at_most=1.0,
        )


def _share(found: Sequence[Answer]) -> float:
    """The share of the decidable questions that were decided, and rightly."""
    decidable = [answer for answer in found if answer.row.best is not None]
    return sum(answer.right for answer in decidable) / len(decidable) if decidable else 1.0
