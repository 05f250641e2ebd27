"""The report of a GPT-2 of 12 layers after calls of 2,000 sizes: building it, its size, opening it.

Few of the calls run, the others are counted as calls are: what a report shows of them is their
sizes and their number.

Opened in a headless Chromium, from the start of the navigation to the mark that the page sets when
it answers to its user, and what the page's thread worked meanwhile. tlparse and depyf show other
things of other runs: there is no peer. Building is CPU time. Of several openings the least is
given: what else runs on the machine can only add to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import process_time

import pytest
import torch

import symshape
from symshape.frontends.compiled import Compiled
from tests.bench.report import NotHere, Report, bench_parser
from tests.symshape.exploring.browser import Page, windows

_RUN = 4  # calls that run


def _gpt2(layers: int) -> torch.nn.Module:
    if not layers:  # smoke: without the import
        return torch.nn.Sequential(torch.nn.Embedding(100, 8), torch.nn.Linear(8, 8))
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "n_positions": 256, "n_embd": 64, "n_layer": layers, "n_head": 4}
    model: torch.nn.Module = GPT2Model(GPT2Config(**sizes, use_cache=False)).eval()
    return model


def _called(model: torch.nn.Module, calls: int, runner: str) -> Compiled:
    """The model after so many calls: a few that run, and others that are counted as calls are."""
    compiled = symshape.compiled_of(symshape.compile(model, dynamic=True, runner=runner))  # type: ignore[arg-type]
    with torch.no_grad():
        for number in range(_RUN):
            compiled(torch.zeros(1 + number, 6 + 9 * number, dtype=torch.long))
    entry = max(compiled.entries, key=lambda each: len(each.program.positions))
    slots = {slot.source.text(): place for place, slot in enumerate(entry.program.slots)}
    values = list(next(iter(entry.seen)))
    for number in range(_RUN, calls):
        batch, length = 1 + number // 250, 6 + number % 250
        for dim, size in enumerate((batch, length)):
            values[slots[f"{_argument(slots)}.size({dim})"]] = size
        compiled._cache.seen(entry, tuple(values)).calls += 1 + number % 7
    return compiled


def _argument(slots: Iterable[str]) -> str:
    return next(iter(slots)).partition(".")[0]


def _least(run: Callable[[], tuple[float, ...]], times: int) -> tuple[float, ...]:
    return tuple(map(min, zip(*(run() for _ in range(times)), strict=True)))


def _open(page: Page, path: Path) -> tuple[float, float]:
    """Milliseconds until the page answers, and those that its thread worked."""
    page.open(path)
    wall = page.run("return performance.getEntriesByName('symshape-interactive')[0].startTime")
    return wall, page.worked()


def main(argv: Sequence[str] | None = None) -> Report:
    args = bench_parser(__doc__).parse_args(argv)
    report = Report("explore", device=args.device)
    layers, calls, times = (0, 12, 1) if args.smoke else (12, 2000, 7)
    model = _gpt2(layers)
    table = report.table(
        f"GPT-2, {layers} layers",
        "runner",
        "sizes",
        "build, ms",
        "kB",
        "opens after, ms",
        "its thread works, ms",
    )
    opened = windows()
    try:
        page = next(opened)
    except pytest.skip.Exception as reason:
        raise NotHere(str(reason)) from None
    with tempfile.TemporaryDirectory() as folder:
        for runner, number in (("eager", calls), ("padded", calls)):
            compiled = _called(model, number, runner)
            symshape.explore(compiled).html()  # imports
            start = process_time()
            path = symshape.explore(compiled).save(Path(folder) / f"{runner}.html")
            build = process_time() - start
            wall, worked = _least(lambda path=path: _open(page, path), times)  # type: ignore[misc]
            size = path.stat().st_size
            table.row(runner, number, build * 1e3, size / 1e3, wall, worked)
            if not args.smoke:
                report.goal(f"{runner}: building it, s", build, at_most=2)
                report.goal(f"{runner}: its size, MB", size / 1e6, at_most=1.5)
                report.goal(f"{runner}: opening it, s", wall / 1e3, at_most=1)
    opened.close()  # type: ignore[attr-defined]
    return report
