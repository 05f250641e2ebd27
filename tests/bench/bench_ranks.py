"""Ranks that compile together, in processes of their own: what they agree on, how errors end, what
a warm call takes.

    python -m tests.bench ranks                  2 ranks over Gloo on CPU
    python -m tests.bench ranks --device cuda    2 ranks over NCCL, each on a GPU of its own

Each scenario starts new processes, whose results are compared with eager's.  *same*, *uneven*
(sizes that differ between ranks), *late* (the last rank comes 1.5 s later), *other value* (of a
number in a module): all must be right. *other code*, *other helper*, *other argument*, *dead* (a
rank ends before it comes) and *dead in the trace* (the first rank ends while the others wait for
its program; ranks wait 5 s): an error on all that live, which names the rank. *kept*: ranks with a
store on disk, twice; the second group traces nothing.  *collectives*: 13 programs of functional
collectives, and three steps with ``DistributedDataParallel`` on batches that differ.  *overhead*: a
warm call that was agreed on over one that was not, wall time with the device idle at both ends,
median of 9 rounds of 100 samples in turn.

On CUDA the last column says how ranks have devices: ``cuda:0, cuda:1`` by number, or each sees its
own alone (``CUDA_VISIBLE_DEVICES``).  With fewer GPUs than ranks the ranks share one, over Gloo,
without collectives: said so.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.bench.report import NotHere, Report, bench_parser
from tests.symshape.store.rank_programs import DEAD_TIMEOUT, together

ERRORS = {
    "other code": "rank {odd} has different code",
    "other helper": "rank {odd}: the code of",
    "other argument": "rank {odd} is given x",
    "dead": "rank {last} never came",
    "dead in the trace": "for rank 0, which should say that it compiles",
}
NAMES = ("same", "uneven", "late", "other value", *ERRORS, "kept", "collectives", "overhead")
HANGS = 60.0
"""Seconds after which an agreement counts as a hang; a trace on a busy machine is much less."""


def _wrong(
    name: str, found: Sequence[dict[str, Any]], again: bool = False, apart: bool = False
) -> str:
    """What is not as it must be in a scenario; nothing, if all is right.

    Args:
        name: the scenario.
        found: by each rank.
        again: the store on disk is that of a group that has ended.
        apart: the ranks' devices have numbers of their own, and each rank traces for its own.
    """
    last = len(found) - 1
    gone = {"dead": last, "dead in the trace": 0}.get(name)
    living = [each for rank, each in enumerate(found) if rank != gone]
    if not all(living) or (gone is not None and found[gone]):
        return (
            "no word of rank "
            f"{[rank for rank, each in enumerate(found) if not each and rank != gone]}"
        )
    for each in living:
        pattern = ERRORS.get(name, "").format(odd="[01]" if last == 1 else last, last=last)
        if name in ERRORS and not re.search(pattern, each.get("error", "")):
            return f"expected {pattern!r}, got {each}"
        if name not in ERRORS and each.get("error"):
            return str(each["error"])
        if each["seconds"] > HANGS:
            return f"{each['seconds']:.0f} s"
    if name in ERRORS or "traces" not in found[0]:
        return ""
    expected = [0 if again else 1, *[int(apart and not again)] * last]
    expected[-1] |= name == "other value"
    if [each["traces"] for each in found] != expected:
        return f"traces {[each['traces'] for each in found]}, not {expected}"
    symbols = int(name == "uneven")
    return (
        ""
        if {each["symbols"] for each in found} == {symbols}
        else f"not {symbols} symbols: {found}"
    )


def _groups(device: str, size: int) -> tuple[str, tuple[str, ...], tuple[bool, ...]]:
    """The backend, the devices, and the ways in which ranks see them (``visible`` or not)."""
    if device == "cpu":
        return "gloo", ("cpu",), (False,)
    there = torch.cuda.device_count()
    if not there:
        raise NotHere("there is no CUDA device")
    if there < size:
        return "gloo", ("cuda:0",), (False,)
    return "nccl", tuple(f"cuda:{i}" for i in range(size)), (False, True)


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the scenarios."""
    parser = bench_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="how many (default: 2)")
    parser.add_argument(
        "--scenarios", nargs="+", choices=NAMES, default=NAMES, help="which (default: all)"
    )
    args = parser.parse_args(argv)
    backend, devices, ways = _groups(args.device, args.ranks)
    report = Report("ranks", device=args.device)
    if len(devices) < args.ranks and args.device == "cuda":
        report.note(f"one GPU for {args.ranks} ranks: they share it, over Gloo")
    columns = (
        "scenario",
        "right",
        "traces by rank",
        "loaded by rank",
        "seconds of the slowest",
        "ranks' devices",
    )
    table = report.table(
        f"{args.ranks} ranks over {backend}: agreeing before the first call", *columns
    )
    right = slowest = 0.0
    ran = 0
    overheads: list[float] = []
    for way in ways[:1] if args.smoke else ways:
        for name in ["uneven"] if args.smoke else args.scenarios:
            if name == "collectives" and backend == "gloo" and args.device == "cuda":
                continue
            with tempfile.TemporaryDirectory() as folder:
                words = {"backend": backend, "devices": devices, "visible": way, "fork": args.smoke}
                for again in (False, True) if name == "kept" else (False,):
                    found = together(name, args.ranks, folder=Path(folder), **words)
                    wrong = _wrong(name, found, again, apart=len(devices) > 1 and not way)
                    seconds = max((each.get("seconds", 0.0) for each in found), default=0.0)
                    traces, loaded = (
                        [each.get(what) for each in found] for what in ("traces", "loaded")
                    )
                    said = (
                        "" if traces[0] is None else str(traces),
                        "" if loaded[0] is None else str(loaded),
                    )
                    shown = f"{name}, again" if again else name
                    table.row(
                        shown,
                        wrong or True,
                        *said,
                        seconds,
                        "own alone" if way else ", ".join(devices),
                    )
                    print(f"{shown}: {wrong or 'right'} ({seconds:.2f} s)", flush=True)
                    ran, right = ran + 1, right + (not wrong)
                    slowest = max(slowest, seconds if name != "overhead" else 0.0)
                    overheads += [each["ratio"] for each in found if "ratio" in each]
    report.goal("scenarios that went right, of all", right / max(1, ran), at_least=1.0)
    report.goal("seconds of the slowest agreement or error", slowest, at_most=DEAD_TIMEOUT + HANGS)
    if overheads:
        report.goal(
            "a warm call that was agreed on / one that was not, worst rank",
            max(overheads),
            at_most=1.02,
        )
    return report
