"""The rows of whole programs as a table: by class, and way by way."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping

from tests.bench.report import Cell, Report
from tests.symshape.everyday.whole.loaded import PROGRAMS
from tests.symshape.everyday.whole.ways import OURS, Row

Rows = Mapping[str, Mapping[str, Row]]
_OUTCOMES = ("right", "as eager", "refused", "slow", "wrong")
_TITLE = (
    "whole programs at six shapes, with gradients and effects, held to eager: how many came out "
    "how; their traces or Dynamo's graphs; seconds of the six first calls (all programs together); "
    "the median of the warm calls over that of eager's (its median over programs, the quickest, "
    "the slowest)"
)
_COLUMNS = (
    "way",
    "class",
    "programs",
    *_OUTCOMES,
    "traces",
    "first s",
    "warm/eager",
    "least",
    "most",
)


def class_of(name: str) -> str:
    """The module that has a program."""
    return PROGRAMS[name].__module__.rpartition(".")[2]


def report(rows: Rows) -> Report:
    """The table as a benchmark's, with the programs that did not come out right."""
    found = Report("whole")
    table = found.table(_TITLE, *_COLUMNS)
    for line in _lines(rows):
        table.row(*line)
    others = found.table(
        "programs that ran as eager, were refused or came out wrong",
        "way",
        "program",
        "outcome",
        "why",
    )
    for way in _ways(rows):
        for name, of in rows.items():
            if way in of and of[way].outcome != "right":
                others.row(_shown(way), name, of[way].outcome, _said(of[way].detail))
    found.note(
        "as eager: right, but a call ran as it is (ours) or a graph was broken (torch.compile), or "
        "both"
    )
    return found


def text(rows: Rows) -> str:
    """The table, for people."""
    return report(rows).tables[0].text()


def _ways(rows: Rows) -> list[str]:
    # ours first
    return sorted(
        dict.fromkeys(way for of in rows.values() for way in of), key=lambda way: way != OURS
    )


def _said(detail: str) -> str:
    """What a row says, without the folders of a machine and without what follows an empty line."""
    return re.sub(r"/\S*/", "", detail.split("\n\nfrom user code")[0])


def _shown(way: str) -> str:
    return "symshape.compile" if way == OURS else f"torch.compile, {way}"


def _lines(rows: Rows) -> Iterator[tuple[Cell, ...]]:
    classes = list(dict.fromkeys(map(class_of, rows)))
    for way in _ways(rows):
        for each in (*classes, "all"):
            of = [
                found[way]
                for name, found in rows.items()
                if way in found and each in (class_of(name), "all")
            ]
            if not of:
                continue
            warm = [row.warm for row in of if row.warm is not None]
            spread = (round(f(warm), 2) if warm else None for f in (statistics.median, min, max))
            counts = (sum(row.outcome == outcome for row in of) for outcome in _OUTCOMES)
            first = round(sum(row.first or 0 for row in of), 1)
            yield (
                _shown(way),
                each,
                len(of),
                *counts,
                sum(row.programs for row in of),
                first,
                *spread,
            )
