"""A report without scripts: tables, for notebooks that can show nothing else. All text is
escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

import attrs

from guards.sets.html import table
from guards.terms.tape import run_tape
from guards.text.escaping import encodable
from symshape.exploring.report_records import (
    BucketRecord,
    EntryRecord,
    GuardRecord,
    MomentRecord,
    ProgramRecord,
    Report,
    ServingRecord,
    Space,
)

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


# -- The region map without scripts: an SVG of the entries by size, for the two sizes that vary
# most.
COLOURS = (
    *("#4477aa", "#e29534", "#3f9c6b", "#c75b7a", "#8867b8", "#7fb8dd", "#a8a432", "#8c6d5a"),
    *("#22405f", "#9c5f12", "#1f5638", "#7f2c49", "#54397e", "#2a9aa8", "#66630f", "#4a372a"),
)
"""The colours of entries by position, as on the page."""
_CELLS = (64, 36)
_PICTURE = (680, 396)  # pixels: the map fills GitHub's column of some 750
_MARGIN = 66  # pixels left of the map, for numbers of up to five digits and the name of the size


@attrs.frozen
class _Axis:
    """One edge of the map: the slots that vary together, their name, and the values that are
    shown.
    """

    slots: tuple[int, ...]
    label: str
    values: Sequence[int]


def map_svg(space: Space) -> str:
    """Return the map as SVG with a legend below it; empty if fewer than two sizes vary.

    Other sizes keep the values that they start with.  A range with more values than cells is shown
    in even steps.
    """
    axes = list(_axes(space))
    if len(axes) < 2:
        return ""
    across, up = axes
    rows = [[_cell(space, across, x, up, y) for x in across.values] for y in up.values]
    seen = sorted({cell[0] for row in rows for cell in row if cell is not None})
    # pixels of a cell
    wide, high = (most // len(axis.values) for most, axis in zip(_PICTURE, axes, strict=True))
    width, height = wide * len(across.values), high * len(up.values)
    body = "".join(
        _row(row, height - high * (index + 1), wide, high) for index, row in enumerate(rows)
    )
    frame = f'<rect x="{_MARGIN}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
    whole = width + _MARGIN + 12, height + 42
    size = (
        'width="{0}" height="{1}" viewBox="0 0 {0} {1}" style="max-width:100%;height:auto"'.format(
            *whole
        )
    )
    shape = f'{size} role="img" aria-label="region map"'
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f"{shape}>{body}{frame}{_edges(across, up, width, height)}</svg>"
    )
    names = ", ".join(_named(space, index) for index in seen[:12]) or "no entry serves these sizes"
    steps = [axis.values[1] - axis.values[0] for axis in (across, up)]
    coarse = (
        ""
        if steps == [1, 1]
        else f"; a cell is {steps[0]} wide and {steps[1]} high, and pale where its other points "
        "differ"
    )
    caption = (
        f"{escape(across.label)} across, {escape(up.label)} upwards; {names}; "
        f"blank: no entry{coarse}"
    )
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


def _axes(space: Space) -> Iterator[_Axis]:
    for slot_index, most in zip(space.axes, _CELLS, strict=False):
        group = tuple(next((link for link in space.links if slot_index in link), [slot_index]))
        slot = space.slots[slot_index]
        label = next(
            (space.slots[each].given for each in group if space.slots[each].given), slot.label
        )
        low = max(-slot.top if slot.low is None else slot.low, -slot.top)
        step = 1  # powers of two, and multiples of them: what programs ask of sizes is seen best so
        while (slot.top - low) // step >= most:
            step *= 2
        yield _Axis(group, label, range(-(-low // step) * step, slot.top + 1, step))


def _edges(across: _Axis, up: _Axis, width: int, height: int) -> str:
    """Return the numbers along two edges and, on lines of their own, the names of the sizes."""
    parts = []
    for at in _ticks(len(across.values)):
        x = _MARGIN + int(width * (at + 0.5) / len(across.values))
        parts.append(f'<path d="M{x} {height}v4" stroke="#888"/>')
        parts.append(_text(x, height + 17, str(across.values[at]), "middle"))
    for at in _ticks(len(up.values)):
        y = height - int(height * (at + 0.5) / len(up.values))
        parts.append(
            f'<path d="M{_MARGIN} {y}h-4" stroke="#888"/>'
            + _text(_MARGIN - 7, y + 4, str(up.values[at]), "end")
        )
    parts.append(_text(_MARGIN + width // 2, height + 36, across.label, "middle"))
    turned = f'transform="rotate(-90 14 {height // 2})"'
    parts.append(_text(14, height // 2, up.label, "middle", turned))
    return "".join(parts)


def _ticks(cells: int) -> range:
    """Return the positions of at most nine cells, evenly spaced, that get a number."""
    step = 1
    while cells // step > 8:
        step *= 2
    return range(0, cells, step)


def _cell(space: Space, across: _Axis, x: int, up: _Axis, y: int) -> tuple[int, bool] | None:
    """Return the entry that serves a pair (None for none), and whether a pair in between is served
    by another.
    """
    found = _serving_at(space, across, x, up, y)
    if found is None:
        return None
    between = _serving_at(space, across, x + _half(across), up, y + _half(up))
    return found, between != found


def _half(axis: _Axis) -> int:
    step = axis.values[1] - axis.values[0]
    return step // 2 | 1 if step > 1 else 0


def _serving_at(space: Space, across: _Axis, x: int, up: _Axis, y: int) -> int | None:
    values = [slot.start for slot in space.slots]
    for axis, value in ((across, x), (up, y)):
        for slot in axis.slots:
            values[slot] = value
    registers = run_tape(space.tape.steps, values)
    derived = [
        (at, slot.derived) for at, slot in enumerate(space.slots) if slot.derived is not None
    ]
    if derived:
        for at, register in derived:
            found = registers[register]
            values[at] = values[at] if found is None else found
        registers = run_tape(space.tape.steps, values)
    for index, entry in enumerate(space.entries):
        if all(registers[guard.register] is True for guard in entry.guards):
            return index
    return None


def _row(row: Sequence[tuple[int, bool] | None], top: int, wide: int, high: int) -> str:
    """Return the cells of a row, each ``wide`` by ``high`` pixels, neighbours of one colour
    together.
    """
    parts = []
    left = _MARGIN
    for cell, run in groupby(row):
        width = wide * len(list(run))
        if cell is not None:
            size = f'x="{left}" y="{top}" width="{width}" height="{high}"'
            pale = ' fill-opacity="0.4"' if cell[1] else ""
            parts.append(f'<rect {size} fill="{COLOURS[cell[0] % len(COLOURS)]}"{pale}/>')
        left += width
    return "".join(parts)


def _text(x: int, y: int, text: str, anchor: str, more: str = "") -> str:
    place = f'x="{x}" y="{y}" {more}'.rstrip()
    return f'<text {place} font-size="13" fill="#888" text-anchor="{anchor}">{escape(text)}</text>'


def _named(space: Space, index: int) -> str:
    colour = COLOURS[index % len(COLOURS)]
    return f'<span style="color:{colour}">&#9632;</span> {escape(space.entries[index].label)}'
