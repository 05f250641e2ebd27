"""The report of an audit: a verdict for each output, in words and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import attrs

from symshape.auditing.poison import Difference

PROVEN, LEAKS, UNKNOWN = "proven", "leaks", "unknown"


@attrs.frozen
class Step:
    """One op on the way from padding to an output, with the user's line."""

    op: str
    line: str

    def __str__(self) -> str:
        return f"{self.op} at {self.line}" if self.line else self.op


@attrs.frozen
class OutputAudit:
    """The verdict of one output.

    Attributes:
        name: the output.
        verdict: ``proven``, ``leaks`` or ``unknown``.
        where: the positions at which the output is unaffected, in words; for a leak, where it was
            compared.
        assumes: the assumptions of the proof.
        step: the op at which padding spreads, for leaks and unknown outputs.
        reason: why padding spreads there.
        repair: a change that would repair the program; empty if no rule knows one.
        path: the ops from the padding to the output.
        counterexample: two paddings with two different outputs.
        breaks: a difference found with padding that the assumptions exclude.
    """

    name: str
    verdict: str
    where: str = ""
    assumes: tuple[str, ...] = ()
    step: Step | None = None
    reason: str = ""
    repair: str = ""
    path: tuple[Step, ...] = ()
    counterexample: Difference | None = None
    breaks: Difference | None = None

    def picture(self) -> str:
        """Return the path from the padding to the output as SVG; empty without one, as for proven
        outputs.
        """
        if not self.path or self.step is None:
            return ""
        steps = list(dict.fromkeys([*self.path, self.step]))
        return path_svg(
            self.name, [(each.op, str(each)) for each in steps], steps.index(self.step), self.reason
        )

    def __str__(self) -> str:
        if self.verdict == PROVEN:
            lines = [
                f"{self.name}: proven unaffected by padding{f' {self.where}' if self.where else ''}"
            ]
        elif self.verdict == LEAKS:
            lines = [f"{self.name}: padding leaks into it"]
        else:
            lines = [f"{self.name}: unknown"]
        if self.step is not None:
            lines.append(f"  at {self.step}: {self.reason}")
        if self.repair and self.verdict != PROVEN:
            lines.append(f"  repair: {self.repair}")
        if len(self.path) > 1:
            lines.append("  path: " + " -> ".join(dict.fromkeys(each.op for each in self.path)))
        if self.counterexample is not None:
            lines.append(f"  counterexample: {self.counterexample}")
        lines += [f"  assumes that {each}" for each in self.assumes]
        if self.breaks is not None:
            lines.append(f"  outside what is assumed: {self.breaks}")
        return "\n".join(lines)


