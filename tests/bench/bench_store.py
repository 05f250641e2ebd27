"""The first call of a second process: from the store, against eager's first call, a trace, and torch.compile, warm.

Each figure is the CPU time of the first call (model built, nothing called before) of a process of its own; the median
of several processes.  *first process*: traces and stores.  *second process*: is served from the store; what its call of
``symshape.compile`` takes stands beside it, since the entry is read there.  *Inductor*: ``torch.compile`` in a process
that finds its caches filled by one before it (TORCHINDUCTOR_CACHE_DIR); what ``torch.compile`` itself takes, which
imports most of the compiler, is not counted.  *second, runner inductor*: served from the store and run by
``runner="inductor"``, whose code comes from the store too (and its built kernels from the same caches); all of its
imports are counted.  Programs have symbolic sizes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import torch

import symshape
from tests.bench.report import NotHere, Report, bench_parser
from tests.discovery import REPOSITORY
from tests.models import MODELS

NAMES = ("llama", "bert", "resnet")
OURS = "store, inductor"


def first_call(name: str, who: str, folder: str) -> dict[str, Any]:
    """CPU ms of the first call and of the second, and how many programs were traced."""
    torch.set_num_threads(1)
    (model,) = [each for each in MODELS if each.name == name]
    module, arguments = model.build(), model.call(2, 64)
    fn: Any = module
    began = process_time()
    if who in ("store", OURS):
        runner: Any = "inductor" if who == OURS else "auto"
        fn = symshape.compile(module, store=folder, dynamic=True, fullgraph=True, runner=runner)
    elif who == "inductor":
        fn = torch.compile(module, dynamic=True)
    compiling = (process_time() - began) * 1e3
    times = []
    with torch.no_grad():
        for _ in range(2):
            began = process_time()
            fn(**arguments)
            times.append((process_time() - began) * 1e3)
    traces = symshape.compiled_of(fn).stats().traces if who in ("store", OURS) else None
    return {"compile": compiling, "first": times[0], "second": times[1], "traces": traces}


def _process(name: str, who: str, folder: str) -> dict[str, Any]:
    here = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor"), "SYMSHAPE_KEY": str(Path(folder) / "key")}
    environment = {**os.environ, **here, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.bench.bench_store", name, who, folder]
    run = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def _artefacts(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*/*.artefact"))


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument("--processes", type=int, default=3, help="of each kind (default: 3)")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, help="which (default: all)")
    parser.add_argument("--no-inductor", action="store_true", help="leave out what compiles C++")
    args = parser.parse_args(argv)
    if args.device != "cpu":
        raise NotHere("this benchmark is for CPU")
    report = Report("store", device=args.device)
    run = first_call if args.smoke else _process
    second = ("second process", "its compile()", "its second call", "traces there")
    last = ("Inductor, warm", "second, runner inductor", "/ eager", "/ Inductor", "runner inductor / Inductor")
    columns = ("model", "eager", "eager's second", "first process", *second, *last)
    table = report.table("first call, CPU ms", *columns)
    for name in NAMES[1:2] if args.smoke else args.models:
        with tempfile.TemporaryDirectory() as folder:
            cold = run(name, "store", folder)
            others = () if args.no_inductor or args.smoke else ("inductor", OURS)
            for who in others:  # fills its caches
                run(name, who, folder)
            compiled = _artefacts(folder)
            rounds = range(1 if args.smoke else args.processes)
            found = [{who: run(name, who, folder) for who in ("eager", "store", *others)} for _ in rounds]
            assert _artefacts(folder) == compiled, "the second process compiles"
            assert len(compiled) == (OURS in others), "the first process kept nothing"
        middle = {(who, what): statistics.median(each[who][what] for each in found)
                  for who in found[0] for what in ("compile", "first", "second")}  # fmt: skip
        inductor, ours = middle.get(("inductor", "first")), middle.get((OURS, "first"))
        eager, warm = middle["eager", "first"], middle["store", "first"]
        traces = sum(each["store"]["traces"] for each in found)
        assert traces == 0, "the second process traces"
        assert cold["traces"] == 1
        more = warm, middle["store", "compile"], middle["store", "second"], traces
        over = (warm / inductor, ours / inductor) if inductor and ours else (None, None)
        table.row(name, eager, middle["eager", "second"], cold["first"], *more, inductor, ours, warm / eager, *over)
        if not args.smoke:
            report.goal(f"{name}: second process / eager", warm / eager, at_most=1.5)
            if inductor is not None:
                report.goal(f"{name}: second process / torch.compile, warm", warm / inductor, at_most=0.5)
                assert ours is not None
                report.goal(f"{name}: the same, runner inductor / torch.compile, warm", ours / inductor, at_most=0.5)
    return report


if __name__ == "__main__":
    print(json.dumps(first_call(*sys.argv[1:4])))
