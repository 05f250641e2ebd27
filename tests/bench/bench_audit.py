"""Audits of padding: their verdicts, and their time against that of one trace.

The models are those of transformers, tiny and with random weights, that the tests audit; the
programs are small ones with padding used rightly and wrongly. Each has the verdict that was decided
by reading it. A *false alarm* is a leak that is none, a *missed leak* a proof that other padding
contradicts; an audit runs the example with other padding, so both would be seen.

An audit traces once, follows the padding through the graph, and runs the model twelve times.
*first*: the first audit of a model that was neither traced nor run before, in milliseconds; the
very first one imports what audits need. The other times are the least of several, beside a trace
with the same dynamic sizes.

    python -m tests.bench audit
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import symshape
from symshape.auditing.request import read_request
from tests.bench.report import Report, bench_parser
from tests.symshape.auditing.models import QUESTIONS, Question, worst
from tests.symshape.auditing.programs import LEAKS, PROVEN, example


def _traced(question: Question) -> None:
    """Traces the question's program as an audit does."""
    request = read_request(
        question.model, question.arguments, question.padded, question.valid, None, "finite", None
    )
    args, kwargs = request.call(request.arguments)
    symshape.trace(question.model, *args, dynamic=request.dynamic(), **kwargs)


def _timed(question: Question, times: int) -> tuple[Any, float, float]:
    """The report, and the least ms of an audit and of a trace, measured in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        start = time.perf_counter()
        _traced(question)
        between = time.perf_counter()
        found = question.audit()
        taken[0].append(time.perf_counter() - between)
        taken[1].append(between - start)
    return found, min(taken[0]) * 1e3, min(taken[1]) * 1e3


def main(argv: Sequence[str] | None = None) -> Report:
    """Audits the models, then the programs."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="timings of each (default: 9)")
    args = parser.parse_args(argv)
    report = Report("audit", device="cpu")
    table = report.table(
        "models of transformers", "model", "verdict", "expected", "outputs", "first ms", "audit ms",
        "trace ms", "audit / trace",
    )  # fmt: skip
    names = list(QUESTIONS)[:1] if args.smoke else list(QUESTIONS)
    rounds = 1 if args.smoke else args.rounds
    counts: Counter[str] = Counter()
    wrong, ratios = 0, []
    for name in names:
        question = QUESTIONS[name]()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            question.audit()
            first = (time.perf_counter() - start) * 1e3
            found, audit, trace = _timed(question, rounds)
        verdict = worst(found)
        counts[verdict] += 1
        wrong += verdict != question.verdict
        ratios.append(audit / trace)
        times = (first, audit, trace, audit / trace)
        table.row(name, verdict, question.verdict, len(found.outputs), *times)
    told = report.table("verdicts", "of", "proven", "leaks", "unknown", "other than expected")
    told.row("models", *(counts[each] for each in ("proven", "leaks", "unknown")), wrong)
    small: Counter[str] = Counter()
    alarms = missed = 0
    programs = {name: (program, "proven") for name, program in PROVEN.items()}
    programs |= {name: (each[0], "leaks") for name, each in LEAKS.items()}
    for program, expected in list(programs.values())[: 2 if args.smoke else None]:
        with torch.no_grad():
            verdict = worst(
                symshape.audit_padding(program, example(), {"x": {1: "length"}}, "mask")
            )
        small[verdict] += 1
        alarms += verdict == "leaks" != expected
        missed += expected == "leaks" != verdict
    told.row("programs", *(small[each] for each in ("proven", "leaks", "unknown")), alarms + missed)
    report.goal("verdicts of models other than expected", wrong, at_most=0)
    report.goal("programs: false alarms", alarms, at_most=0)
    report.goal("programs: missed leaks", missed, at_most=0)
    if not args.smoke:
        report.goal(
            "an audit's time over a trace's, median", sorted(ratios)[len(ratios) // 2], at_most=3
        )
        report.goal("an audit's time over a trace's, most", max(ratios), at_most=3)
    return report