@attrs.frozen
class PaddingAudit:
    """The report of an audit: the effects of padding on the outputs of a program.

    Attributes:
        program: the name of the function.
        outputs: a verdict for each output.
        assumes: the assumptions about every call that the audit covers.
        notes: notes on the request for the caller.
        guards: the guards within which the sizes may vary.
        runs: the number of paddings that were run on the example.
    """

    program: str
    outputs: tuple[OutputAudit, ...]
    assumes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    runs: int = 0

    @property
    def proven(self) -> bool:
        """Return whether every output is proven unaffected."""
        return all(each.verdict == PROVEN for each in self.outputs)

    @property
    def leaks(self) -> tuple[OutputAudit, ...]:
        """Return the outputs into which padding leaks."""
        return tuple(each for each in self.outputs if each.verdict == LEAKS)

    @property
    def unknown(self) -> tuple[OutputAudit, ...]:
        """Return the outputs that are neither proven unaffected nor known to leak."""
        return tuple(each for each in self.outputs if each.verdict == UNKNOWN)

    def __getitem__(self, name: str) -> OutputAudit:
        """Return the verdict of an output, by its name."""
        return next(each for each in self.outputs if each.name == name)

    def __str__(self) -> str:
        counts = [
            f"{sum(each.verdict == kind for each in self.outputs)} {kind}"
            for kind in (PROVEN, LEAKS, UNKNOWN)
        ]
        lines = [f"{self.program}: {', '.join(counts)} ({self.runs} paddings run)"]
        lines += [f"  {line}" for each in self.outputs for line in str(each).splitlines()]
        lines += [f"assumed: {each}" for each in self.assumes]
        lines += [f"note: {each}" for each in self.notes]
        if self.guards:
            lines.append(f"for all sizes with {' and '.join(self.guards)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colours = {PROVEN: "#2a7d2a", LEAKS: "#b3261e", UNKNOWN: "#8a6d00"}
        rows = []
        for each in self.outputs:
            _, _, details = str(each).partition("\n")
            rows.append(
                f"<tr><td><code>{escape(each.name)}</code></td>"
                f"<td style='color:{colours[each.verdict]}'><b>{each.verdict}</b></td>"
                f"<td><pre style='white-space:pre-wrap'>{escape(each.where)}\n"
                f"{escape(details)}</pre>"
                f"{each.picture()}</td></tr>"
            )
        said = [f"assumed: {each}" for each in self.assumes] + [
            f"note: {each}" for each in self.notes
        ]
        head = f"<p><b>{escape(self.program)}</b>: padding, {self.runs} paddings run</p>"
        table = (
            "<table><tr><th>output</th><th>verdict</th><th>why</th></tr>"
            + "".join(rows)
            + "</table>"
        )
        return f"<div>{head}{table}{''.join(f'<p>{escape(each)}</p>' for each in said)}</div>"


# -- the path from the padding to an output, as a picture


_WIDTH = 680  # pixels
_ROW, _BOX = 40, 28  # pixels from one box to the next, and of a box
_MOST = 14  # rows of ops; more are counted in a row of their own
_LONGEST = 84  # characters of a row
_AT_PADDING, _SPREAD = "#b8860b", "#b3261e"
"""The colours of ops before and after padding spreads to valid positions."""


@attrs.frozen
class _Row:
    """One row: its text, the whole text for the pointer, and whether padding has spread by then."""

    text: str
    whole: str
    spread: bool
    here: bool = False


def path_svg(output: str, steps: Sequence[tuple[str, str]], at: int, reason: str) -> str:
    """Return the path to an output as SVG.

    The box of the op at which padding spreads is filled.

    Args:
        output: the name of the output.
        steps: for each op its name, and its name with the user's line.
        at: the position of the op at which padding spreads.
        reason: why padding spreads there.
    """
    rows = _rows(output, steps, at, reason)
    height = _ROW * len(rows) + 8
    drawn = "".join(
        _drawn(row, 4 + _ROW * place, last=row is rows[-1]) for place, row in enumerate(rows)
    )
    shape = (
        f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'style="max-width:100%;height:auto"'
    )
    label = escape(f"path from the padding to {output}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {shape} role="img" '
        f'aria-label="{label}">{drawn}</svg>'
    )


def _rows(output: str, steps: Sequence[tuple[str, str]], at: int, reason: str) -> Sequence[_Row]:
    rows = [_Row("padding", "the content of the padding", spread=False)]
    kept = _kept(len(steps), at)
    why = f": {reason}" if reason else ""
    for place, (name, whole) in enumerate(steps):
        if place not in kept:
            if place - 1 in kept:
                hidden = (
                    next(
                        end
                        for end in range(place, len(steps) + 1)
                        if end in kept or end == len(steps)
                    )
                    - place
                )
                names = ", ".join(each for each, _ in steps[place : place + hidden])
                rows.append(_Row(f"… {hidden} more", names, spread=place > at))
            continue
        more = why if place == at else ""
        rows.append(_Row(f"{name}{more}", f"{whole}{more}", spread=place >= at, here=place == at))
    return [*rows, _Row(output, f"the output {output}", spread=True)]


def _kept(count: int, at: int) -> set[int]:
    """Return the steps that have a row: all, or the first, the last and those around the one that
    spreads.
    """
    if count <= _MOST:
        return set(range(count))
    around = range(max(0, at - 2), min(count, at + 3))
    return {*range(3), *around, *range(count - 3, count)}


def _drawn(row: _Row, top: int, *, last: bool) -> str:
    colour = _SPREAD if row.spread else _AT_PADDING
    fill, ink = (colour, "#fff") if row.here else ("none", "currentColor")
    text = row.text if len(row.text) <= _LONGEST else f"{row.text[: _LONGEST - 1]}…"
    box = (
        f'<rect x="1" y="{top}" width="{_WIDTH - 2}" height="{_BOX}" rx="5" fill="{fill}" '
        f'stroke="{colour}"/>'
    )
    words = (
        f'<text x="10" y="{top + 18}" font-size="12" font-family="monospace" '
        f'fill="{ink}">{escape(text)}</text>'
        f"<title>{escape(row.whole)}</title>"
    )
    line = (
        ""
        if last
        else f'<path d="M20 {top + _BOX} v{_ROW - _BOX}" stroke="{colour}" stroke-width="2"/>'
    )
    return f"<g>{box}{words}{line}</g>"
