"""A report without scripts: tables, for notebooks that can show nothing else. All text is
escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from guards.sets.html import table
from guards.text.escaping import encodable
from symshape.exploring.report_records import (
    EntryRecord,
    GuardRecord,
    MomentRecord,
    ProgramRecord,
    Report,
    Space,
)
from symshape.exploring.serving_records import BucketRecord, ServingRecord
from symshape.exploring.static_map import map_svg

_MOST = 12  # entries that are shown with their guards
_MOST_DRAWN = 32  # entries that are drawn on a map: each cell asks them all
_QUIET = ("range", "static", "layout")


def report_html(report: Report) -> str:
    """Return the report as headings and tables."""
    facts = ", ".join(f"{escape(name)} {escape(value)}" for name, value in report.facts)
    parts = [f"<p><b>{escape(report.title)}</b>: {facts}</p>"]
    parts += [_space(space, report) for space in report.spaces]
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    if report.moments:
        rows = _history(report.moments)[-_MOST:]
        parts.append(
            _filled(("call", "what", "sizes", "why"), rows, caption="history", code=("sizes",))
        )
    return encodable(f"<div>{''.join(parts)}</div>")


def _filled(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, code: Sequence[str]
) -> str:
    """Return a table without the columns that have no text in any row."""
    shown = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    named = [columns[at] for at in shown]
    return table(named, [[row[at] for at in shown] for row in rows], caption=caption, code=code)


def _history(moments: Sequence[MomentRecord]) -> list[tuple[str, str, str, str]]:
    """Return a row for each moment; a trace has the sizes that came with it in its own row."""
    came = {(m.call, m.entry): m.sizes for m in moments if m.kind == "new sizes"}
    traced = {(m.call, m.entry) for m in moments if m.kind == "trace"}
    return [
        (
            str(m.call),
            m.kind,
            m.sizes or (came.get((m.call, m.entry), "") if m.kind == "trace" else ""),
            m.text,
        )
        for m in moments
        if m.kind != "new sizes" or m.text or (m.call, m.entry) not in traced
    ]


def _space(space: Space, report: Report) -> str:
    parts = [f"<p>{escape(space.label)}</p>"] if space.label else []
    if space.verdict:
        parts.append(f"<p><b>{escape(space.verdict)}</b></p>")
    if len(space.entries) == 1:
        parts.append(_guards(space.entries[0], report))
        parts.append(_outputs(space.entries[0], report))
        parts.append(_serving(space.entries[0]))
        parts.append(map_svg(space))
        return "".join(parts)
    rows = [_entry_row(entry, report) for entry in space.entries[:_MOST]]
    columns = ("entry", "calls", "fixed", "guards", "outputs", "runner")
    if not any(entry.calls for entry in space.entries):  # nobody counts the calls of these
        rows = [(row[0], "", *row[2:]) for row in rows]
    parts.append(
        _filled(
            columns,
            rows,
            caption=f"entries ({len(space.entries)})",
            code=("fixed", "guards", "outputs"),
        )
    )
    parts += [_serving(entry) for entry in space.entries[:_MOST]]
    if len(space.entries) <= _MOST_DRAWN:
        parts.append(map_svg(space))
    return "".join(parts)


def _entry_row(entry: EntryRecord, report: Report) -> tuple[str, ...]:
    fixed = ", ".join(guard.words for guard in entry.guards if guard.kind == "static")
    guards = "; ".join(guard.words for guard in entry.guards if guard.kind not in _QUIET)
    outputs = "" if entry.program is None else ", ".join(_shapes(report.programs[entry.program]))
    return entry.label, str(entry.calls), fixed, guards or "none", outputs, entry.runner


def _shapes(program: ProgramRecord) -> list[str]:
    return [
        f"{each.dtype}[{', '.join(program.formulas[size].text for size in each.sizes)}]"
        if each.dtype
        else each.path
        for each in program.outputs
    ]


def _guards(entry: EntryRecord, report: Report) -> str:
    guards = [guard for guard in entry.guards if guard.kind != "range"]
    twice = all(guard.words == guard.text for guard in guards)  # then it is said once
    rows = [(guard.text, "" if twice else guard.words, *_origin(guard, report)) for guard in guards]
    columns = ("guard", "in your words", "needed at", "line", "asked by")
    return _filled(
        columns, rows, caption=f"guards ({len(rows)})", code=("guard", "in your words", "line")
    )


def _origin(guard: GuardRecord, report: Report) -> tuple[str, str, str]:
    if guard.origin is None:
        return "", "", guard.note
    origin = report.origins[guard.origin]
    return origin.place, origin.text, ", ".join(part for part in (origin.asked, guard.note) if part)


def _outputs(entry: EntryRecord, report: Report) -> str:
    if entry.program is None:
        return ""
    program = report.programs[entry.program]
    rows = [
        (each.path, shape) for each, shape in zip(program.outputs, _shapes(program), strict=True)
    ]
    return table(
        ("output", "tensor"), rows, caption=f"outputs ({len(rows)})", code=("output", "tensor")
    )


def _serving(entry: EntryRecord) -> str:
    """Return the buckets of padded programs with their figures, and below them the sizes that came
    for each symbol.
    """
    rows = [_bucket_row(part, bucket) for part in entry.serving for bucket in part.buckets[:_MOST]]
    rows += [_unpadded(part) for part in entry.serving if not part.buckets]
    if not rows:
        return ""
    columns = ("part", "bucket", "calls", "waste", "captured", "memory", "a replay")
    made = _filled(columns, rows, caption=f"what serves {entry.label}", code=("bucket",))
    return made + "".join(_told(part) for part in entry.serving)


def _bucket_row(part: ServingRecord, bucket: BucketRecord) -> tuple[str, ...]:
    calls = "" if bucket.calls is None else str(bucket.calls)
    waste = "" if bucket.waste is None else f"{bucket.waste:.0%}"
    times = "once" if bucket.captures == 1 else f"{bucket.captures} times"
    captured = f"{times}, {bucket.milliseconds:.1f} ms"
    replays = ", ".join(
        f"{milliseconds:.3g} ms ({kernels})" for kernels, milliseconds in bucket.replays
    )
    replays += f", {bucket.achieved}" if bucket.achieved else ""
    return part.part or "all", bucket.sizes, calls, waste, captured, bucket.memory, replays


def _unpadded(part: ServingRecord) -> tuple[str, ...]:
    return part.part or "all", "", "", "", "", "", "runs eagerly" if part.reasons else part.runner


def _told(part: ServingRecord) -> str:
    more = len(part.buckets) - _MOST
    lines = [
        *part.accounts,
        f"and {more} more buckets" if more > 0 else "",
        *part.notes,
        *part.padding,
        *part.reasons,
    ]
    text = "\n".join(line for line in lines if line)
    title = escape(f"{part.part or 'all'}: {part.runner}")
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>" if text else ""
