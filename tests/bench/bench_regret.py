"""Time so far, from the first call on: ours with default options against eager and others, sizes
never repeating.

Each peer runs in a process of its own, with the same sizes in the same order; a call is timed from
its arguments to the end of what the device does for it.  The peers take turns of a few calls, and
all processes of a peer are stopped outside of its turns: a host that is slow for a while is slow
for all of them, and no peer works while another one is timed.  Cumulative seconds at calls 1, 10,
30, 100, 300 and 1,000, so that traces, captures and compilations count where a user waits for them.
*behind* is the most by which ours was above 1.25 times eager's time so far, over all calls: the
promise is one second.

    python -m tests.bench regret --stream llama --peers eager,ours,buckets
"""

from __future__ import annotations

import argparse
import compileall
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import guards
import meta_fns
import symshape
from tests.bench.report import NotHere, Report, bench_parser
from tests.bench.stream_peers import Bucketed, Peer, TorchCompile
from tests.bench.streams import STREAMS, WITHOUT_BUCKETS, Sizes, Stream, Tensors, make
from tests.bench.training_streams import TRAINING

MARKS = (1, 10, 30, 100, 300, 1000)
TURN = 10
"""The calls that a peer makes before the next one's turn."""
_MY_TURN = "my turn"
# calls of a small function of torch's, before anything is timed: the context of the device
_WARM = 3


class Default(Peer):
    """Ours with default options."""

    def __init__(self, stream: Stream) -> None:
        self.compiled: Any = symshape.compile(stream.run)
        self.run = stream.around(self.compiled)

    def buckets(self) -> int | None:
        return self.compiled.stats().cuda_graphs

    def remarks(self) -> list[str]:
        stats = self.compiled.stats()
        report = [line.strip()[:240] for line in self.compiled.report().splitlines()]
        told = [line for line in report if line.startswith(("offer", "host time", "refused"))]
        traced = (
            f"{stats.traces} traces in {stats.trace_ms:.0f} ms, "
            f"{stats.fallbacks + stats.untraced} calls untraced"
        )
        return [f"{traced}, {stats.cuda_graphs} graphs", *told[:8]]


class Backend(Peer):
    """Ours as the backend of torch.compile."""

    def __init__(self, stream: Stream) -> None:
        self.run = stream.around(torch.compile(stream.run, backend="symshape"))


