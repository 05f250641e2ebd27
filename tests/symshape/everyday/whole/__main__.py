"""The table: what became of each program with symshape.compile, and with torch.compile and the backends given.

``python -m tests.symshape.everyday.whole [--backend eager] [NAME …]``
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import torch

import symshape
from tests.symshape.everyday.whole.loaded import PROGRAMS
from tests.symshape.everyday.whole.program import Run, difference, run


def _ours(name: str, eager: Run) -> str:
    found = run(name, symshape.compile)
    stats = (
        symshape.compiled_of(found.compiled).stats()
        if isinstance(found.compiled, torch.nn.Module)
        else found.compiled.stats()
    )
    return f"{_verdict(found, eager)} {stats.traces} traces" + (
        f", {stats.fallbacks} as they are" if stats.fallbacks else ""
    )


def _verdict(found: Run, eager: Run) -> str:
    wrong = difference(found, eager)
    return f"WRONG ({wrong[:200]})" if wrong else "right"


def _dynamo(name: str, eager: Run, backend: str) -> str:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = run(name, functools.partial(torch.compile, backend=backend, dynamic=True))
    counted: Any = torch._dynamo.utils.counters
    graphs, breaks = counted["stats"]["unique_graphs"], sum(counted["graph_break"].values())
    return f"{_verdict(found, eager)} {graphs} graphs, {breaks} breaks"


def main() -> None:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", action="append", default=[])
    args = parser.parse_args()
    others = [(each, functools.partial(_dynamo, backend=each)) for each in args.backend]
    for name in args.names or PROGRAMS:
        eager = run(name, lambda fn: fn)
        cells = []
        for who, how in (
            ("symshape.compile", _ours),
            *others,
        ):
            try:
                cells.append(f"{who}: {how(name, eager)}")
            except Exception as error:
                cells.append(f"{who}: CRASHED {type(error).__name__}: {str(error)[:200]}")
        print(f"{name:30} {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
