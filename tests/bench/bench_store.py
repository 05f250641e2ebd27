"""The first call of a second process: from the store, against eager's first call, a trace, and
torch.compile, warm.

Each figure is the CPU time of the first call (model built, nothing called before) of a process of
its own; the median of several processes, kinds in turn, and beside it the ratio of the least.
*first process*: traces and stores. *second process*: is served from the store; what its call of
``symshape.compile`` takes stands beside it, since the entry is read there.  *Inductor*:
``torch.compile`` in a process that finds its caches filled by one before it
(TORCHINDUCTOR_CACHE_DIR); what ``torch.compile`` itself takes, which imports most of the compiler,
is not counted. *second, runner inductor*: served from the store and run by ``runner="inductor"``,
whose code comes from the store too (and its built kernels from the same caches); all of its imports
are counted.  Programs have symbolic sizes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
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
Run = Callable[[str, str, str], dict[str, Any]]
Found = dict[str, list[dict[str, Any]]]


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
    here = {
        "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor"),
        "SYMSHAPE_KEY": str(Path(folder) / "key"),
    }
    environment = {**os.environ, **here, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.bench.bench_store", name, who, folder]
    run = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def _artefacts(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*/*.artefact"))


def _figures(run: Run, name: str, folder: str, plain: int, inductor: int) -> tuple[Found, float]:
    """What each kind of process found, in turn, and what the first process's first call took.

    Args:
        run: runs one process.
        name: of the model.
        folder: of the store and of Inductor's caches.
        plain: processes of each kind without Inductor.
        inductor: processes of each kind with it; 0 for none.
    """
    cold = run(name, "store", folder)
    assert cold["traces"] == 1
    with_inductor = ("inductor", OURS) if inductor else ()
    for who in with_inductor:  # fills its caches
        run(name, who, folder)
    compiled = _artefacts(folder)
    assert len(compiled) == (OURS in with_inductor), "the first process kept nothing"
    found: Found = {}
    for number in range(max(plain, inductor)):
        for who in ("eager", "store") * (number < plain) + with_inductor * (number < inductor):
            found.setdefault(who, []).append(run(name, who, folder))
    assert _artefacts(folder) == compiled, "the second process compiles"
    assert not sum(each["traces"] for who in ("store", OURS) for each in found.get(who, ())), (
        "it traces"
    )
    return found, cold["first"]


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the benchmark; what is known is printed and written after each model."""
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--processes", type=int, default=5, help="of each kind without Inductor (default: 5)"
    )
    parser.add_argument(
        "--inductor-processes",
        type=int,
        default=2,
        help="of each kind with it; 0: none (default: 2)",
    )
    parser.add_argument(
        "--models", nargs="+", choices=NAMES, default=NAMES, help="which (default: all)"
    )
    args = parser.parse_args(argv)
    if args.device != "cpu":
        raise NotHere("this benchmark is for CPU")
    report = Report("store", device=args.device)
    second = ("second process", "its compile()", "its second call", "traces there")
    ratios = ("/ eager", "/ eager, minima", "/ Inductor", "runner inductor / Inductor")
    last = ("Inductor, warm", "second, runner inductor", *ratios)
    columns = ("model", "eager", "eager's second", "first process", *second, *last)
    table = report.table("first call, CPU ms", *columns)
    for name in NAMES[1:2] if args.smoke else args.models:
        with tempfile.TemporaryDirectory() as folder:
            counts = (1, 0) if args.smoke else (args.processes, args.inductor_processes)
            found, cold = _figures(first_call if args.smoke else _process, name, folder, *counts)

        def of(
            what: str, who: str, middle: Callable[..., float] = statistics.median, f: Found = found
        ) -> float | None:
            return middle(each[what] for each in f[who]) if who in f else None

        eager, warm = of("first", "eager"), of("first", "store")
        inductor, ours = of("first", "inductor"), of("first", OURS)
        least = _over(of("first", "store", min), of("first", "eager", min))
        over = _over(warm, eager), least, _over(warm, inductor), _over(ours, inductor)
        more = warm, of("compile", "store"), of("second", "store"), 0
        table.row(name, eager, of("second", "eager"), cold, *more, inductor, ours, *over)
        if not args.smoke:
            goals = {
                "second process / eager": (over[0], 1.5),
                "second process / torch.compile, warm": (over[2], 0.5),
            }
            goals["the same, runner inductor / torch.compile, warm"] = over[3], 0.5
            for words, (value, most) in goals.items():
                if value is not None:
                    report.goal(f"{name}: {words}", value, at_most=most)
            report.so_far()
    return report


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


if __name__ == "__main__":
    print(json.dumps(first_call(*sys.argv[1:4])))