class Dynamic(TorchCompile):
    """torch.compile with every size dynamic from the start."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, None)
        self.run = stream.around(torch.compile(stream.run, dynamic=True))


RUN: dict[str, Callable[[Stream], Peer]] = {
    "eager": Peer,
    "ours": Default,
    "backend": Backend,
    "compile": lambda stream: TorchCompile(stream, None),
    "compile-dynamic": Dynamic,
    "buckets": lambda stream: Bucketed(stream, compiled=False),
}


def drawn(stream: Stream, count: int, seed: int) -> list[Sizes]:
    """Sizes of which none repeats."""
    return stream.draw(count, random.Random(seed), set())


def play(
    stream: Stream,
    peer: Peer,
    sizes: Sequence[Sizes],
    seed: int,
    limit: float,
    pulse: list[float] | None = None,
    wait: Callable[[], object] = bool,
) -> list[float]:
    """The seconds of each call; fewer than asked for where they take longer than ``limit`` in all.

    ``pulse`` gets the seconds of a fixed loop before each call: how fast the host is at that
    moment. ``wait`` is called before each turn.
    """
    cuda = torch.cuda.is_available()
    torch.manual_seed(seed)
    taken: list[float] = []
    for number, each in enumerate(sizes):
        if not number % TURN:
            wait()
        arguments = stream.arguments(each)
        if pulse is not None:
            pulse.append(_loop())
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        peer(each, arguments)
        if cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
        if sum(taken) > limit:
            break
    return taken


def _loop() -> float:
    """The seconds of a loop of Python that is always the same, some .2 ms."""
    start = time.perf_counter()
    for _ in range(5000):
        pass
    return time.perf_counter() - start


def _said_of(pulse: Sequence[float]) -> str:
    """How fast the host was: medians of the first, the middle and the last third of a stream."""
    third = max(1, len(pulse) // 3)
    parts = [
        sorted(pulse[at : at + third])[third // 2] * 1e3
        for at in (0, len(pulse) // 3, len(pulse) - third)
    ]
    return (
        f"a loop of Python took {', '.join(f'{each:.3f}' for each in parts)} ms (first, "
        "middle, last third)"
    )


def mismatches(stream: Stream, peer: Peer, sizes: Sequence[Sizes]) -> int:
    """How many of some calls differ from eager; 0 for training, where a call changes what the next
    one computes.
    """
    if stream.trains:
        return 0
    found, eager = 0, stream.around(stream.run)
    for each in sizes:
        arguments = stream.arguments(each)
        found += not _close(peer(each, arguments), eager(*arguments))
    return found


def _close(mine: Tensors, expected: Tensors) -> bool:
    return all(
        a.shape == b.shape
        and bool(((a - b).float().abs() <= 5e-2 * (1 + b.float().abs().max())).all())
        for a, b in zip(mine, expected, strict=True)
    )


def one(args: argparse.Namespace) -> dict[str, Any]:
    """Runs one peer in this process."""
    device = torch.device(args.device)
    stream = make(args.stream, device, tiny=device.type == "cpu" or args.smoke)
    sizes = drawn(stream, args.calls, args.seed)
    for _ in range(_WARM):
        (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item()
    torch._dynamo.config.recompile_limit = 64
    with torch.set_grad_enabled(stream.trains):
        peer = RUN[args.peer](stream)
        gc.collect()  # what imports left would fall due in the middle of some peer's stream
        pulse: list[float] = []
        taken = play(stream, peer, sizes, args.seed, args.limit, pulse, _wait)
        if device.type == "cpu" and not args.smoke:
            wrong = 0
        else:
            wrong = mismatches(stream, peer, sizes[: len(taken)][:: max(1, len(taken) // 10)])
    return {
        "seconds": taken,
        "mismatches": wrong,
        "buckets": peer.buckets(),
        "remarks": [*peer.remarks(), _said_of(pulse)],
    }


def _wait() -> None:
    """End a turn, and wait for the next one."""
    print(_MY_TURN, flush=True)
    sys.stdin.readline()


class PeerProcess:
    """One peer in a process of its own, which waits for its turns.

    Attributes:
        result: the last line that it printed; None until it ends.
    """

    def __init__(self, args: argparse.Namespace, stream: str, peer: str) -> None:
        command = [sys.executable, "-m", "tests.bench.bench_regret", "--peer", peer]
        command += ["--stream", stream, "--calls", str(args.calls), "--seed", str(args.seed)]
        command += ["--device", args.device, "--limit", str(args.limit)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until ``end``
        self._process = subprocess.Popen(
            command + ["--smoke"] * args.smoke,
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
            start_new_session=True,  # its compilers are stopped with it
        )
        self.result: dict[str, Any] | str | None = None
        self._until_turn()

    def turn(self) -> None:
        """Let it make the calls of one turn, or end."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # it has died: what it said is read below
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self._until_turn()

    def end(self) -> None:
        """Kill it and its compilers, if they still exist."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._errors.close()

    def _until_turn(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.result = json.loads(line)
            if line.strip() == _MY_TURN:
                self._signal(signal.SIGSTOP)
                return
        if self._process.wait() or self.result is None:
            self._errors.seek(0)
            self.result = (self._errors.read().strip().splitlines() or ["no answer"])[-1][:300]

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def in_turn(
    args: argparse.Namespace, stream: str, peers: Sequence[str]
) -> dict[str, dict[str, Any] | str]:
    """Run peers in turn, each in a process of its own; return what each measured, or its error."""
    started: dict[str, PeerProcess] = {}
    try:
        for peer in peers:
            started[peer] = PeerProcess(args, stream, peer)
        while waiting := [each for each in started.values() if each.result is None]:
            for each in waiting:
                each.turn()
        return {peer: each.result or "no answer" for peer, each in started.items()}
    finally:
        for each in started.values():
            each.end()


def behind(mine: Sequence[float], eager: Sequence[float]) -> float:
    """The most seconds by which the time so far was above 1.25 times eager's."""
    most = ours = theirs = 0.0
    for a, b in zip(mine, eager, strict=False):
        ours, theirs = ours + a, theirs + b
        most = max(most, ours - 1.25 * theirs)
    return most


def _tell(report: Report, stream: str, found: dict[str, dict[str, Any] | str]) -> None:
    columns = (
        "who",
        *(f"after {mark}" for mark in MARKS),
        "last / eager's",
        "behind s",
        "p99 / p50, last 200",
    )
    table = report.table(f"{stream}: seconds so far", *columns, "buckets", "mismatches")
    eager = found.get("eager")
    for who, result in found.items():
        if isinstance(result, str):
            report.note(f"{stream}, {who}: {result}")
            continue
        taken = result["seconds"]
        sums = [sum(taken[:mark]) if len(taken) >= mark else None for mark in MARKS]
        last = sorted(taken[-200:])
        spread = last[int(len(last) * 0.99)] / last[len(last) // 2]
        ratio = late = None
        if isinstance(eager, dict):
            count = min(len(taken), len(eager["seconds"]))
            ratio, late = (
                sum(taken[:count]) / sum(eager["seconds"][:count]),
                behind(taken, eager["seconds"]),
            )
        table.row(who, *sums, ratio, late, spread, result["buckets"], result["mismatches"])
        for remark in result["remarks"]:
            report.note(f"{stream}, {who}: {remark}")
        report.series[f"{stream}, {who}, ms"] = [round(each * 1e3, 3) for each in taken]
        if who in ("ours", "backend") and late is not None and ratio is not None:
            report.goal(
                f"{stream}, {who}: seconds above 1.25 of eager's so far, at most", late, at_most=1.0
            )
            report.goal(f"{stream}, {who}: mismatches", result["mismatches"], at_most=0)


def _compile_bytecode() -> None:
    """Compile our modules to bytecode, as an installation by pip does.

    A checkout under ``PYTHONDONTWRITEBYTECODE`` has none: each process would compile the sources of
    some 450 modules, many of them in its first calls, while torch's modules have bytecode.
    """
    for package in (guards, meta_fns, symshape):
        compileall.compile_dir(Path(str(package.__file__)).parent, quiet=2)


def main(argv: Sequence[str] | None = None) -> Report:
    """Runs the streams."""
    everything = STREAMS | WITHOUT_BUCKETS | TRAINING
    parser = bench_parser(__doc__, device="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--stream",
        default="",
        help=f"with commas between, of {','.join(everything)} (default: all)",
    )
    parser.add_argument("--peers", default="eager,ours,buckets", help=f"of {','.join(RUN)}")
    parser.add_argument("--calls", type=int, default=300, help="calls of a stream (default: 300)")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds after which a peer stops (default: 120)"
    )
    parser.add_argument("--peer", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        raise NotHere("needs a CUDA device")
    if args.smoke:
        args.calls, args.stream, args.peers = 4, args.stream or "graphs", "eager,ours"
    if args.peer:
        print(json.dumps(one(args)))
        return Report("regret", device=args.device)
    _compile_bytecode()
    streams = args.stream.split(",") if args.stream else list(everything)
    report = Report(
        "regret", device=args.device, part=args.stream.replace(",", "_") if len(streams) < 4 else ""
    )
    for stream in streams:
        peers = args.peers.split(",")
        found = in_turn(
            args, stream, [each for each in peers if each != "buckets" or stream in STREAMS]
        )
        _tell(report, stream, found)
        report.so_far()
    report.note(
        f"{args.calls} calls, seed {args.seed}; no sizes repeat; each peer in a process of its "
        f"own, in turns of {TURN} calls"
    )
    return report


if __name__ == "__main__":
    main()
